/**
 * Flags that several commands share: a chatbot, times, durations and counts.
 */
import { ChatbotRegistry, type StorageUnavailable } from "@parley/core/ports";
import { Effect, Option, Record } from "effect";
import { Flag } from "effect/cli";
import { timeOf } from "../provision/ProvisionFile.ts";
import { CommandFailed, listChatbots, usageError } from "./CommandErrors.ts";

export const textFlag = (name: string, description: string) =>
  Flag.String(name).pipe(Flag.optional, Flag.withDescription(description));

export const switchFlag = (name: string, description: string) =>
  Flag.Boolean(name).pipe(Flag.withDefault(false), Flag.withDescription(description));

/** Returns the values of the flags that were given. */
export const valuesOf = <Flags extends Readonly<Record<string, Option.Option<unknown>>>>(
  flags: Flags,
) =>
  Record.getSomes(flags) as { readonly [Name in keyof Flags]?: Option.Option.Value<Flags[Name]> };

/** Creates a flag that takes a whole number from 1 to `maximum`. */
export const countFlag = (name: string, maximum: number) =>
  Flag.Int(name).pipe(
    Flag.filter(
      (count) => count > 0 && count <= maximum,
      () => `Expected a whole number from 1 to ${maximum}`,
    ),
  );

export const chatbotFlag = textFlag(
  "chatbot",
  "Id or name of the chatbot; optional if there is only one",
);

/** Finds a chatbot by id, then by name. Without a selector, returns the only chatbot. */
export const chatbotOf = Effect.fnUntraced(function* (selector: Option.Option<string>) {
  const all = yield* ChatbotRegistry.use(({ list }) => list);
  const text = Option.getOrNull(selector);
  const byId = all.filter(({ chatbot }) => String(chatbot.id) === text);
  const byName = all.filter(({ chatbot }) => text === null || chatbot.name === text);
  const [match, ...others] = byId.length > 0 ? byId : byName;
  if (match !== undefined && others.length === 0) return match;
  const none = text === null ? "There are no chatbots yet." : `There is no chatbot "${text}".`;
  const several =
    text === null
      ? "There is more than one chatbot: select one with --chatbot."
      : `More than one chatbot is named "${text}": select one by id.`;
  return yield* new CommandFailed({
    message: match === undefined ? none : several,
    hint: all.length === 0 ? '"parley chatbot create" creates one.' : listChatbots,
  });
});

/** Returns the chatbots of a workspace, or without one the selected chatbot. Fails if there are none. */
export const chatbotsOf = Effect.fnUntraced(function* (
  workspace: Option.Option<string>,
  selector: Option.Option<string>,
) {
  if (Option.isNone(workspace)) return [yield* chatbotOf(selector)];
  const all = yield* ChatbotRegistry.use(({ list }) => list);
  const chatbots = all.filter(({ chatbot }) => chatbot.workspaceName === workspace.value);
  if (chatbots.length > 0) return chatbots;
  const message = `There is no workspace "${workspace.value}".`;
  return yield* new CommandFailed({ message, hint: listChatbots });
});

const units = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;

/** Converts a duration such as `30d` to milliseconds. */
export const durationOf = (text: string): Option.Option<number> => {
  const [, count, unit] = /^(\d{1,5})([smhdw])$/.exec(text) ?? [];
  return unit === undefined
    ? Option.none()
    : Option.some(Number(count) * units[unit as keyof typeof units]);
};

/** A value that depends on the database's clock. */
type ByDatabaseClock<A> = Effect.Effect<A, StorageUnavailable | CommandFailed, ChatbotRegistry>;

export const databaseNow: ByDatabaseClock<Date> = ChatbotRegistry.use(({ now }) => now);

/** Parses a future time or a duration from now or, if `sign` is negative, a past time or a duration before now. */
const timeFrom = (text: string, sign: 1 | -1): Option.Option<ByDatabaseClock<Date>> =>
  Option.orElse<number | Date, Date>(durationOf(text), () => timeOf(text)).pipe(
    Option.map((point) =>
      Effect.flatMap(databaseNow, (now): ByDatabaseClock<Date> => {
        const time = point instanceof Date ? point : new Date(now.getTime() + sign * point);
        if (sign * (time.getTime() - now.getTime()) > -1000) return Effect.succeed(time);
        return usageError(
          `Expected a ${sign > 0 ? "future" : "past"} time, not ${time.toISOString()}.`,
          `according to the database's clock, it is ${now.toISOString()}.`,
        );
      }),
    ),
  );

export const expiresFlag = <Absent extends null | undefined>(absent: Absent, description: string) =>
  Flag.String("expires").pipe(
    Flag.filterMap(
      (text): Option.Option<ByDatabaseClock<Date | null>> =>
        text === "never" ? Option.some(Effect.succeed(null)) : timeFrom(text, 1),
      () =>
        "Expected a future date such as 2030-01-31, an ISO 8601 time with a time zone, a duration such as 30d, or never",
    ),
    Flag.withMetavar("date|30d|never"),
    Flag.withDefault(absent),
    Flag.withDescription(description),
  );

/** Creates a flag that takes a past time, or a duration before now. */
export const sinceFlag = (name: string, description: string) =>
  Flag.String(name).pipe(
    Flag.filterMap(
      (text) => timeFrom(text, -1),
      () =>
        "Expected a past date such as 2026-01-31, an ISO 8601 time with a time zone, or a duration such as 30d (30 days ago)",
    ),
    Flag.withMetavar("date|30d"),
    Flag.withDefault(undefined),
    Flag.withDescription(description),
  );
