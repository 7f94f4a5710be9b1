/**
 * Commands for API keys. A key is printed in full only once, when it is created.
 */
import {
  Administration,
  boundsOf,
  defaultScopes,
  generateKey,
  KeyBounds,
  keyId,
  keyLimits,
  keyState,
  scopes as allScopes,
  UserRef,
  type Chatbot,
  type CreatedKey,
  type Scope,
  visitorDefaults,
} from "@parley/core";
import { ArgumentInvalid, exportDetail, KeyNotFound } from "@parley/core/ports";
import {
  Console,
  Duration,
  Effect,
  Option,
  Record,
  Redacted,
  Schema,
  Stdio,
  Stream,
  Struct,
} from "effect";
import { Argument, CliError, Command, Flag } from "effect/cli";
import { actor, onDatabase, recordRead } from "../Database.ts";
import { makeCommand, withHelp } from "../Declaration.ts";
import { CommandFailed, noChanges, usageError } from "../CommandErrors.ts";
import {
  chatbotFlag,
  chatbotOf,
  durationOf,
  expiresFlag,
  valuesOf,
  databaseNow,
  switchFlag,
  textFlag,
} from "../Flags.ts";
import { print, table } from "../Output.ts";
import { Settings } from "../../Settings.ts";

/** The id of a key. `Cli.ts` rejects an argument that contains a whole key, but standard input may contain one. */
const idArgument = Argument.String("key").pipe(
  Argument.withDescription(
    "Id of the key, as prl_<id> or <id>; - reads the id or the whole key from standard input",
  ),
  Argument.mapEffect(
    Effect.fnUntraced(function* (argument) {
      const { stdin } = yield* Stdio.Stdio;
      const text =
        argument === "-"
          ? (yield* Effect.mapError(
              Stream.mkString(Stream.decodeText(stdin)),
              () => new CliError.ValidationError({ message: "Cannot read standard input." }),
            )).trim()
          : argument;
      const id = keyId(text) ?? /^(?:prl_)?([0-9A-Za-z]{12})(?:_(?:…|\.\.\.)?)?$/.exec(text)?.[1];
      // The message does not repeat the input, because it may contain most of a key.
      const message =
        argument === "-"
          ? "Standard input contains neither a key nor a key id."
          : "The argument is not a key id.";
      return id ?? (yield* new CliError.ValidationError({ message }));
    }),
  ),
);

/** Returns the chatbot that has the key. */
const ownerOf = Effect.fnUntraced(function* (id: string) {
  const all = yield* Administration.use((administration) => administration.chatbots);
  const owner = all.find(({ keys }) => keys.some((key) => key.id === id));
  return owner?.chatbot ?? (yield* new KeyNotFound({ keyId: id }));
});

const nameFlag = textFlag("name", "Name, to tell keys apart");
/** The new name. An empty string removes the current name. */
const newNameFlag = Flag.map(nameFlag, (name) => Option.map(name, (text) => text || null));

const scopesOf = (text: string): Option.Option<ReadonlyArray<Scope>> => {
  const names = text.split(",");
  const grants = allScopes.filter((scope) => names.includes(scope));
  return grants.length === names.length ? Option.some(grants) : Option.none();
};

const scopesFlag = Flag.String("scopes").pipe(
  Flag.filterMap(
    scopesOf,
    () => `Expected one or more of ${allScopes.join(", ")}, separated by commas`,
  ),
  Flag.withMetavar(defaultScopes.join()),
  Flag.withDescription(
    `Comma-separated scopes of ${allScopes.join(", ")} (default for a new key: ${defaultScopes.join()})`,
  ),
);

/** The flags of scopes, bounds and, as `visitors`, the signing secret. Errors name the flag where the core names the field. */
const flagNames = {
  ...Record.map(keyLimits, ({ flag }) => flag),
  origins: "origins",
  scopes: "scopes",
  visitors: "visitors",
} as const;

/** Does what `onDatabase` does, and names flags where an error of the core names fields. */
const onDatabaseWithFlags = <A, E, R>(work: Effect.Effect<A, E, R>) =>
  Effect.mapError(work, (error) => {
    if (!(error instanceof ArgumentInvalid)) return error;
    const message = error.message.replace(/\w+/g, (word) =>
      Object.hasOwn(flagNames, word) ? `--${flagNames[word as keyof typeof flagNames]}` : word,
    );
    return usageError(message, '"parley key create --help" explains the flags.');
  }).pipe(onDatabase);

/** Creates the flag of a limit per minute or day; `none` removes the limit. */
const limitFlag = (
  { description, example, flag }: (typeof keyLimits)[keyof typeof keyLimits],
  field: keyof typeof keyLimits,
) => {
  const [, unit] = example.split("/");
  return Flag.String(flag).pipe(
    Flag.filterMap(
      (text) => {
        const count = Number(new RegExp(`^(\\d+)/${unit}$`).exec(text)?.[1]);
        const limit = text === "none" ? null : count;
        return Schema.is(KeyBounds.fields[field])(limit) ? Option.some(limit) : Option.none();
      },
      () => `Expected a limit such as ${example}, or none`,
    ),
    Flag.withMetavar(`${example}|none`),
    Flag.withDescription(description),
    Flag.optional,
  );
};

const boundFlags = {
  ...Record.map(keyLimits, limitFlag),
  origins: Flag.String(flagNames.origins).pipe(
    Flag.map((text) => (text === "" ? [] : text.split(","))),
    Flag.filter(
      Schema.is(KeyBounds.fields.origins),
      () => "Expected a comma-separated list of origins such as https://shop.example",
    ),
    Flag.withMetavar("https://shop.example"),
    Flag.withDescription(
      `${Schema.resolveAnnotations(KeyBounds.fields.origins)?.description}, separated by commas`,
    ),
    Flag.optional,
  ),
};

const newExpiresFlag = expiresFlag(null, "When the new key expires (default: never)");

const titleOf = (id: string, { id: chatbot, name }: Chatbot) =>
  `The key prl_${id}_… for chatbot ${chatbot} "${name}"`;

const toAttribute = (text: string) => text.replace(/&/g, "&amp;").replace(/"/g, "&quot;");

/**
 * Prints only a new key, or the HTML line of its widget, to standard output, so that a shell can store the output.
 */
const printKey = Effect.fnUntraced(function* (
  chatbot: Chatbot,
  { id, key, signingSecret }: CreatedKey,
  more: Readonly<Record<string, unknown>>,
  output = Redacted.value(key),
) {
  const text = Redacted.value(key);
  const secret = signingSecret && Redacted.value(signingSecret);
  const isKey = output === text;
  // Printed first: if writing the key fails, the operator knows which key to revoke.
  if (isKey) yield* Console.error(`${titleOf(id, chatbot)} is shown only once.`);
  yield* print({ id, key: text, chatbot: chatbot.id, ...more, signingSecret: secret }, output);
  // Only a backend that signs tokens needs the secret.
  if (secret !== null && (isKey || more["anonymous"] === false))
    yield* Console.error(`The signing secret for key ${id}'s visitor tokens: ${secret}`);
});

const create = makeCommand("create", {
  description: "Create a key for a chatbot and print it",
  examples: {
    "parley key create --name 'web shop'": "Create a key that can read, write and ask",
    "parley key create --chatbot Helpdesk --scopes read --expires 30d":
      "Create a key that can only read, and that expires in 30 days",
    "parley key create --visitors --visitor-rate 10/min":
      "Create a key that also signs visitor tokens",
    "parley key create --widget --origins https://shop.example --visitor-rate 10/min --budget 200000/day":
      "Create a key for a widget that anyone on the page can use",
    "KEY=$(parley key create)": "Store the key in a shell variable",
  },
  flags: {
    chatbot: chatbotFlag,
    name: nameFlag,
    scopes: scopesFlag.pipe(Flag.withDefault<ReadonlyArray<Scope>>(defaultScopes)),
    expires: newExpiresFlag,
    visitors: switchFlag(flagNames.visitors, "Let the key sign visitor tokens"),
    widget: switchFlag(
      "widget",
      "Create a key for a widget on pages at --origins, and print the HTML line that adds it",
    ),
    tokenUrl: textFlag(
      "token-url",
      "URL at which your own server signs visitor tokens (default: Parley gives them to anyone)",
    ),
    url: Flag.String("url").pipe(
      Flag.filter(
        (text) => /^https?:\/\/[^?#\s]+$/.test(text) && URL.canParse(text),
        () => "Expected an http or https URL without a query, such as https://chat.example",
      ),
      Flag.optional,
      Flag.withDescription("URL at which browsers reach Parley, for the HTML line"),
    ),
    bounds: boundFlags,
  },
  run: Effect.fnUntraced(function* ({ bounds, chatbot: selector, expires, name, scopes, ...more }) {
    const { tokenUrl, url, widget } = more;
    if (widget && Option.getOrElse(bounds.origins, () => []).length === 0)
      return yield* usageError(
        "A widget needs --origins.",
        "only pages at these origins can show it.",
      );
    if (!widget && (Option.isSome(tokenUrl) || Option.isSome(url)))
      return yield* usageError(
        "--token-url and --url have no effect without --widget.",
        "they only change the HTML line that --widget prints.",
      );
    const { chatbot } = yield* chatbotOf(selector);
    const administration = yield* Administration;
    const expiresAt = expires && (yield* expires);
    const anonymous = widget && Option.isNone(tokenUrl);
    const visitors = more.visitors || widget;
    const defaults = visitors ? visitorDefaults : {};
    const keyBounds = boundsOf({ ...defaults, ...valuesOf(bounds), anonymous });
    const key = { name: Option.getOrNull(name), scopes, expiresAt, ...keyBounds };
    const newKey = { ...key, visitors };
    const createdKey = yield* administration.createKey(chatbot.id, newKey, yield* actor);
    if (!widget) return yield* printKey(chatbot, createdKey, key);
    const { port } = yield* Settings;
    const base = Option.getOrElse(url, () => `http://127.0.0.1:${port}`).replace(/\/+$/, "");
    const backend = Option.map(tokenUrl, (text) => ` data-token-url="${toAttribute(text)}"`);
    const script = `<script src="${toAttribute(base)}/widget.js" data-key="${createdKey.id}"${Option.getOrElse(backend, () => "")} async></script>`;
    yield* printKey(chatbot, createdKey, { ...key, script }, script);
  }, onDatabaseWithFlags),
});

const list = makeCommand("list", {
  description: "List the keys, including expired and revoked ones",
  examples: { "parley key list": "List the keys of all chatbots" },
  flags: { chatbot: textFlag("chatbot", "Only keys of this chatbot (id or name)") },
  run: Effect.fnUntraced(function* ({ chatbot: selector }) {
    const chatbots = yield* Option.isSome(selector)
      ? Effect.map(chatbotOf(selector), (chatbot) => [chatbot])
      : Administration.use((administration) => administration.chatbots);
    const now = yield* databaseNow;
    const documents = chatbots.flatMap(({ chatbot, keys }) =>
      keys.map(({ hash: _, signingSecret, ...key }) => ({
        ...key,
        visitors: signingSecret !== null,
        chatbot: chatbot.id,
        chatbotName: chatbot.name,
        state: keyState(key, now.getTime()),
      })),
    );
    yield* print(
      documents,
      table(documents, [
        ...(["id", "chatbot", "chatbotName", "name", "state", "scopes"] as const),
        "visitors",
        ...Struct.keys(keyLimits),
        ...(["createdAt", "expiresAt", "lastUsedAt"] as const),
      ]),
    );
  }, onDatabase),
});

const set = makeCommand("set", {
  description: "Change a key's fields; servers apply the change within a second",
  examples: {
    "parley key set prl_QSCmEIhoudPA --expires 2030-01-31": "Change the expiry",
    "parley key set prl_QSCmEIhoudPA --rate 60/min":
      "Limit it to one request per second on average",
  },
  flags: {
    id: idArgument,
    expires: expiresFlag(undefined, "When the key expires; 0s: now"),
    change: { name: newNameFlag, scopes: Flag.optional(scopesFlag), ...boundFlags },
  },
  run: Effect.fnUntraced(function* ({ id, change, expires }) {
    const expiresAt = expires && (yield* expires);
    const fields = { ...valuesOf(change), ...(expiresAt !== undefined && { expiresAt }) };
    if (Object.keys(fields).length === 0) return yield* noChanges;
    const chatbot = yield* ownerOf(id);
    const administration = yield* Administration;
    yield* administration.changeKey(chatbot.id, id, fields, yield* actor);
    yield* print({ id, chatbot: chatbot.id, ...fields }, `${titleOf(id, chatbot)} was changed.`);
  }, onDatabaseWithFlags),
});

const revoke = makeCommand("revoke", {
  description: "Permanently revoke a key; servers reject it within a second",
  examples: {
    "parley key revoke prl_QSCmEIhoudPA": "Revoke a key by its id",
    "parley key revoke - < leaked.txt": "Revoke a leaked key",
  },
  flags: { id: idArgument },
  run: Effect.fnUntraced(function* ({ id }) {
    const chatbot = yield* ownerOf(id);
    const administration = yield* Administration;
    yield* administration.revokeKey(chatbot.id, id, yield* actor);
    yield* print({ id, chatbot: chatbot.id }, `${titleOf(id, chatbot)} was permanently revoked.`);
  }, onDatabase),
});

const rotate = makeCommand("rotate", {
  description: "Create a key to replace another; the old key stays valid for a while",
  examples: {
    "parley key rotate prl_QSCmEIhoudPA": "Let the old key expire in an hour",
    "parley key rotate prl_QSCmEIhoudPA --keep-for 7d": "Leave a week to switch over",
  },
  flags: {
    id: idArgument,
    keepFor: Flag.String("keep-for").pipe(
      Flag.filterMap(durationOf, () => "Expected a duration such as 90s, 30m, 24h, 7d or 2w"),
      Flag.withMetavar("24h"),
      Flag.withDefault(3_600_000),
      Flag.withDescription("How long the old key stays valid (default: 1h)"),
    ),
    expires: newExpiresFlag,
  },
  run: Effect.fnUntraced(function* ({ expires, id, keepFor }) {
    const chatbot = yield* ownerOf(id);
    const administration = yield* Administration;
    const expiresAt = expires && (yield* expires);
    const rotation = { keepFor: Duration.millis(keepFor), expiresAt };
    const createdKey = yield* administration.rotateKey(chatbot.id, id, rotation, yield* actor);
    const { expiresAt: oldExpiry, name, scopes } = createdKey.replacedKey;
    const replaces = { id, expiresAt: oldExpiry };
    yield* printKey(chatbot, createdKey, { name, scopes, expiresAt, replaces });
    yield* Console.error(`${titleOf(id, chatbot)} expires at ${oldExpiry.toISOString()}.`);
  }, onDatabase),
});

const generate = makeCommand("generate", {
  description: "Generate an API key without storing it",
  examples: { "parley key generate": "Generate a key for the provisioning file" },
  run: Effect.fnUntraced(function* () {
    const key = Redacted.value(yield* generateKey);
    yield* print({ key }, key);
  }),
});

const token = makeCommand("token", {
  description: "Print a visitor token, which gives access only to chats with its userRef",
  examples: {
    "parley key token --user-ref user-7 --expires 15m":
      "Sign it with the only key that signs visitor tokens",
    "parley key token prl_QSCmEIhoudPA --user-ref user-7 --scopes read": "Allow only reading",
  },
  flags: {
    id: Argument.optional(idArgument),
    userRef: Flag.String("user-ref").pipe(
      Flag.filter(Schema.is(UserRef), () => "Expected up to 60 characters"),
      Flag.filter(
        (userRef) => userRef !== "",
        () => "Expected at least one character",
      ),
      Flag.withDescription("The visitor's userRef"),
    ),
    expires: expiresFlag(undefined, "When the token expires (at most 24h; default: 1h)").pipe(
      Flag.withMetavar("date|15m"),
    ),
    scopes: scopesFlag.pipe(
      Flag.withDescription(
        "Comma-separated scopes (default: the key's but post, which no visitor has)",
      ),
      Flag.optional,
    ),
  },
  run: Effect.fnUntraced(function* ({ expires, id, scopes, userRef }) {
    // Computed before the current time is read, so that `--expires 24h` is not over the maximum.
    const expiresAt = expires && (yield* expires);
    const all = yield* Administration.use((administration) => administration.chatbots);
    const now = yield* databaseNow;
    const signers = all.flatMap(({ chatbot, keys }) =>
      keys.flatMap((key) =>
        keyState(key, now.getTime()) === "live" && key.signingSecret !== null
          ? { chatbot, id: key.id, signingSecret: key.signingSecret }
          : [],
      ),
    );
    const wantedId = Option.getOrNull(id);
    const [signer, ...others] = signers.filter((key) => wantedId === null || key.id === wantedId);
    if (signer === undefined || others.length > 0) {
      const unusable =
        wantedId === null
          ? "No live key can sign visitor tokens."
          : `The key prl_${wantedId}_… is not live, or cannot sign visitor tokens.`;
      const several =
        'More than one key can sign visitor tokens: name one, as in "parley key token <id>".';
      return yield* new CommandFailed({
        message: signer === undefined ? unusable : several,
        hint: '"parley key list" lists all keys, and "parley key create --visitors" creates one.',
      });
    }
    // Loaded only here, because most commands need nothing of HTTP.
    const { longestLife, signVisitorToken } = yield* Effect.promise(() => import("@parley/http"));
    const expiry = expiresAt === undefined ? new Date(now.getTime() + 3_600_000) : expiresAt;
    if (expiry === null || expiry.getTime() - now.getTime() > 1000 * longestLife)
      return yield* usageError(
        `A visitor token must expire within 24 hours; this one ${expiry === null ? "never expires" : `would expire at ${expiry.toISOString()}`}.`,
        "the maximum is --expires 24h.",
      );
    // A visitor token gives access to the user's chats, so the audit log records it. The entry contains only a digest
    // of the userRef, because erasing the user does not change the log.
    const person = yield* Administration.use((administration) => administration.person(userRef));
    yield* recordRead(signer.chatbot.id, `${signer.id}: token for ${exportDetail(person)}`);
    const token = yield* signVisitorToken({
      ...signer,
      keyId: signer.id,
      visitor: userRef,
      expiresAt: expiry,
      ...valuesOf({ scopes }),
    });
    yield* print({ token, userRef, key: signer.id, expiresAt: expiry }, token);
    yield* Console.error(`The visitor token expires at ${expiry.toISOString()}.`);
  }, onDatabase),
});

export const key = Command.make("key").pipe(
  withHelp({
    description: "Manage API keys",
    examples: {
      "parley key list": "List all keys and their states",
      "parley key rotate --help": "Show how to replace one",
    },
  }),
  Command.withSubcommands([create, list, set, revoke, rotate, generate, token]),
);
