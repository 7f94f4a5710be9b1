/**
 * The provisioning file, which declares chatbots and their keys.
 */
import {
  boundsOf,
  ChatbotSettings,
  defaultSettings,
  describeSchemaError,
  KeyBounds,
  keyId,
  keyState,
  LongText,
  Name,
  PointInTime,
  Scopes,
  signingSecretOf,
  Text,
  type KeyRecord,
} from "@parley/core";
import { hashKey, type RegisteredChatbot } from "@parley/core/ports";
import { Data, Effect, FileSystem, Option, Schema, SchemaTransformation, Struct } from "effect";
import { decodeUtf8, readVariable, type Variables } from "../Variables.ts";

export class ProvisionInvalid extends Data.TaggedError("ProvisionInvalid")<{
  readonly message: string;
}> {}

const isoTime = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/u;

/** Parses an ISO 8601 time with a time zone, or a date, which stands for the start of that day in UTC. */
export const timeOf = (text: string): Option.Option<Date> => {
  const [time, day] = [new Date(text), new Date(text.slice(0, 10))];
  const isValid = isoTime.test(text) && !Number.isNaN(time.getTime());
  // JavaScript reads 31 February as 3 March.
  return isValid && day.toJSON().startsWith(text.slice(0, 10)) ? Option.some(time) : Option.none();
};

const optional = <S extends Schema.Top>(schema: S, description: string) =>
  Schema.optionalKey(schema.annotate({ description }));

const Key = Schema.Struct({
  key: optional(
    Schema.String.check(
      Schema.isPattern(
        /^(prl_[0-9A-Za-z]{12}_[0-9A-Za-z]{32}_[0-9A-Za-z]{6}|\$\{[A-Za-z_][A-Za-z0-9_]*\})$/u,
        { message: 'is neither a key nor ${NAME}; "parley key generate" generates a key' },
      ),
    ),
    "The API key, or ${NAME} to read it from the environment variable NAME or from the file that NAME_FILE names",
  ),
  keyId: optional(
    Schema.String.check(Schema.isPattern(/^[0-9A-Za-z]{12}$/u)),
    "In place of key: the id of a key that parley provision --export wrote",
  ),
  keyHash: optional(
    Schema.String.check(Schema.isPattern(/^[0-9a-f]{64}$/u)),
    "With keyId: the SHA-256 hash of the whole key",
  ),
  signingSecret: Schema.optionalKey(
    KeyBounds.fields.signingSecret.annotate({
      description: "With keyId: what the key signs visitor tokens with; null: it signs none",
    }),
  ),
  scopes: Scopes.annotate({
    description:
      "read: read details and lists; write: create and rename chats; ask: ask questions and rate answers; delete: delete chats; post: post entries without a question",
  }),
  name: optional(Text, "Name, to tell keys apart"),
  expiresAt: Schema.String.check(
    Schema.makeFilter<string>(
      (text) =>
        Option.isSome(timeOf(text)) ||
        "is neither a date nor an ISO 8601 time with a time zone, such as 2030-01-01T00:00:00Z",
      { toJsonSchema: () => ({ pattern: isoTime.source }) },
    ),
  )
    .annotate({
      description: "When the key expires, in ISO 8601 format",
      examples: ["2030-01-01T00:00:00Z"],
    })
    .pipe(Schema.decodeTo(PointInTime, SchemaTransformation.dateFromString), Schema.optionalKey),
  ...Struct.map(Struct.omit(KeyBounds.fields, ["signingSecret"]), Schema.optionalKey),
  visitors: optional(Schema.Boolean, "Whether the key signs visitor tokens"),
});

const { fields } = ChatbotSettings;

const settings = {
  helloMessage: optional(
    fields.helloMessage,
    "The first entry of each chat that a client creates; null: none",
  ),
  moderationErrorMessage: optional(
    fields.moderationErrorMessage,
    "Answer to flagged questions; by default a sentence in English",
  ),
  instructions: optional(fields.instructions, "Instructions for the language model; null: none"),
  model: optional(fields.model, "The language model; null: PARLEY_LLM_MODEL"),
  moderation: optional(fields.moderation, "How questions are moderated; null: PARLEY_MODERATION"),
  knowledge: optional(
    fields.knowledge,
    "Subfolder of PARLEY_KNOWLEDGE_DIR to answer from; null: the whole folder",
  ),
  notFoundMessage: optional(
    fields.notFoundMessage,
    "Answer to a question that the documents do not answer; by default a sentence in English",
  ),
  sourceUrl: optional(
    fields.sourceUrl,
    "Address of a source, such as https://docs.example/{path}#{heading}; null: sources have no link",
  ),
  suggestedQuestions: optional(
    fields.suggestedQuestions,
    "Questions that pages suggest before the first one, up to six; none by default",
  ),
  retentionDays: optional(
    fields.retentionDays,
    "Erase a chat after this many days without an entry; null: never",
  ),
} satisfies Record<keyof ChatbotSettings, unknown>;

export const ProvisionFile = Schema.Struct({
  $schema: optional(Schema.String, "The address of this file's schema, for editors"),
  chatbots: Schema.Array(
    Schema.Struct({
      workspace: Name.annotate({ description: "Name of the workspace" }),
      name: Name.annotate({
        description: "Name of the chatbot, unique within the workspace",
      }),
      description: optional(
        LongText,
        "Returned by GET /details, and shown to people; empty by default",
      ),
      ...settings,
      keys: optional(
        Schema.Array(Key),
        "API keys of this chatbot. A limit that is null does not apply. For an existing key, absent fields other than name stay as they are",
      ),
    }),
  ).annotate({
    description: "Chatbots and keys that are not listed stay as they are",
  }),
}).annotate({
  title: "Parley provisioning file",
  description: "Chatbots and their API keys, for PARLEY_PROVISION and parley provision",
});

/** For a field that is absent here, an existing key keeps its value, and a new key takes the value in `plainKey`. */
export type DeclaredKey = Pick<KeyRecord, "id" | "hash" | "name" | "scopes"> & Partial<KeyRecord>;

/** Reads the chatbots that the file declares. Omitted settings and descriptions have their default values. */
export const readProvisionFile = Effect.fnUntraced(function* (
  path: string,
  environment: Variables,
) {
  const invalid = (reason: string) => new ProvisionInvalid({ message: `${path}: ${reason}` });
  const files = yield* FileSystem.FileSystem;
  const bytes = yield* Effect.mapError(files.readFile(path), () =>
    invalid("the file cannot be read."),
  );
  const text = yield* Effect.try({
    try: () => decodeUtf8(bytes),
    catch: () => invalid("the file is not UTF-8: save it in that encoding."),
  });
  const json = yield* Effect.try({
    try: (): unknown => JSON.parse(text),
    // The parser's message quotes the file, which may contain keys.
    catch: (error) =>
      invalid(
        `the file is not valid JSON${/ \(line \d+ column \d+\)/.exec(String(error))?.[0] ?? ""}.`,
      ),
  });
  const { chatbots } = yield* Effect.mapError(
    // Reports each misspelt field.
    Schema.decodeUnknownEffect(ProvisionFile)(json, { onExcessProperty: "error", errors: "all" }),
    (error) => invalid(`${describeSchemaError(error)}.`),
  );

  const declareKey = Effect.fnUntraced(function* ({
    key,
    keyHash,
    keyId: exportedId,
    name: ownName,
    signingSecret,
    visitors,
    ...rest
  }: typeof Key.Type) {
    const name = ownName ?? null;
    if (key === undefined) {
      if (exportedId === undefined || keyHash === undefined || visitors !== undefined)
        return yield* invalid("a key has either key, or keyId and keyHash without visitors.");
      const secret = signingSecret !== undefined && { signingSecret };
      return { ...rest, ...secret, id: exportedId, hash: fromHex(keyHash), name };
    }
    if ((exportedId ?? keyHash ?? signingSecret) !== undefined)
      return yield* invalid("a key with key has no keyId, keyHash or signingSecret.");
    const variable = /^\$\{(.*)\}$/.exec(key)?.[1];
    const text =
      variable === undefined
        ? key
        : yield* Effect.mapError(readVariable(environment, variable), ({ message }) =>
            invalid(message),
          );
    if (text === undefined) return yield* invalid(`${key} is not set.`);
    const id = keyId(text);
    if (id === null) {
      const which = variable === undefined ? "one of the keys" : key;
      return yield* invalid(`${which} is not a valid key; "parley key generate" generates one.`);
    }
    const signingFields = visitors !== undefined && {
      signingSecret: visitors ? yield* signingSecretOf(text) : null,
    };
    return { ...rest, id, hash: yield* hashKey(text), name, ...signingFields };
  });

  const declarations = yield* Effect.forEach(
    chatbots,
    Effect.fnUntraced(function* ({ description = "", keys = [], name, workspace, ...settings }) {
      return {
        workspaceName: workspace,
        name,
        description,
        settings: { ...defaultSettings, ...settings },
        keys: yield* Effect.forEach(keys, declareKey),
      };
    }),
  );
  const names = declarations.map(
    ({ name, workspaceName }) =>
      `${JSON.stringify(name)} in workspace ${JSON.stringify(workspaceName)}`,
  );
  const repeatedName = findRepeated(names);
  if (repeatedName !== undefined)
    return yield* invalid(`the chatbot ${repeatedName} is declared twice.`);
  const key = findRepeated(declarations.flatMap(({ keys }) => keys.map(({ id }) => id)));
  if (key !== undefined) return yield* invalid(`the key prl_${key}_… is declared twice.`);
  return declarations;
});

const fromHex = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text, "hex"));

/** Returns the declarations of registered chatbots and of their live keys, which another store can apply. */
export const toProvisionFile = (
  registeredChatbots: ReadonlyArray<RegisteredChatbot>,
  now: Date,
): typeof ProvisionFile.Encoded => ({
  chatbots: registeredChatbots.map(({ chatbot, keys }) => ({
    workspace: chatbot.workspaceName,
    name: chatbot.name,
    description: chatbot.description,
    ...chatbot.settings,
    keys: keys
      .filter((key) => keyState(key, now.getTime()) === "live")
      .map(({ expiresAt, hash, id, name, scopes, ...key }) => ({
        keyId: id,
        keyHash: Buffer.from(hash).toString("hex"),
        scopes,
        ...(name !== null && { name }),
        ...(expiresAt !== null && { expiresAt: expiresAt.toJSON() }),
        ...boundsOf(key),
      })),
  })),
});

const findRepeated = (items: ReadonlyArray<string>) =>
  items.find((item, at) => items.indexOf(item) !== at);
