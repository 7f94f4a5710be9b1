/**
 * The file that declares chatbots and their keys.
 */
import {
  ChatbotSettings,
  defaultSettings,
  hashKey,
  keyId,
  LongText,
  Name,
  PointInTime,
  problemsOf,
  Scopes,
  Text,
  type KeyRecord,
  type NewChatbot,
} from "@parley/core";
import { Data, DateTime, Effect, FileSystem, Option, Schema } from "effect";
import { isoTime, timeOf } from "../IsoTime.ts";

export class ProvisionInvalid extends Data.TaggedError("ProvisionInvalid")<{
  readonly message: string;
}> {}

const optional = <S extends Schema.Top>(schema: S, description: string) =>
  Schema.optionalKey(schema.annotate({ description }));

const Key = Schema.Struct({
  key: Schema.String.check(
    Schema.isPattern(
      /^(prl_[0-9A-Za-z]{12}_[0-9A-Za-z]{32}_[0-9A-Za-z]{6}|\$\{[A-Za-z_][A-Za-z0-9_]*\})$/u,
      { message: 'is neither a key nor ${NAME}; "parley key generate" makes a key' },
    ),
  ).annotate({
    description: "The key's text, or ${NAME} for the value of an environment variable",
  }),
  scopes: Scopes.annotate({
    description: "read: details and lists; write: create chats; ask: ask questions",
  }),
  name: optional(Text, "A name for your own overview"),
  expiresAt: Schema.optionalKey(
    Schema.String.check(
      Schema.makeFilter(
        (text) =>
          !isoTime.test(text) ||
          Option.exists(timeOf(text), Schema.is(PointInTime)) ||
          "is no point in time between 1970 and 9999",
      ),
      Schema.isPattern(isoTime, {
        message: "is no time in ISO 8601 with a zone, such as 2030-01-01T00:00:00Z",
      }),
    )
      .annotate({
        description:
          "Time in ISO 8601 from which on the key is refused; absent: never, or as it was changed elsewhere",
        examples: ["2030-01-01T00:00:00Z"],
      })
      .pipe(Schema.decodeTo(Schema.DateTimeUtcFromString)),
  ),
});

const { fields } = ChatbotSettings;

const settings = {
  helloMessage: optional(
    fields.helloMessage,
    "The first entry of each chat that is created by POST /chats; empty, or null, the default: none",
  ),
  moderationErrorMessage: optional(
    fields.moderationErrorMessage,
    "The answer to a flagged question; a sentence in English by default",
  ),
  instructions: optional(
    fields.instructions,
    "What a language model is told before the conversation; null by default: nothing",
  ),
  model: optional(
    fields.model,
    "The language model, by the name that its provider knows; null by default: PARLEY_LLM_MODEL",
  ),
  moderation: optional(
    fields.moderation,
    "Who judges questions; null by default: as PARLEY_MODERATION says",
  ),
  knowledge: optional(
    fields.knowledge,
    "A folder of documents below PARLEY_KNOWLEDGE_ROOT; null by default: PARLEY_KNOWLEDGE_DIR",
  ),
  retentionDays: optional(
    fields.retentionDays,
    "After how many days without an entry a chat is erased; null by default: never",
  ),
} satisfies Record<keyof ChatbotSettings, unknown>;

const ChatbotFile = Schema.Struct({
  workspace: Name.annotate({ description: "Name of the workspace" }),
  name: Name.annotate({
    description: "Name of the chatbot; workspace and name together identify it",
  }),
  description: optional(LongText, "Shown by the details endpoint; empty by default"),
  ...settings,
  keys: optional(Schema.Array(Key), "The API keys that open this chatbot"),
});

export const ProvisionFile = Schema.Struct({
  $schema: optional(Schema.String, "Where the schema of this file is, for editors"),
  chatbots: Schema.Array(ChatbotFile).annotate({
    description: "What is not named here stays in the store as it is",
  }),
}).annotate({
  title: "Provisioning file of Parley",
  description: "Chatbots and their API keys, for PARLEY_PROVISION and parley provision",
});

/** The file's JSON Schema, with no references. */
export const provisionSchema = () => {
  const { definitions, schema } = Schema.toJsonSchemaDocument(ProvisionFile, options);
  const whole = (_: string, value: unknown): unknown => {
    const reference = (value as { readonly $ref?: unknown } | null)?.$ref;
    return typeof reference === "string" ? definitions[reference.split("/").at(-1)!] : value;
  };
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    ...JSON.parse(JSON.stringify(schema, whole)),
  };
};

/** Without an expiry it ends when the store says, which is never for a new one. */
export interface DeclaredKey extends Omit<KeyRecord, "expiresAt"> {
  readonly expiresAt?: Date;
}

export interface DeclaredChatbot extends Omit<NewChatbot, "keys"> {
  readonly keys: ReadonlyArray<DeclaredKey>;
}

/** A misspelt field must not go unnoticed. */
const options = { onExcessProperty: "error", errors: "all" } as const;

/** What the file declares; what it does not name of a chatbot is as by default. */
export const readProvisionFile = Effect.fnUntraced(function* (
  path: string,
  environment: Readonly<Record<string, string | undefined>>,
) {
  const invalid = (reason: string) => new ProvisionInvalid({ message: `${path}: ${reason}` });
  const files = yield* FileSystem.FileSystem;
  const text = yield* Effect.mapError(files.readFileString(path), () => invalid("cannot be read."));
  const json = yield* Effect.mapError(parsed(text), (where) => invalid(`is no JSON${where}.`));
  const { chatbots } = yield* Effect.mapError(
    Schema.decodeUnknownEffect(ProvisionFile)(json, options),
    (error) => invalid(`${problemsOf(error)}.`),
  );

  const keyRecord = Effect.fnUntraced(function* (key: typeof Key.Type) {
    const variable = /^\$\{([A-Za-z_][A-Za-z0-9_]*)\}$/.exec(key.key)?.[1];
    const value = variable === undefined ? key.key : environment[variable];
    if (value === undefined) return yield* invalid(`\${${variable}} is not set.`);
    const id = keyId(value);
    if (id === null) {
      const which = variable === undefined ? "a key" : `\${${variable}}`;
      return yield* invalid(`${which} is not a valid key; "parley key generate" makes one.`);
    }
    const declared: DeclaredKey = {
      id,
      hash: yield* hashKey(value),
      name: key.name ?? null,
      scopes: key.scopes,
      ...(key.expiresAt !== undefined && { expiresAt: DateTime.toDateUtc(key.expiresAt) }),
    };
    return declared;
  });

  const declared = yield* Effect.forEach(
    chatbots,
    Effect.fnUntraced(function* ({ description = "", keys = [], name, workspace, ...settings }) {
      const chatbot: DeclaredChatbot = {
        workspaceName: workspace,
        name,
        description,
        settings: { ...defaultSettings, ...settings },
        keys: yield* Effect.forEach(keys, keyRecord),
      };
      return chatbot;
    }),
  );
  const names = declared.map(({ name, workspaceName }) => JSON.stringify([workspaceName, name]));
  const twice = repeated(names);
  if (twice !== undefined) return yield* invalid(`the chatbot ${twice} is declared twice.`);
  const key = repeated(declared.flatMap(({ keys }) => keys.map(({ id }) => id)));
  if (key !== undefined) return yield* invalid(`the key prl_${key}_… is named twice.`);
  return declared;
});

/** The JSON value, or where it ends to be one. What the parser says holds text of the file. */
const parsed = (text: string) =>
  Effect.try({
    try: (): unknown => JSON.parse(text),
    catch: (error) => {
      const place = /\(line \d+ column \d+\)/.exec(String(error));
      return place === null ? "" : ` ${place[0]}`;
    },
  });

const repeated = (items: ReadonlyArray<string>) =>
  items.find((item, at) => items.indexOf(item) !== at);
