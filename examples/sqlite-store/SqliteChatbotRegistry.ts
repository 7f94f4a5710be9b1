/**
 * Chatbots and their keys: what operators change, and what a key opens.
 */
import {
  type AuditRecord,
  type Chatbot,
  ChatbotDirectory,
  ChatbotRegistry,
  type KeyRecord,
  KeyTaken,
} from "@parley/core";
import { Stream } from "effect";
import type { Database } from "./SqliteDatabase.ts";

type ChatbotRow = Omit<Chatbot, "settings"> & { readonly settings: string };

type KeyRow = Pick<KeyRecord, "hash" | "id" | "name"> & {
  readonly chatbot: number;
  readonly scopes: string;
  readonly expiresAt: number | null;
  readonly revokedAt: number | null;
};

const toChatbot = (row: ChatbotRow): Chatbot => ({ ...row, settings: JSON.parse(row.settings) });

const toDate = (millis: number | null) => (millis === null ? null : new Date(millis));

const toKey = ({ hash, id, name, ...row }: KeyRow): KeyRecord => ({
  id,
  hash,
  name,
  scopes: JSON.parse(row.scopes),
  expiresAt: toDate(row.expiresAt),
});

export const makeChatbotDirectory = ({ get, read }: Database): ChatbotDirectory["Service"] =>
  ChatbotDirectory.of({
    open: (keyId) =>
      read(() => {
        const row = get<KeyRow>("SELECT * FROM keys WHERE id = :keyId AND revokedAt IS NULL", {
          keyId,
        });
        if (row === undefined) return null;
        const { expiresAt, hash, scopes } = toKey(row);
        const chatbot = get<ChatbotRow>("SELECT * FROM chatbots WHERE id = :chatbot", {
          chatbot: row.chatbot,
        });
        return { hash, scopes, expiresAt, chatbot: toChatbot(chatbot!) };
      }),
    changed: Stream.empty,
  });

export const makeChatbotRegistry = (database: Database): ChatbotRegistry["Service"] => {
  const { all, get, read, run, write } = database;

  const note = (line: Omit<AuditRecord, "time">, time: number) =>
    run(
      `INSERT INTO audit (time, actor, chatbot, action, detail)
       VALUES (:time, :actor, :chatbot, :action, :detail)`,
      { ...line, time },
    );

  return ChatbotRegistry.of({
    list: read(() =>
      all<ChatbotRow>("SELECT * FROM chatbots ORDER BY id").map((row) => ({
        chatbot: toChatbot(row),
        keys: all<KeyRow>("SELECT * FROM keys WHERE chatbot = :id ORDER BY id", { id: row.id }).map(
          (key) => ({ ...toKey(key), revokedAt: toDate(key.revokedAt) }),
        ),
      })),
    ),

    save: ({ description, keys, name, settings, workspaceName }, actor) =>
      write((now) => {
        const { helloMessage, instructions, moderationErrorMessage } = settings;
        const values = {
          workspaceName,
          name,
          description,
          settings: JSON.stringify({ helloMessage, moderationErrorMessage, instructions }),
        };
        const find = () =>
          get<ChatbotRow>(
            "SELECT * FROM chatbots WHERE workspaceName = :workspaceName AND name = :name",
            values,
          );
        const action = find() === undefined ? "create" : "change";
        const changed: Array<string> = [];
        const saved = run(
          `INSERT INTO chatbots (workspaceName, name, description, settings)
           VALUES (:workspaceName, :name, :description, :settings)
           ON CONFLICT DO UPDATE SET description = :description, settings = :settings
           WHERE (description, settings) IS NOT (:description, :settings)`,
          values,
        );
        if (saved > 0) changed.push("description or settings");
        const chatbot = find()!;
        for (const key of keys) {
          const { hash, id, name } = key;
          const known = get<KeyRow>("SELECT * FROM keys WHERE id = :id", { id });
          if (known && known.chatbot !== chatbot.id) return new KeyTaken({ keyId: id });
          // A revoked key stays as it was: a declaration that is saved again must not revive it.
          const savedKey = run(
            `INSERT INTO keys (id, chatbot, hash, name, scopes, expiresAt)
             VALUES (:id, :chatbot, :hash, :name, :scopes, :expiresAt)
             ON CONFLICT DO UPDATE
             SET hash = :hash, name = :name, scopes = :scopes, expiresAt = :expiresAt
             WHERE revokedAt IS NULL
               AND (hash, name, scopes, expiresAt) IS NOT (:hash, :name, :scopes, :expiresAt)`,
            {
              id,
              chatbot: chatbot.id,
              hash,
              name,
              scopes: JSON.stringify(key.scopes),
              expiresAt: key.expiresAt?.getTime() ?? null,
            },
          );
          if (savedKey > 0) changed.push(`key ${id}`);
        }
        if (changed.length > 0)
          note({ actor, chatbot: chatbot.id, action, detail: changed.join(", ") }, now);
        return toChatbot(chatbot);
      }),

    revoke: (chatbot, keyId, actor) =>
      write((now) => {
        const revoked = run(
          `UPDATE keys SET revokedAt = :now
           WHERE chatbot = :chatbot AND id = :keyId AND revokedAt IS NULL`,
          { chatbot, keyId, now },
        );
        if (revoked > 0) note({ actor, chatbot, action: "revoke", detail: `key ${keyId}` }, now);
        return revoked > 0;
      }),

    audit: (limit) =>
      read(() =>
        all<Omit<AuditRecord, "time"> & { readonly time: number }>(
          "SELECT time, actor, chatbot, action, detail FROM audit ORDER BY id DESC LIMIT :limit",
          { limit },
        ).map((line) => ({ ...line, time: new Date(line.time) })),
      ),
  });
};
