/**
 * The rules of chatbots, their keys and the audit log.
 */
import { Effect } from "effect";
import type { KeyRecord, RegisteredKey } from "../model/ApiKey.ts";
import { ChatbotNotFound, ChatbotTaken, KeyNotFound, KeyTaken } from "../model/Errors.ts";
import type { ChatbotId } from "../model/Ids.ts";
import { ChatbotDirectory, grantOf } from "../ports/ChatbotDirectory.ts";
import { changedFields, ChatbotRegistry, type AuditRecord } from "../ports/ChatbotRegistry.ts";
import { importDetail } from "../ports/ChatArchive.ts";
import type { ColdRows, ColdTx, Reads } from "./Rows.ts";
import { operation } from "../services/Telemetry.ts";

type Port = ChatbotRegistry["Service"];

/** A chatbot's row; fails if the chatbot is not registered. */
export const registeredChatbot = Effect.fnUntraced(function* (
  tx: Pick<Reads, "chatbot">,
  id: ChatbotId,
) {
  return (yield* tx.chatbot(id)) ?? (yield* new ChatbotNotFound({ chatbot: id }));
});

const unrevokedKey = Effect.fnUntraced(function* (tx: ColdTx, chatbot: ChatbotId, keyId: string) {
  const key = yield* tx.apiKey(chatbot, keyId);
  return key === null || key.revokedAt !== null ? yield* new KeyNotFound({ keyId }) : key;
});

const toRegistered =
  (now: number) =>
  (key: KeyRecord): RegisteredKey => ({
    ...key,
    createdAt: new Date(now),
    revokedAt: null,
    lastUsedAt: null,
  });

/** Fails for the first key whose id is taken, or occurs twice. */
const refuseTaken = Effect.fnUntraced(function* (tx: ColdTx, keys: ReadonlyArray<KeyRecord>) {
  const takenIds = new Set(yield* tx.takenKeyIds(keys.map(({ id }) => id)));
  for (const { id } of keys) {
    if (takenIds.has(id)) return yield* new KeyTaken({ keyId: id });
    takenIds.add(id);
  }
});

export const makeChatbotRegistry = (rows: ColdRows): Port => {
  const change = <A, E>(body: (tx: ColdTx) => Effect.Effect<A, E>) =>
    rows.write({ _tag: "Registry" }, body);

  const create: Port["create"] = operation("ChatbotRegistry.create")(
    ({ keys, ...chatbot }, actor) =>
      change(
        Effect.fnUntraced(function* (tx) {
          const { description, name, settings, workspaceName } = chatbot;
          if ((yield* tx.chatbotNamed(workspaceName, name)) !== null)
            return yield* new ChatbotTaken({ workspaceName, name });
          yield* refuseTaken(tx, keys);
          const id = yield* tx.insertChatbot(chatbot);
          yield* tx.insertApiKeys(id, keys.map(toRegistered(tx.now)));
          const entry = (action: AuditRecord["action"], detail: string) => ({
            actor,
            chatbot: id,
            action,
            detail,
          });
          yield* tx.audit([entry("create", name), ...keys.map(({ id }) => entry("add-key", id))]);
          return { id, workspaceName, name, description, settings };
        }),
      ),
  );

  const changeChatbot: Port["change"] = operation("ChatbotRegistry.change")((id, changes, actor) =>
    change(
      Effect.fnUntraced(function* (tx) {
        const before = yield* registeredChatbot(tx, id);
        const after = {
          ...before,
          ...changes,
          settings: { ...before.settings, ...changes.settings },
        };
        const { name, workspaceName } = after;
        const owner = yield* tx.chatbotNamed(workspaceName, name);
        if (owner !== null && owner !== id) return yield* new ChatbotTaken({ workspaceName, name });
        const detail = changedFields(before, changes).join(", ");
        if (detail === "") return before;
        yield* tx.setChatbot(after);
        yield* tx.audit([{ actor, chatbot: id, action: "change", detail }]);
        return after;
      }),
    ),
  );

  const remove: Port["delete"] = operation("ChatbotRegistry.delete")((id, actor) =>
    change(
      Effect.fnUntraced(function* (tx) {
        const { name } = yield* registeredChatbot(tx, id);
        yield* tx.deleteChatbot(id);
        yield* tx.audit([{ actor, chatbot: id, action: "delete", detail: name }]);
      }),
    ),
  );

  const addKey: Port["addKey"] = operation("ChatbotRegistry.addKey")((id, key, actor) =>
    change(
      Effect.fnUntraced(function* (tx) {
        yield* registeredChatbot(tx, id);
        yield* refuseTaken(tx, [key]);
        yield* tx.insertApiKeys(id, [toRegistered(tx.now)(key)]);
        yield* tx.audit([{ actor, chatbot: id, action: "add-key", detail: key.id }]);
      }),
    ),
  );

  const changeKey: Port["changeKey"] = operation("ChatbotRegistry.changeKey")(
    (id, keyId, changes, actor) =>
      change(
        Effect.fnUntraced(function* (tx) {
          const before = yield* unrevokedKey(tx, id, keyId);
          const fields = changedFields(before, changes).join(", ");
          if (fields === "") return;
          yield* tx.setApiKey({ ...before, ...changes });
          yield* tx.audit([
            { actor, chatbot: id, action: "change-key", detail: `${keyId}: ${fields}` },
          ]);
        }),
      ),
  );

  const revokeKey: Port["revokeKey"] = operation("ChatbotRegistry.revokeKey")((id, keyId, actor) =>
    change(
      Effect.fnUntraced(function* (tx) {
        const key = yield* unrevokedKey(tx, id, keyId);
        yield* tx.setApiKey({ ...key, revokedAt: new Date(tx.now) });
        yield* tx.audit([{ actor, chatbot: id, action: "revoke-key", detail: keyId }]);
      }),
    ),
  );

  const record: Port["record"] = operation("ChatbotRegistry.record")(
    (chatbot, action, detail, actor) =>
      rows.write({ _tag: "Chatbot", chatbot }, (tx) =>
        tx.audit([{ actor, chatbot, action, detail }]),
      ),
  );

  return ChatbotRegistry.of({
    list: rows.read((tx) => tx.chatbots(null)),
    expiries: rows.read((tx) => tx.expiries()),
    get: (id) =>
      Effect.flatMap(
        rows.read((tx) => tx.chatbots(id)),
        ([chatbot]) => (chatbot ? Effect.succeed(chatbot) : new ChatbotNotFound({ chatbot: id })),
      ),
    create,
    change: changeChatbot,
    delete: remove,
    addKey,
    changeKey,
    revokeKey,
    record,
    now: Effect.map(rows.now, (now) => new Date(now)),
    audit: (limit, userRef) =>
      rows.read(
        Effect.fnUntraced(function* (tx) {
          if (userRef !== undefined) return yield* tx.auditLog(limit, userRef);
          const erasures = (yield* tx.visitorErasures(limit)).map(
            ({ apiKeyId, chatbot, chats, time }): AuditRecord => ({
              time,
              actor: apiKeyId,
              chatbot,
              action: "erase",
              detail: `${importDetail(chats)} of its visitors`,
            }),
          );
          const log = [...(yield* tx.auditLog(limit))];
          for (const sum of erasures) {
            const index = log.findIndex(({ time }) => time < sum.time);
            log.splice(index === -1 ? log.length : index, 0, sum);
          }
          return log.slice(0, limit);
        }),
      ),
  });
};

export const makeChatbotDirectory = (rows: ColdRows) =>
  ChatbotDirectory.of({
    find: (keyId) =>
      Effect.map(
        rows.read((tx) => tx.grant(keyId)),
        (row) => row && grantOf(row.key, row.chatbot, row.now),
      ),
    recordUse: rows.recordUse,
  });
