/**
 * Flags of several commands: a chatbot, JSON, times and durations.
 */
import { ChatbotRegistry } from "@parley/core";
import { Data, Effect, Option } from "effect";
import { Flag } from "effect/cli";
import { timeOf } from "../provision/ProvisionFile.ts";

export const jsonFlag = Flag.Boolean("json").pipe(
  Flag.withDefault(false),
  Flag.withDescription("Print JSON, for programs"),
);

/** A whole number above 0, and at most `most`. */
export const countFlag = (name: string, most: number = Number.MAX_SAFE_INTEGER) =>
  Flag.Int(name).pipe(
    Flag.filter(
      (count) => count > 0 && count <= most,
      () => `Expected a number above 0${most < 2 ** 31 ? ` and up to ${most}` : ""}`,
    ),
  );

export class NoSuchChatbot extends Data.TaggedError("NoSuchChatbot")<{
  readonly message: string;
}> {}

export const chatbotFlag = Flag.String("chatbot").pipe(
  Flag.optional,
  Flag.withDescription("The chatbot's id or name; not needed when there is only one"),
);

/** The chatbot with this id or, failing that, this name; the only one for none. */
export const registeredChatbotOf = Effect.fnUntraced(function* (wanted: Option.Option<string>) {
  const all = yield* ChatbotRegistry.use(({ list }) => list);
  const text = Option.getOrNull(wanted);
  const byId = all.filter(({ chatbot }) => String(chatbot.id) === text);
  const byName = all.filter(({ chatbot }) => text === null || chatbot.name === text);
  const [found, ...others] = byId.length > 0 ? byId : byName;
  if (found !== undefined && others.length === 0) return found;
  const known = all.map(({ chatbot: { id, name } }) => `${id} "${name}"`);
  const list = known.slice(0, 10).join(", ") + (known.length > 10 ? ", …" : "");
  return yield* new NoSuchChatbot({
    message:
      all.length === 0
        ? 'There is no chatbot yet: "parley chatbot create" creates one.'
        : text === null
          ? `Name the chatbot with --chatbot; there are: ${list}.`
          : found === undefined
            ? `There is no chatbot "${text}"; there are: ${list}.`
            : `Several chatbots are named "${text}"; there are: ${list}.`,
  });
});

export const chatbotOf = (wanted: Option.Option<string>) =>
  Effect.map(registeredChatbotOf(wanted), ({ chatbot }) => chatbot);

const units = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;

/** A thousand years: every database can store a time that is so far away. */
const longest = 365_250 * units.d;

/** The milliseconds of a duration such as `30d`. */
export const durationOf = (text: string): Option.Option<number> => {
  const [, count, unit] = /^(\d{1,11})([smhdw])$/.exec(text) ?? [];
  const millis = Number(count) * units[unit as keyof typeof units];
  return millis <= longest ? Option.some(millis) : Option.none();
};

/** A time, given the present in milliseconds; `null` is never. */
export type Expiry = (now: number) => Date | null;

/** A time, or a duration after the present; before it, if `sign` is negative. */
const timeFrom = (text: string, sign: 1 | -1): Option.Option<(now: number) => Date> =>
  Option.orElse(
    Option.map(durationOf(text), (millis) => (now: number) => new Date(now + sign * millis)),
    () => Option.map(timeOf(text), (time) => () => time),
  );

export const expiresFlag = Flag.String("expires").pipe(
  Flag.filterMap(
    (text): Option.Option<Expiry> =>
      text === "never" ? Option.some(() => null) : timeFrom(text, 1),
    () =>
      "Expected a date such as 2030-01-31, a time in ISO 8601, a duration such as 30d, or never",
  ),
  Flag.withMetavar("date|30d|never"),
);

/** A flag for a time in the past: a time, or how long ago. */
export const sinceFlag = (name: string) =>
  Flag.String(name).pipe(
    Flag.filterMap(
      (text) => timeFrom(text, -1),
      () =>
        "Expected a date such as 2026-01-31, a time with its zone in ISO 8601, or 30d for that long ago",
    ),
    Flag.withMetavar("date|30d"),
  );
