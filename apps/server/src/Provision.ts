/**
 * The file that declares chatbots and their keys, applied at every start. Applying it again changes
 * nothing.
 */
import {
  ChatbotRegistry,
  hashKey,
  keyId,
  scopes,
  Text,
  type ChatbotDeclaration,
  type KeyRecord,
} from "@parley/core";
import { Data, DateTime, Effect, FileSystem, Schema } from "effect";

export class ProvisionInvalid extends Data.TaggedError("ProvisionInvalid")<{
  readonly message: string;
}> {}

/** A key in a provisioning file; its text may be `${NAME}` of the environment. */
const Key = Schema.Struct({
  key: Schema.String,
  scopes: Schema.Array(Schema.Literals(scopes)),
  name: Schema.optionalKey(Text),
  expiresAt: Schema.optionalKey(Schema.DateTimeUtcFromString),
});

/** What an unset moderation error message says. */
export const defaultModerationErrorMessage =
  "This question cannot be answered, because it violates the usage policy.";

const Name = Text.check(Schema.isNonEmpty(), Schema.isMaxCodePoints(255));

const ChatbotFile = Schema.Struct({
  workspace: Name,
  name: Name,
  description: Schema.optionalKey(Text),
  helloMessage: Schema.optionalKey(Schema.NullOr(Text)),
  moderationErrorMessage: Schema.optionalKey(Text),
  instructions: Schema.optionalKey(Schema.NullOr(Text)),
  keys: Schema.optionalKey(Schema.Array(Key)),
});

export const ProvisionFile = Schema.Struct({ chatbots: Schema.Array(ChatbotFile) });

/** Reads the file and makes the store's chatbots what it says. */
export const provision = Effect.fnUntraced(function* (
  path: string,
  environment: Readonly<Record<string, string | undefined>>,
) {
  const invalid = (reason: string) =>
    new ProvisionInvalid({ message: `PARLEY_PROVISION ${path}: ${reason}` });
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

  const declarations = yield* Effect.forEach(
    chatbots,
    Effect.fnUntraced(function* (chatbot) {
      const declaration: ChatbotDeclaration = {
        workspaceName: chatbot.workspace,
        name: chatbot.name,
        description: chatbot.description ?? "",
        settings: {
          helloMessage: chatbot.helloMessage ?? null,
          moderationErrorMessage: chatbot.moderationErrorMessage ?? defaultModerationErrorMessage,
          instructions: chatbot.instructions ?? null,
        },
        keys: yield* Effect.forEach(chatbot.keys ?? [], keyRecord),
      };
      return declaration;
    }),
  );
  // Everything is checked before anything is written.
  const names = declarations.map(({ name, workspaceName }) =>
    JSON.stringify([workspaceName, name]),
  );
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined) return yield* invalid(`the chatbot ${twice} is declared twice.`);
  const keys = declarations.flatMap((declaration) => declaration.keys.map(({ id }) => id));
  const repeated = keys.find((id, at) => keys.indexOf(id) !== at);
  if (repeated !== undefined) return yield* invalid(`the key prl_${repeated}_… is named twice.`);
  const registry = yield* ChatbotRegistry;
  yield* Effect.forEach(
    declarations,
    (declaration) =>
      Effect.catchTag(registry.save(declaration, "provisioning"), "KeyTaken", ({ keyId }) =>
        Effect.fail(invalid(`the key prl_${keyId}_… belongs to another chatbot.`)),
      ),
    { discard: true },
  );
});
