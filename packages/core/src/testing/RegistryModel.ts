/**
 * A registry as plain arrays: what each write comes to, and what is there afterwards.
 */
import type { Chatbot } from "../Chatbot.ts";
import { changedFields, type KeyRecord } from "../ChatbotRegistry.ts";
import {
  ChatbotNotFound,
  ChatbotTaken,
  KeyNotFound,
  KeyTaken,
  WorkspaceNotFound,
} from "../Errors.ts";
import type { Call } from "./RegistryCall.ts";

interface ModelKey extends KeyRecord {
  /** Keys of a later step are not older. */
  readonly step: number;
  readonly isRevoked: boolean;
  /** `null`: open, because it was revoked. */
  readonly isUsed: boolean | null;
}

interface ModelChatbot {
  readonly chatbot: Chatbot;
  readonly keys: ReadonlyArray<ModelKey>;
  /** What was noted, oldest first: actor, action and detail. */
  readonly notes: ReadonlyArray<string>;
}

/** By creation. */
export type RegistryModel = ReadonlyArray<ModelChatbot>;

/** What is there after a write, and the outcomes that it may have. */
interface After {
  readonly model: RegistryModel;
  readonly outcomes: ReadonlyArray<unknown>;
}

/** What one writes to the model as the `step`th; a chatbot that it makes gets the id. */
export const write = (
  model: RegistryModel,
  call: Call,
  {
    actor,
    id: newId,
    step,
  }: { readonly actor: string; readonly id: number; readonly step: number },
): After => {
  const refused = (...outcomes: ReadonlyArray<unknown>): After => ({ model, outcomes });
  const done = (
    id: number,
    changed: Partial<ModelChatbot>,
    notes: ReadonlyArray<string>,
    outcome?: unknown,
  ): After => ({
    model: model.map((one) =>
      one.chatbot.id === id
        ? { ...one, ...changed, notes: [...one.notes, ...notes.map((note) => `${actor} ${note}`)] }
        : one,
    ),
    outcomes: [outcome],
  });
  const named = (workspaceName: string, name: string) =>
    model.find(({ chatbot }) => chatbot.workspaceName === workspaceName && chatbot.name === name);
  const isTaken = (keyId: string) => model.some(({ keys }) => keys.some(({ id }) => id === keyId));
  const newKey = (key: KeyRecord): ModelKey => ({ ...key, step, isRevoked: false, isUsed: false });
  const known = (id: number) => model.find(({ chatbot }) => chatbot.id === id);
  const live = (id: number, keyId: string) =>
    known(id)?.keys.find((key) => key.id === keyId && !key.isRevoked);
  const replaced = (id: number, keyId: string, by: Partial<ModelKey>) => ({
    keys: known(id)!.keys.map((key) => (key.id === keyId ? { ...key, ...by } : key)),
  });
  switch (call._tag) {
    case "Create": {
      const { keys, ...rest } = call.chatbot;
      const { name, workspaceName } = rest;
      if (named(workspaceName, name) !== undefined) {
        return refused(new ChatbotTaken({ workspaceName, name }));
      }
      const ids = keys.map(({ id }) => id);
      const taken = ids.filter((id, at) => isTaken(id) || ids.indexOf(id) < at);
      if (taken.length > 0) return refused(...taken.map((keyId) => new KeyTaken({ keyId })));
      const chatbot = { id: newId, ...rest };
      const notes = [`create ${name}`, ...ids.map((id) => `add-key ${id}`)];
      return {
        model: [
          ...model,
          { chatbot, keys: keys.map(newKey), notes: notes.map((note) => `${actor} ${note}`) },
        ],
        outcomes: [chatbot],
      };
    }
    case "Change": {
      const { change, id } = call;
      const before = known(id)?.chatbot;
      if (before === undefined) return refused(new ChatbotNotFound({ chatbot: id }));
      const settings = { ...before.settings, ...change.settings };
      const chatbot = { ...before, ...change, settings };
      const { name, workspaceName } = chatbot;
      const other = named(workspaceName, name)?.chatbot ?? before;
      if (other !== before) return refused(new ChatbotTaken({ workspaceName, name }));
      const fields = changedFields(before, change);
      const notes = fields.length === 0 ? [] : [`change ${fields.join(", ")}`];
      return done(id, { chatbot }, notes, chatbot);
    }
    case "RenameWorkspace": {
      const { from, to } = call;
      const moved = model.filter(({ chatbot }) => chatbot.workspaceName === from);
      if (moved.length === 0) return refused(new WorkspaceNotFound({ workspaceName: from }));
      if (from === to) return refused(undefined);
      const taken = moved.filter(({ chatbot }) => named(to, chatbot.name) !== undefined);
      if (taken.length > 0) {
        return refused(
          ...taken.map(
            ({ chatbot }) => new ChatbotTaken({ workspaceName: to, name: chatbot.name }),
          ),
        );
      }
      return {
        model: model.map((one) =>
          moved.includes(one)
            ? {
                ...one,
                chatbot: { ...one.chatbot, workspaceName: to },
                notes: [...one.notes, `${actor} change workspaceName`],
              }
            : one,
        ),
        outcomes: [undefined],
      };
    }
    case "AddKey": {
      const { id, key } = call;
      const chatbot = known(id);
      if (chatbot === undefined) return refused(new ChatbotNotFound({ chatbot: id }));
      if (isTaken(key.id)) return refused(new KeyTaken({ keyId: key.id }));
      return done(id, { keys: [...chatbot.keys, newKey(key)] }, [`add-key ${key.id}`]);
    }
    case "ChangeKey": {
      const { change, id, keyId } = call;
      const key = live(id, keyId);
      if (key === undefined) return refused(new KeyNotFound({ keyId }));
      const fields = changedFields(key, change);
      const notes = fields.length === 0 ? [] : [`change-key ${keyId}: ${fields.join(", ")}`];
      return done(id, replaced(id, keyId, change), notes);
    }
    case "ReplaceKey": {
      const { by, end, id, keyId } = call;
      const key = live(id, keyId);
      if (key === undefined) return refused(new KeyNotFound({ keyId }));
      if (isTaken(by.id)) return refused(new KeyTaken({ keyId: by.id }));
      const { name, scopes } = key;
      const isEarlier = key.expiresAt !== null && key.expiresAt <= end;
      const expiresAt = isEarlier ? key.expiresAt : end;
      const { keys } = replaced(id, keyId, { expiresAt });
      return done(
        id,
        { keys: [...keys, newKey({ ...by, name, scopes })] },
        [`add-key ${by.id}`, ...(isEarlier ? [] : [`change-key ${keyId}: expiresAt`])],
        { name, scopes, expiresAt },
      );
    }
    case "RevokeKey": {
      const { id, keyId } = call;
      const key = live(id, keyId);
      if (key === undefined) return refused(new KeyNotFound({ keyId }));
      return done(id, replaced(id, keyId, { isRevoked: true }), [`revoke-key ${keyId}`]);
    }
    case "Use":
      return {
        model: model.map((one) => ({
          ...one,
          keys: one.keys.map((key) =>
            call.keyIds.includes(key.id)
              ? { ...key, isUsed: key.isRevoked && key.isUsed !== true ? null : true }
              : key,
          ),
        })),
        outcomes: [undefined],
      };
  }
};
