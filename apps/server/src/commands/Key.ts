/**
 * API keys. The text of a key is printed once, when it is made, and is nowhere else.
 */
import {
  Administration,
  generateKey,
  keyState,
  scopes,
  type Chatbot,
  type CreatedKey,
  type KeyChange,
  type RegisteredKey,
  type Scope,
} from "@parley/core";
import { Clock, Console, Duration, Effect, Option, Record, Redacted } from "effect";
import { Command, Flag } from "effect/cli";
import { SecureRandom } from "effect/crypto";
import { onDatabase } from "../Database.ts";
import { actor } from "./Actor.ts";
import { idOf, keyArgument, keyWithId } from "./KeyArgument.ts";
import { jsonFlag, print, table } from "./Output.ts";
import { chatbotFlag, chatbotOf } from "./Subject.ts";
import { durationOf, expiryOf, type Expiry } from "./Times.ts";
import { wrongUsage } from "./WrongUsage.ts";

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

const expiresFlag = Flag.String("expires").pipe(
  Flag.filterMap(
    expiryOf,
    () =>
      "Expected a date such as 2030-01-31, a time in ISO 8601, a duration such as 30d, or never",
  ),
  Flag.withMetavar("date|30d|never"),
);

/** When a new key ends. */
const futureOf = Effect.fnUntraced(function* (command: ReadonlyArray<string>, expires: Expiry) {
  const now = yield* Clock.currentTimeMillis;
  const expiresAt = expires(now);
  return expiresAt !== null && expiresAt.getTime() <= now
    ? yield* wrongUsage(command, "The time of --expires is over already.")
    : expiresAt;
});

const called = ({ id, name }: Chatbot) => `chatbot ${id} "${name}"`;

const untilOf = (expiresAt: Date | null) =>
  expiresAt === null ? "for ever" : `until ${expiresAt.toISOString()}`;

/** Prints a key that was just made: by itself, so that a shell can keep it in a variable. */
const printKey = Effect.fnUntraced(function* (
  json: boolean,
  chatbot: Chatbot,
  { id, key }: CreatedKey,
  more: Readonly<Record<string, unknown>>,
  said: string,
) {
  const text = Redacted.value(key);
  yield* print(json, { id, key: text, chatbot: chatbot.id, ...more }, () => text);
  yield* Console.error(`${said} The key is shown only now.`);
});

const create = Command.make(
  "create",
  {
    chatbot: chatbotFlag,
    name: nameFlag,
    scopes: scopesFlag.pipe(
      Flag.withDefault(scopes),
      Flag.withDescription("What the key may do: read, write and ask; all of it by default"),
    ),
    expires: expiresFlag.pipe(
      Flag.withDefault(() => null),
      Flag.withDescription("From when on it is refused; never by default"),
    ),
    json: jsonFlag,
  },
  ({ chatbot: wanted, expires, json, name, scopes }) =>
    Effect.gen(function* () {
      const expiresAt = yield* futureOf(["key", "create"], expires);
      yield* Effect.gen(function* () {
        const chatbot = yield* chatbotOf(wanted);
        const administration = yield* Administration;
        const key = { name: Option.getOrNull(name), scopes, expiresAt };
        const made = yield* administration.createKey(chatbot.id, key, yield* actor);
        yield* printKey(
          json,
          chatbot,
          made,
          key,
          `The key prl_${made.id}_… opens ${called(chatbot)} ${untilOf(expiresAt)}, to ${scopes.join(", ")}.`,
        );
      }).pipe(onDatabase);
    }),
).pipe(
  Command.withDescription("Make a key for a chatbot, and print it on standard output"),
  Command.withExamples([
    { command: "parley key create --name 'web shop'", description: "With all scopes" },
    {
      command: "parley key create --chatbot Helpdesk --scopes read --expires 30d",
      description: "For a report, for a month",
    },
    { command: "KEY=$(parley key create)", description: "Into a variable of the shell" },
  ]),
);

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
      const all = yield* Administration.use((administration) => administration.chatbots);
      const keys = all
        .filter(({ chatbot }) => only === null || chatbot.id === only)
        .flatMap(({ chatbot, keys }) => keys.map((key) => documentOf(chatbot, key, now)));
      yield* print(json, keys, () =>
        table(
          ["ID", "CHATBOT", "NAME", "STATE", "SCOPES", "CREATED", "EXPIRES", "LAST USED"],
          keys.map((key) => [
            `prl_${key.id}`,
            `${key.chatbot} ${key.chatbotName}`,
            key.name,
            key.state,
            key.scopes.join(","),
            key.createdAt,
            key.expiresAt,
            key.lastUsedAt,
          ]),
        ),
      );
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("List the keys, expired and revoked ones too"),
  Command.withExamples([
    { command: "parley key list", description: "Of every chatbot" },
    { command: "parley key list --chatbot Helpdesk --json", description: "For a program" },
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
  revokedAt: key.revokedAt,
  lastUsedAt: key.lastUsedAt,
});

const change = Command.make(
  "change",
  {
    key: keyArgument,
    name: nameFlag,
    scopes: scopesFlag.pipe(
      Flag.optional,
      Flag.withDescription("What the key may do from now on: read, write and ask"),
    ),
    expires: expiresFlag.pipe(
      Flag.optional,
      Flag.withDescription("From when on it is refused; a time that is over ends it at once"),
    ),
    unset: Flag.Literals("unset", ["name"]).pipe(
      Flag.optional,
      Flag.withDescription("What to take away from it"),
    ),
    json: jsonFlag,
  },
  ({ expires, json, key: argument, name, scopes, unset }) =>
    Effect.gen(function* () {
      const now = yield* Clock.currentTimeMillis;
      const path = ["key", "change"];
      if (Option.isSome(name) && Option.isSome(unset)) {
        return yield* wrongUsage(path, "--name cannot be set and unset at once.");
      }
      const change: KeyChange = Record.getSomes({
        name: Option.isSome(unset) ? Option.some(null) : name,
        scopes,
        expiresAt: Option.map(expires, (expiry) => expiry(now)),
      } as Record<string, Option.Option<any>>);
      if (Object.keys(change).length === 0) return yield* wrongUsage(path, "Say what to change.");
      const id = yield* idOf(path, argument);
      yield* Effect.gen(function* () {
        const { chatbot } = yield* keyWithId(id);
        const administration = yield* Administration;
        yield* administration.changeKey(chatbot.id, id, change, yield* actor);
        const { key } = yield* keyWithId(id);
        yield* print(
          json,
          documentOf(chatbot, key, now),
          () => `The key prl_${id}_… of ${called(chatbot)} is changed.`,
        );
      }).pipe(onDatabase);
    }),
).pipe(
  Command.withDescription(
    "Change what is named of a key; servers follow within a second, or 30 without LISTEN",
  ),
  Command.withExamples([
    { command: "parley key change prl_QSCmEIhoudPA --scopes read", description: "Only to read" },
    {
      command: "parley key change prl_QSCmEIhoudPA --expires 2030-01-31",
      description: "Another end",
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
        () => `The key prl_${id}_… of ${called(chatbot)} is revoked for ever.`,
      );
    }).pipe(onDatabase);
  }),
).pipe(
  Command.withDescription(
    "End a key for ever; servers refuse it within a second, or 30 without LISTEN",
  ),
  Command.withExamples([
    { command: "parley key revoke prl_QSCmEIhoudPA", description: "By its id" },
    { command: "parley key revoke - < leaked.txt", description: "A whole key that was found" },
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
      Flag.withDescription("How long the old key still works; an hour by default"),
    ),
    expires: expiresFlag.pipe(
      Flag.withDefault(() => null),
      Flag.withDescription("From when on the new key is refused; never by default"),
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
        const made = yield* administration.rotateKey(
          chatbot.id,
          id,
          { keepFor: Duration.millis(keepFor), expiresAt },
          yield* actor,
        );
        const { expiresAt: end, name, scopes } = made.replaced;
        yield* printKey(
          json,
          chatbot,
          made,
          { name, scopes, expiresAt, replaces: { id, expiresAt: end } },
          `The key prl_${made.id}_… opens ${called(chatbot)} ${untilOf(expiresAt)}; the old one, prl_${id}_…, ends at ${end.toISOString()}.`,
        );
      }).pipe(onDatabase);
    }),
).pipe(
  Command.withDescription("Make a key that replaces another, which still works for a while"),
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
