/**
 * The file that declares chatbots and their keys.
 */
import {
  ChatbotSettings,
  defaultSettings,
  hashKey,
  keyId,
  Name,
  scopes,
  Text,
  type KeyRecord,
  type NewChatbot,
} from "@parley/core";
import { Data, DateTime, Effect, FileSystem, Schema, Struct } from "effect";

export class ProvisionInvalid extends Data.TaggedError("ProvisionInvalid")<{
  readonly message: string;
}> {}

const Key = Schema.Struct({
  key: Schema.String.annotate({
    description: "The key's text, or ${NAME} for the value of an environment variable",
  }),
  scopes: Schema.Array(Schema.Literals(scopes)),
  name: Schema.optionalKey(Text),
  expiresAt: Schema.optionalKey(Schema.DateTimeUtcFromString),
});

const { helloMessage, ...settings } = ChatbotSettings.fields;

const ChatbotFile = Schema.Struct({
  workspace: Name,
  name: Name,
  description: Schema.optionalKey(Text),
  helloMessage: Schema.optionalKey(helloMessage),
  ...Struct.map(settings, Schema.optionalKey),
  keys: Schema.optionalKey(Schema.Array(Key)),
});

export const ProvisionFile = Schema.Struct({
  $schema: Schema.optionalKey(Schema.String),
  chatbots: Schema.Array(ChatbotFile),
});

/** What the file declares; what it does not name of a chatbot is as by default. */
export const readProvisionFile = Effect.fnUntraced(function* (
  path: string,
  environment: Readonly<Record<string, string | undefined>>,
) {
  const invalid = (reason: string) => new ProvisionInvalid({ message: `${path}: ${reason}` });
  const files = yield* FileSystem.FileSystem;
  const text = yield* Effect.mapError(files.readFileString(path), () => invalid("cannot be read."));
  const { chatbots } = yield* Effect.mapError(
    Schema.decodeUnknownEffect(Schema.fromJsonString(ProvisionFile), { onExcessProperty: "error" })(
      text,
    ),
    (error) => invalid(error.message.replaceAll("\n", " ")),
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
    const record: KeyRecord = {
      id,
      hash: yield* hashKey(value),
      name: key.name ?? null,
      scopes: key.scopes,
      expiresAt: key.expiresAt === undefined ? null : DateTime.toDateUtc(key.expiresAt),
    };
    return record;
  });

  const declared = yield* Effect.forEach(
    chatbots,
    Effect.fnUntraced(function* ({ description = "", keys = [], name, workspace, ...settings }) {
      const chatbot: NewChatbot = {
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

const repeated = (items: ReadonlyArray<string>) =>
  items.find((item, at) => items.indexOf(item) !== at);
