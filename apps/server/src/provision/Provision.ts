/**
 * Makes the store's chatbots match a provisioning file. Applying the same file again changes nothing.
 */
import { Administration, generateKey, keyRecord, plainKey, visitorDefaults } from "@parley/core";
import {
  ChatbotRegistry,
  fieldChanges,
  type FieldChange,
  type RegisteredChatbot,
} from "@parley/core/ports";
import { Effect, Redacted } from "effect";
import { Hex } from "effect/encoding";
import type { Variables } from "../Variables.ts";
import { ProvisionInvalid, readProvisionFile, type DeclaredKey } from "./ProvisionFile.ts";

type Operations = typeof Administration.Service;

/** One change to the store. */
interface PlannedChange {
  readonly title: string;
  /** The changed fields of an existing chatbot or key; empty if the change creates one. */
  readonly fields: ReadonlyArray<FieldChange>;
  readonly apply: Effect.Effect<
    unknown,
    Effect.Error<ReturnType<Operations["createChatbot" | "changeChatbot" | "addKey" | "changeKey"]>>
  >;
}

/** Plans and checks all changes that make the store match the file. The actor is recorded as their author. */
export const plan = Effect.fnUntraced(function* (
  path: string,
  environment: Variables,
  actor: string,
  /** Whether the server is starting: an expired key then causes only a warning. */
  isStart = false,
) {
  const declarations = yield* readProvisionFile(path, environment);
  const administration = yield* Administration;
  const registeredChatbots = yield* administration.chatbots;
  const now = yield* ChatbotRegistry.use((registry) => registry.now);
  const invalid = (reason: string) => new ProvisionInvalid({ message: `${path}: ${reason}` });
  const changes: Array<PlannedChange> = [];
  for (const { keys, ...declaration } of declarations) {
    const current = registeredChatbots.find(
      ({ chatbot }) =>
        chatbot.workspaceName === declaration.workspaceName && chatbot.name === declaration.name,
    );
    for (const key of keys) {
      const problem = conflict(key, current, registeredChatbots);
      if (problem !== null) return yield* invalid(problem);
      const currentKey = current?.keys.find(({ id }) => id === key.id);
      yield* Effect.mapError(administration.checkKey(key, currentKey), ({ message }) =>
        invalid(`the key prl_${key.id}_…: ${message}`),
      );
      const expiry = key.expiresAt?.getTime() ?? Infinity;
      if (expiry > now.getTime() || expiry === currentKey?.expiresAt?.getTime()) continue;
      const mistake = invalid(`the expiresAt of the key prl_${key.id}_… is in the past.`);
      if (!isStart) return yield* mistake;
      yield* Effect.logWarning(mistake.message);
    }
    const title = `chatbot "${declaration.name}" in workspace "${declaration.workspaceName}"`;
    if (current === undefined) {
      const ids = keys.map(({ id }) => `prl_${id}_…`).join(", ");
      const chatbot = { ...declaration, keys: keys.map(newKey) };
      const apply = administration.createChatbot(chatbot, actor);
      const withKeys = ids === "" ? "" : ` with the ${keys.length === 1 ? "key" : "keys"} ${ids}`;
      changes.push({ title: `create ${title}${withKeys}`, fields: [], apply });
      continue;
    }
    const { id } = current.chatbot;
    const fields = fieldChanges(current.chatbot, declaration);
    const apply = administration.changeChatbot(id, declaration, actor);
    if (fields.length > 0) changes.push({ title: `change ${title}`, fields, apply });
    for (const key of keys) {
      const { hash: _, id: keyId, ...change } = key;
      const keyTitle = `key prl_${keyId}_… for ${title}`;
      const currentKey = current.keys.find((key) => key.id === keyId);
      if (currentKey === undefined) {
        const apply = administration.addKey(id, newKey(key), actor);
        changes.push({ title: `add ${keyTitle}`, fields: [], apply });
        continue;
      }
      // A declaration that still names a revoked key must not revive it.
      const fields =
        currentKey.revokedAt === null ? fieldChanges(currentKey, change).map(withoutSecret) : [];
      const apply = administration.changeKey(id, keyId, change, actor);
      if (fields.length > 0) changes.push({ title: `change ${keyTitle}`, fields, apply });
    }
  }
  return changes;
});

/** Plans and applies the changes, and returns them. A file with which several servers start is applied only once. */
export const provision = Effect.fnUntraced(function* (...args: Parameters<typeof plan>) {
  const appliedChanges: Array<PlannedChange> = [];
  return yield* plan(...args).pipe(
    Effect.flatMap(
      Effect.forEach((change) => Effect.map(change.apply, () => appliedChanges.push(change)), {
        discard: true,
      }),
    ),
    Effect.as(appliedChanges),
    // Another process has changed the store since the plan was made.
    Effect.retry({
      while: ({ _tag }) => _tag !== "ProvisionInvalid" && _tag !== "StorageUnavailable",
      times: 10,
    }),
  );
});

const newKey = (key: DeclaredKey) => ({
  ...plainKey,
  ...(key.signingSecret != null && visitorDefaults),
  ...key,
});

/** Reports a changed signing secret as the file's field `visitors`, because changes are printed. */
const withoutSecret = (change: FieldChange): FieldChange =>
  change.field !== "signingSecret"
    ? change
    : { field: "visitors", before: change.before !== null, after: change.after !== null };

/** Returns why the chatbot cannot have the declared key, or `null` if it can. */
const conflict = (
  { hash, id }: DeclaredKey,
  chatbot: RegisteredChatbot | undefined,
  all: ReadonlyArray<RegisteredChatbot>,
): string | null => {
  const owner = all.find(({ keys }) => keys.some((key) => key.id === id));
  const ownKey = owner?.keys.find((key) => key.id === id);
  if (owner === undefined || ownKey === undefined) return null;
  if (owner !== chatbot) {
    const { name, workspaceName } = owner.chatbot;
    return `the key prl_${id}_… belongs to another chatbot, "${name}" in workspace "${workspaceName}".`;
  }
  return Hex.encode(ownKey.hash) === Hex.encode(hash)
    ? null
    : `the key prl_${id}_… already exists with a different secret.`;
};

/** Creates a chatbot and returns its key, which cannot be read again; returns `null` if the store has a chatbot. */
export const firstStart = Effect.gen(function* () {
  const administration = yield* Administration;
  if ((yield* administration.chatbots).length > 0) return null;
  const key = yield* generateKey;
  const firstKey = yield* keyRecord(Redacted.value(key), { name: "first key" });
  return yield* administration
    .createChatbot(
      {
        workspaceName: "Default workspace",
        name: "Parley",
        description: "Answers questions from its documents.",
        settings: { helloMessage: "Hello! What would you like to know?" },
        keys: [firstKey],
      },
      "first start",
    )
    .pipe(
      Effect.as(key),
      // Another process has created the chatbot in the meantime.
      Effect.catchTag("ChatbotTaken", () => Effect.succeed(null)),
    );
});
