/**
 * API keys. The text of a key is printed once, when the key is created.
 */
import {
  Administration,
  generateKey,
  keyId,
  keyState,
  RatePerMinute,
  scopes,
  type Chatbot,
  type CreatedKey,
  type KeyChange,
  type RegisteredKey,
  type Scope,
} from "@parley/core";
import {
  Clock,
  Console,
  Data,
  Duration,
  Effect,
  Option,
  Record,
  Redacted,
  Schema,
  Stdio,
  Stream,
} from "effect";
import { Argument, Command, Flag } from "effect/cli";
import { SecureRandom } from "effect/crypto";
import { actor, onDatabase } from "../Database.ts";
import { wrongUsage } from "../Errors.ts";
import {
  chatbotFlag,
  chatbotOf,
  durationOf,
  expiresFlag,
  jsonFlag,
  type Expiry,
} from "../Flags.ts";
import { print, printTable } from "../Output.ts";

export class NoSuchKey extends Data.TaggedError("NoSuchKey")<{ readonly message: string }> {}

/** Never a whole key: other users of the machine can read arguments, and shells keep them. */
const keyArgument = Argument.String("key").pipe(
  Argument.withDescription(
    "The key's id, as prl_<id> or <id>; - reads the id or the whole key from standard input",
  ),
);

/** The id in the argument of the command at this path. */
const idOf = Effect.fnUntraced(function* (command: ReadonlyArray<string>, argument: string) {
  const { stdin } = yield* Stdio.Stdio;
  const text =
    argument === "-" ? (yield* Stream.mkString(Stream.decodeText(stdin))).trim() : argument;
  const id = keyId(text) ?? /^(?:prl_)?([0-9A-Za-z]{12})(?:_(?:…|\.\.\.)?)?$/.exec(text)?.[1];
  // The message does not repeat the argument, which may be most of a key.
  if (id === undefined) return yield* wrongUsage(command, "The argument is not the id of a key.");
  return id;
});

/** The key with this id, unless it is revoked, and its chatbot. */
const keyWithId = Effect.fnUntraced(function* (id: string) {
  const chatbots = yield* Administration.use((administration) => administration.chatbots);
  const [found] = chatbots.flatMap(({ chatbot, keys }) =>
    keys.filter((key) => key.id === id).map((key) => ({ chatbot, key })),
  );
  if (found !== undefined && found.key.revokedAt === null) return found;
  return yield* new NoSuchKey({
    message:
      found === undefined
        ? `There is no key prl_${id}_….`
        : `The key prl_${id}_… is revoked already.`,
  });
});

const nameFlag = Flag.String("name").pipe(
  Flag.optional,
  Flag.withDescription("A name for your own overview"),
);

const scopesOf = (text: string): Option.Option<ReadonlyArray<Scope>> => {
  const named = text.split(",").map((name) => scopes.find((scope) => scope === name.trim()));
  return named.includes(undefined) || new Set(named).size < named.length
    ? Option.none()
    : Option.some(named as Array<Scope>);
};

const scopesFlag = Flag.String("scopes").pipe(
  Flag.filterMap(scopesOf, () => "Expected some of read, write and ask, with commas between them"),
  Flag.withMetavar("read,write,ask"),
);

/** Requests in a minute; `null` for none. */
const rateOf = (text: string): Option.Option<number | null> => {
  if (text === "none") return Option.some(null);
  const count = Number(/^(\d{1,7})\/min$/.exec(text)?.[1] ?? Number.NaN);
  return Schema.is(RatePerMinute)(count) ? Option.some(count) : Option.none();
};

const rateFlag = Flag.String("rate").pipe(
  Flag.filterMap(rateOf, () => "Expected a number up to 1000000 a minute, such as 60/min, or none"),
  Flag.withMetavar("60/min|none"),
  Flag.optional,
  Flag.withDescription("How many requests with the key each server process accepts"),
);

const rateText = (ratePerMinute: number | null) =>
  ratePerMinute === null ? null : `${ratePerMinute}/min`;

/** The end of a new key. */
const futureOf = Effect.fnUntraced(function* (command: ReadonlyArray<string>, expires: Expiry) {
  const now = yield* Clock.currentTimeMillis;
  const expiresAt = expires(now);
  return expiresAt !== null && expiresAt.getTime() <= now
    ? yield* wrongUsage(command, "The time of --expires is over already.")
    : expiresAt;
});

const titleOf = (id: string, chatbot: Chatbot) =>
  `The key prl_${id}_… of chatbot ${chatbot.id} "${chatbot.name}"`;

const untilOf = (expiresAt: Date | null) =>
  expiresAt === null ? "indefinitely" : `until ${expiresAt.toISOString()}`;

/** Prints the text of a new key alone on standard output, so that a shell can keep it in a variable. */
const printKey = Effect.fnUntraced(function* (
  json: boolean,
  chatbot: Chatbot,
  { id, key }: CreatedKey,
  more: Readonly<Record<string, unknown>>,
  about: string,
) {
  const text = Redacted.value(key);
  yield* print(json, { id, key: text, chatbot: chatbot.id, ...more }, () => text);
  yield* Console.error(`${titleOf(id, chatbot)} ${about}. The key is shown only now.`);
});

const create = Command.make(
  "create",
  {
    chatbot: chatbotFlag,
    name: nameFlag,
    scopes: scopesFlag.pipe(
      Flag.withDefault(scopes),
      Flag.withDescription("The scopes of the key: read, write and ask; all of them by default"),
    ),
    expires: expiresFlag.pipe(
      Flag.withDefault(() => null),
      Flag.withDescription("The end of the key; never by default"),
    ),
    rate: rateFlag,
    json: jsonFlag,
  },
  ({ chatbot: wanted, expires, json, name, rate, scopes }) =>
    Effect.gen(function* () {
      const expiresAt = yield* futureOf(["key", "create"], expires);
      yield* Effect.gen(function* () {
        const chatbot = yield* chatbotOf(wanted);
        const administration = yield* Administration;
        const ratePerMinute = Option.getOrNull(rate);
        const key = { name: Option.getOrNull(name), scopes, expiresAt, ratePerMinute };
        const created = yield* administration.createKey(chatbot.id, key, yield* actor);
        const limit = ratePerMinute === null ? "" : `, at ${rateText(ratePerMinute)}`;
        const about = `is valid ${untilOf(expiresAt)}, to ${scopes.join(", ")}${limit}`;
        yield* printKey(json, chatbot, created, key, about);
      }).pipe(onDatabase);
    }),
).pipe(
  Command.withDescription("Create a key for a chatbot, and print it on standard output"),
  Command.withExamples([
    { command: "parley key create --name 'web shop'", description: "With all scopes" },
    {
      command: "parley key create --chatbot Helpdesk --scopes read --expires 30d",
      description: "For a report, for a month",
    },
    { command: "parley key create --rate 60/min", description: "Limited" },
    { command: "KEY=$(parley key create)", description: "Into a variable of the shell" },
  ]),
);

const documentOf = (chatbot: Chatbot, key: RegisteredKey, now: number) => ({
  id: key.id,
  chatbot: chatbot.id,
  chatbotName: chatbot.name,
  name: key.name,
  state: keyState(key, now),
  scopes: key.scopes,
  createdAt: key.createdAt,
  expiresAt: key.expiresAt,
  ratePerMinute: key.ratePerMinute,
  revokedAt: key.revokedAt,
  lastUsedAt: key.lastUsedAt,
});

const list = Command.make(
  "list",
  {
    chatbot: chatbotFlag.pipe(Flag.withDescription("Only the keys of this chatbot, by id or name")),
    json: jsonFlag,
  },
  ({ chatbot: wanted, json }) =>
    Effect.gen(function* () {
      const only = Option.isSome(wanted) ? (yield* chatbotOf(wanted)).id : null;
      const now = yield* Clock.currentTimeMillis;
      const chatbots = yield* Administration.use((administration) => administration.chatbots);
      const documents = chatbots
        .filter(({ chatbot }) => only === null || chatbot.id === only)
        .flatMap(({ chatbot, keys }) => keys.map((key) => documentOf(chatbot, key, now)));
      yield* printTable(json, documents, {
        ID: ({ id }) => `prl_${id}`,
        CHATBOT: ({ chatbot, chatbotName }) => `${chatbot} ${chatbotName}`,
        NAME: ({ name }) => name,
        STATE: ({ state }) => state,
        SCOPES: ({ scopes }) => scopes.join(","),
        RATE: ({ ratePerMinute }) => rateText(ratePerMinute),
        CREATED: ({ createdAt }) => createdAt,
        EXPIRES: ({ expiresAt }) => expiresAt,
        "LAST USED": ({ lastUsedAt }) => lastUsedAt,
      });
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("List the keys, expired and revoked ones too"),
  Command.withExamples([
    { command: "parley key list", description: "Of every chatbot" },
    { command: "parley key list --chatbot Helpdesk --json", description: "For a program" },
  ]),
);

const change = Command.make(
  "change",
  {
    key: keyArgument,
    name: nameFlag,
    scopes: scopesFlag.pipe(
      Flag.optional,
      Flag.withDescription("The scopes of the key: read, write and ask"),
    ),
    expires: expiresFlag.pipe(
      Flag.optional,
      Flag.withDescription("The end of the key; a time in the past ends it at once"),
    ),
    rate: rateFlag,
    json: jsonFlag,
  },
  ({ expires, json, key: argument, name, rate, scopes }) =>
    Effect.gen(function* () {
      const now = yield* Clock.currentTimeMillis;
      const path = ["key", "change"];
      const change: KeyChange = Record.getSomes({
        // An empty name is none.
        name: Option.map(name, (text) => text || null),
        scopes,
        expiresAt: Option.map(expires, (expiry) => expiry(now)),
        ratePerMinute: rate,
      } as Record<string, Option.Option<any>>);
      if (Object.keys(change).length === 0) return yield* wrongUsage(path, "Name what to change.");
      const id = yield* idOf(path, argument);
      yield* Effect.gen(function* () {
        const { chatbot } = yield* keyWithId(id);
        const administration = yield* Administration;
        yield* administration.changeKey(chatbot.id, id, change, yield* actor);
        const { key } = yield* keyWithId(id);
        yield* print(
          json,
          documentOf(chatbot, key, now),
          () => `${titleOf(id, chatbot)} is changed.`,
        );
      }).pipe(onDatabase);
    }),
).pipe(
  Command.withDescription(
    "Change the named fields of a key; servers follow within a second, or 30 without LISTEN",
  ),
  Command.withExamples([
    { command: "parley key change prl_QSCmEIhoudPA --scopes read", description: "Only to read" },
    {
      command: "parley key change prl_QSCmEIhoudPA --expires 2030-01-31",
      description: "Another end",
    },
    {
      command: "parley key change prl_QSCmEIhoudPA --rate 60/min",
      description: "At most a request a second on average",
    },
  ]),
);

const revoke = Command.make("revoke", { key: keyArgument, json: jsonFlag }, ({ json, key }) =>
  Effect.gen(function* () {
    const id = yield* idOf(["key", "revoke"], key);
    yield* Effect.gen(function* () {
      const { chatbot } = yield* keyWithId(id);
      const administration = yield* Administration;
      yield* administration.revokeKey(chatbot.id, id, yield* actor);
      yield* print(
        json,
        { id, chatbot: chatbot.id },
        () => `${titleOf(id, chatbot)} is revoked permanently.`,
      );
    }).pipe(onDatabase);
  }),
).pipe(
  Command.withDescription(
    "Revoke a key permanently; servers refuse it within a second, or 30 without LISTEN",
  ),
  Command.withExamples([
    { command: "parley key revoke prl_QSCmEIhoudPA", description: "By its id" },
    { command: "parley key revoke - < leaked.txt", description: "A whole key in a file" },
  ]),
);

const rotate = Command.make(
  "rotate",
  {
    key: keyArgument,
    keepFor: Flag.String("keep-for").pipe(
      Flag.filterMap(durationOf, () => "Expected a duration such as 90s, 30m, 24h, 7d or 2w"),
      Flag.withMetavar("24h"),
      Flag.withDefault(3_600_000),
      Flag.withDescription("How long the old key stays valid; an hour by default"),
    ),
    expires: expiresFlag.pipe(
      Flag.withDefault(() => null),
      Flag.withDescription("The end of the new key; never by default"),
    ),
    json: jsonFlag,
  },
  ({ expires, json, keepFor, key: argument }) =>
    Effect.gen(function* () {
      const id = yield* idOf(["key", "rotate"], argument);
      const expiresAt = yield* futureOf(["key", "rotate"], expires);
      yield* Effect.gen(function* () {
        const { chatbot } = yield* keyWithId(id);
        const administration = yield* Administration;
        const created = yield* administration.rotateKey(
          chatbot.id,
          id,
          { keepFor: Duration.millis(keepFor), expiresAt },
          yield* actor,
        );
        const { expiresAt: end, name, scopes } = created.replaced;
        yield* printKey(
          json,
          chatbot,
          created,
          { name, scopes, expiresAt, replaces: { id, expiresAt: end } },
          `is valid ${untilOf(expiresAt)}; the old one, prl_${id}_…, ends at ${end.toISOString()}`,
        );
      }).pipe(onDatabase);
    }),
).pipe(
  Command.withDescription("Create a key that replaces another, which stays valid for a while"),
  Command.withExamples([
    { command: "parley key rotate prl_QSCmEIhoudPA", description: "The old one ends in an hour" },
    {
      command: "parley key rotate prl_QSCmEIhoudPA --keep-for 7d",
      description: "A week to change over",
    },
  ]),
);

const generate = Command.make("generate", { json: jsonFlag }, ({ json }) =>
  generateKey.pipe(
    Effect.map(Redacted.value),
    Effect.flatMap((key) => print(json, { key }, () => key)),
    Effect.provide(SecureRandom.layerWebCrypto),
  ),
).pipe(
  Command.withDescription("Print a fresh API key; nothing is stored"),
  Command.withExamples([
    { command: "parley key generate", description: "A key for the provisioning file" },
  ]),
);

export const key = Command.make("key").pipe(
  Command.withDescription("API keys"),
  Command.withExamples([
    { command: "parley key list", description: "All of them, with their states" },
    { command: "parley key rotate --help", description: "How to replace one" },
  ]),
  Command.withSubcommands([create, list, change, revoke, rotate, generate]),
);
