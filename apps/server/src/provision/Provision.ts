/**
 * Makes the chatbots of the store match a provisioning file. Applying it again changes nothing.
 */
import {
  ChatbotRegistry,
  fieldChanges,
  type FieldChange,
  type RegisteredChatbot,
} from "@parley/core";
import { Effect } from "effect";
import { Hex } from "effect/encoding";
import {
  ProvisionInvalid,
  readProvisionFile,
  type DeclaredChatbot,
  type DeclaredKey,
} from "./ProvisionFile.ts";

type Registry = typeof ChatbotRegistry.Service;

/** One change of the store. */
export interface Planned {
  readonly title: string;
  /** The fields of a known chatbot or key that change. */
  readonly fields: ReadonlyArray<FieldChange>;
  readonly apply: (
    registry: Registry,
    actor: string,
  ) => Effect.Effect<
    unknown,
    Effect.Error<ReturnType<Registry["create" | "change" | "addKey" | "changeKey"]>>
  >;
}

/** The changes that make the store match the file; all of them are checked first. */
export const plan = Effect.fnUntraced(function* (
  path: string,
  environment: Readonly<Record<string, string | undefined>>,
) {
  const declared = yield* readProvisionFile(path, environment);
  const registered = yield* ChatbotRegistry.use(({ list }) => list);
  const changes: Array<Planned> = [];
  for (const chatbot of declared) {
    const known = registered.find(
      (one) =>
        one.chatbot.workspaceName === chatbot.workspaceName && one.chatbot.name === chatbot.name,
    );
    for (const key of chatbot.keys) {
      const wrong = conflict(key, known, registered);
      if (wrong !== null) return yield* new ProvisionInvalid({ message: `${path}: ${wrong}` });
    }
    changes.push(...(known === undefined ? [creation(chatbot)] : changesOf(chatbot, known)));
  }
  return changes;
});

/** Plans and applies, and returns the changes. Servers that start together with one file apply it once. */
export const provision = Effect.fnUntraced(function* (
  path: string,
  environment: Readonly<Record<string, string | undefined>>,
  actor: string,
) {
  const registry = yield* ChatbotRegistry;
  const done: Array<Planned> = [];
  return yield* plan(path, environment).pipe(
    Effect.flatMap(
      Effect.forEach((one) => Effect.map(one.apply(registry, actor), () => done.push(one)), {
        discard: true,
      }),
    ),
    Effect.as(done),
    // Another process has changed what the plan was made from.
    Effect.retry({
      while: ({ _tag }) => _tag !== "ProvisionInvalid" && _tag !== "StorageUnavailable",
      times: 10,
    }),
  );
});

/** Why the chatbot cannot have the declared key; `null` if it can. */
const conflict = (
  { hash, id }: DeclaredKey,
  chatbot: RegisteredChatbot | undefined,
  all: ReadonlyArray<RegisteredChatbot>,
): string | null => {
  const owner = all.find(({ keys }) => keys.some((key) => key.id === id));
  if (owner === undefined) return null;
  if (owner !== chatbot) {
    const { name, workspaceName } = owner.chatbot;
    return `the key prl_${id}_… belongs to another chatbot, "${name}" of workspace "${workspaceName}".`;
  }
  const known = owner.keys.find((key) => key.id === id)!;
  return Hex.encode(known.hash) === Hex.encode(hash)
    ? null
    : `the key prl_${id}_… is known with another secret.`;
};

const titleOf = ({ name, workspaceName }: DeclaredChatbot) =>
  `chatbot "${name}" of workspace "${workspaceName}"`;

const newKey = (key: DeclaredKey) => ({ expiresAt: null, ratePerMinute: null, ...key });

const creation = (chatbot: DeclaredChatbot): Planned => {
  const keys = chatbot.keys.map(({ id }) => `prl_${id}_…`).join(", ");
  return {
    title: `create ${titleOf(chatbot)}${keys === "" ? "" : ` with the keys ${keys}`}`,
    fields: [],
    apply: (registry, actor) =>
      registry.create({ ...chatbot, keys: chatbot.keys.map(newKey) }, actor),
  };
};

const changesOf = (wanted: DeclaredChatbot, known: RegisteredChatbot): ReadonlyArray<Planned> => {
  const { keys, ...declared } = wanted;
  const { id } = known.chatbot;
  const changes: Array<Planned> = [];
  const fields = fieldChanges(known.chatbot, declared);
  if (fields.length > 0) {
    changes.push({
      title: `change ${titleOf(wanted)}`,
      fields,
      apply: (registry, actor) => registry.change(id, declared, actor),
    });
  }
  for (const key of keys) {
    const { hash: _, id: keyId, ...change } = key;
    const title = `key prl_${keyId}_… of ${titleOf(wanted)}`;
    const kept = known.keys.find((one) => one.id === keyId);
    if (kept === undefined) {
      changes.push({
        title: `add ${title}`,
        fields: [],
        apply: (registry, actor) => registry.addKey(id, newKey(key), actor),
      });
      continue;
    }
    // A declaration that still names a revoked key must not revive it.
    const fields = kept.revokedAt === null ? fieldChanges(kept, change) : [];
    if (fields.length === 0) continue;
    changes.push({
      title: `change ${title}`,
      fields,
      apply: (registry, actor) => registry.changeKey(id, keyId, change, actor),
    });
  }
  return changes;
};
