/**
 * Makes the store's chatbots what a file declares. Applying it again changes nothing.
 */
import {
  ChatbotRegistry,
  fieldChanges,
  type ChatbotChange,
  type FieldChange,
  type KeyChange,
  type KeyRecord,
  type NewChatbot,
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

/** One change of the store. */
export type Step =
  | { readonly _tag: "Create"; readonly chatbot: NewChatbot }
  | { readonly _tag: "Change"; readonly id: number; readonly change: ChatbotChange }
  | { readonly _tag: "AddKey"; readonly id: number; readonly key: KeyRecord }
  | {
      readonly _tag: "ChangeKey";
      readonly id: number;
      readonly keyId: string;
      readonly change: KeyChange;
    };

/** A change, and what it is called. */
export interface Planned {
  readonly title: string;
  /** What changes of a chatbot or key that is there. */
  readonly fields: ReadonlyArray<FieldChange>;
  readonly step: Step;
}

/** What must be changed so that the store is what the file says; everything is checked first. */
export const planned = Effect.fnUntraced(function* (
  path: string,
  environment: Readonly<Record<string, string | undefined>>,
) {
  const declared = yield* readProvisionFile(path, environment);
  const registry = yield* ChatbotRegistry;
  const registered = yield* registry.list;
  const plan: Array<Planned> = [];
  for (const chatbot of declared) {
    const known = registered.find(
      (one) =>
        one.chatbot.workspaceName === chatbot.workspaceName && one.chatbot.name === chatbot.name,
    );
    for (const key of chatbot.keys) {
      const wrong = conflict(key, known, registered);
      if (wrong !== null) return yield* new ProvisionInvalid({ message: `${path}: ${wrong}` });
    }
    plan.push(...stepsTo(chatbot, known));
  }
  return plan;
});

/** Plans and carries out, and gives what it did; servers that start together with one file do it once. */
export const provision = Effect.fnUntraced(function* (
  path: string,
  environment: Readonly<Record<string, string | undefined>>,
  actor: string,
) {
  const registry = yield* ChatbotRegistry;
  const carryOut = Effect.fnUntraced(function* (step: Step) {
    switch (step._tag) {
      case "Create":
        return yield* Effect.asVoid(registry.create(step.chatbot, actor));
      case "Change":
        return yield* Effect.asVoid(registry.change(step.id, step.change, actor));
      case "AddKey":
        return yield* registry.addKey(step.id, step.key, actor);
      case "ChangeKey":
        return yield* registry.changeKey(step.id, step.keyId, step.change, actor);
    }
  });
  const done: Array<Planned> = [];
  return yield* planned(path, environment).pipe(
    Effect.flatMap((plan) =>
      Effect.forEach(plan, (one) => Effect.map(carryOut(one.step), () => done.push(one)), {
        discard: true,
      }),
    ),
    Effect.as(done),
    // Another process changed what the plan was made from.
    Effect.retry({
      while: ({ _tag }) => _tag !== "ProvisionInvalid" && _tag !== "StorageUnavailable",
      times: 10,
    }),
  );
});

/** Why a declared key cannot be the chatbot's; `null` when it can. */
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

const newKey = (key: DeclaredKey): KeyRecord => ({ expiresAt: null, ...key });

const stepsTo = (
  wanted: DeclaredChatbot,
  known: RegisteredChatbot | undefined,
): ReadonlyArray<Planned> => {
  const { keys, ...declared } = wanted;
  const title = `chatbot "${wanted.name}" of workspace "${wanted.workspaceName}"`;
  if (known === undefined) {
    const named = keys.map(({ id }) => `prl_${id}_…`).join(", ");
    return [
      {
        title: `create ${title}${named === "" ? "" : ` with the keys ${named}`}`,
        fields: [],
        step: { _tag: "Create", chatbot: { ...declared, keys: keys.map(newKey) } },
      },
    ];
  }
  const { id } = known.chatbot;
  const steps: Array<Planned> = [];
  const fields = fieldChanges(known.chatbot, declared);
  if (fields.length > 0) {
    steps.push({
      title: `change ${title}`,
      fields,
      step: { _tag: "Change", id, change: declared },
    });
  }
  for (const key of keys) {
    const { hash: _, id: __, ...change } = key;
    const kept = known.keys.find((one) => one.id === key.id);
    const called = `key prl_${key.id}_… of ${title}`;
    if (kept === undefined) {
      steps.push({
        title: `add ${called}`,
        fields: [],
        step: { _tag: "AddKey", id, key: newKey(key) },
      });
      continue;
    }
    // A revoked key stays revoked: a declaration that still names it must not revive it.
    const fields = kept.revokedAt === null ? fieldChanges(kept, change) : [];
    if (fields.length === 0) continue;
    steps.push({
      title: `change ${called}`,
      fields,
      step: { _tag: "ChangeKey", id, keyId: key.id, change },
    });
  }
  return steps;
};
