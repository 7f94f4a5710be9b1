import {
  type ChatbotId,
  ChatId,
  type ChatbotNotFound,
  ChatNotFound,
  type Entry,
  type IdempotencyKey,
  IdempotencyKeyReused,
  idempotencyKeyLifetime,
  type TakeResult,
  turnEntries,
  turnLease,
  TurnLost,
  turnPrecedence,
  TurnStore,
} from "@parley/core/ports";
import type { Database } from "./SqliteDatabase.ts";
import * as Rows from "./SqliteRows.ts";

const day = 24 * 60 * 60 * 1000;

/** Whether a turn holds neither a chat nor a key. Such a turn has no row. */
const holdsNothing = (chat: number | null, idempotencyKey: IdempotencyKey | null): boolean =>
  chat === null && idempotencyKey === null;

interface TurnRow {
  readonly id: string;
  readonly idempotencyKey: string | null;
  readonly fingerprint: string | null;
  readonly heldUntil: number;
}

export const makeTurnStore = (database: Database): TurnStore["Service"] => {
  const { all, get, read, run, write } = database;
  const instance = crypto.randomUUID();

  const entriesBefore = (chatbot: ChatbotId, chat: ChatId | null, before: number) =>
    all<Rows.EntryRow>(
      `SELECT ${Rows.entryColumns} FROM entries
       WHERE chatbot = :chatbot AND chatId = :chat AND id < :before
       ORDER BY id DESC LIMIT :limit`,
      { chatbot, chat, before, limit: turnEntries },
    ).map(Rows.toEntry);

  const spend = (chatbot: number, apiKeyId: string, tokens: number, now: number) =>
    run(
      `INSERT INTO spending (chatbot, apiKeyId, day, tokens)
       SELECT id, :apiKeyId, :day, :tokens FROM chatbots WHERE id = :chatbot
       ON CONFLICT DO UPDATE SET tokens = tokens + excluded.tokens`,
      { chatbot, apiKeyId, day: Math.floor(now / day), tokens },
    );

  const take: TurnStore["Service"]["take"] = (chatbot, chat, idempotencyKey, visitor = null) =>
    write((now): TakeResult | ChatbotNotFound | ChatNotFound | IdempotencyKeyReused => {
      const key = idempotencyKey?.key ?? null;
      const fingerprint = idempotencyKey?.fingerprint ?? null;
      const values = { chatbot, chat, key, fingerprint, instance, now };
      run("DELETE FROM results WHERE keepUntil <= :now", values);
      // The turn of a process that died would keep its key for ever if no other request used its chat or key.
      run("DELETE FROM turns WHERE heldUntil <= :before AND idempotencyKey IS NOT NULL", {
        before: now - idempotencyKeyLifetime,
      });
      const keyRecord = get<{ fingerprint: string; entry: number | null; turnId: string }>(
        "SELECT fingerprint, entry, turn AS turnId FROM results WHERE chatbot = :chatbot AND idempotencyKey = :key",
        values,
      );
      // At most two turns: one that holds the chat, and one that holds the idempotency key.
      const turns = all<TurnRow>(
        "SELECT * FROM turns WHERE chatbot = :chatbot AND (chat = :chat OR idempotencyKey = :key)",
        values,
      );
      const heldTurns = turns.filter(({ heldUntil }) => heldUntil > now);
      if (key !== null) {
        const first = keyRecord ?? heldTurns.find((turn) => turn.idempotencyKey === key);
        if ((first && first.fingerprint !== fingerprint) || keyRecord?.entry === null)
          return new IdempotencyKeyReused();
      }
      if (keyRecord) {
        const row = get<Rows.EntryRow>(
          `SELECT ${Rows.entryColumns} FROM entries WHERE chatbot = :chatbot AND id = :entry`,
          { chatbot, entry: keyRecord.entry },
        );
        return { _tag: "AlreadyAnswered", entry: Rows.toEntry(row!), turnId: keyRecord.turnId };
      }
      if (chat !== null && !Rows.chatExists(database, chatbot, chat, visitor))
        return new ChatNotFound({ chatId: chat });
      if (chat === null && key !== null) {
        const refusal = Rows.chatbotMissing(database, chatbot);
        if (refusal) return refusal;
      }

      const reservation = get<{ until: number }>(
        `SELECT coalesce((SELECT heldUntil FROM turns WHERE chatbot = :chatbot AND chat = :chat),
           turnEnded) + ${turnPrecedence} AS until FROM chats
         WHERE chatbot = :chatbot AND id = :chat AND :instance <>
           (SELECT instance FROM queues WHERE chatbot = :chatbot AND chat = :chat
            ORDER BY id LIMIT 1)`,
        values,
      );
      const until =
        heldTurns.length > 0
          ? Math.max(...heldTurns.map(({ heldUntil }) => heldUntil))
          : reservation?.until;
      if (until !== undefined && until > now) {
        const byKey = key !== null && heldTurns.some((turn) => turn.idempotencyKey === key);
        if (chat !== null && !byKey)
          run(
            `INSERT OR IGNORE INTO queues (chatbot, chat, instance)
             VALUES (:chatbot, :chat, :instance)`,
            values,
          );
        return { _tag: "Held", forMillis: until - now, by: byKey ? "key" : "chat" };
      }

      // Instances that have waited longer than this one did not ask in time, and lose their places in the queue.
      run(
        `DELETE FROM queues WHERE chatbot = :chatbot AND chat = :chat AND id <= coalesce(
           (SELECT id FROM queues WHERE chatbot = :chatbot AND chat = :chat
            AND instance = :instance), id)`,
        values,
      );
      Rows.endExpiredTurns(database, values);
      const id = crypto.randomUUID();
      if (!holdsNothing(chat, idempotencyKey))
        run(
          `INSERT INTO turns (id, chatbot, chat, idempotencyKey, fingerprint, heldUntil)
           VALUES (:id, :chatbot, :chat, :key, :fingerprint, :until)`,
          { ...values, id, until: now + turnLease },
        );
      const newest = chat === null ? [] : entriesBefore(chatbot, chat, Infinity);
      return {
        _tag: "TurnTaken",
        turn: { id, chatbot, chatId: chat, idempotencyKey, visitor, newest },
      };
    });

  const earlier: TurnStore["Service"]["earlier"] = (turn, before) =>
    read(() => entriesBefore(turn.chatbot, turn.chatId, before));

  // A turn whose lease has ended stays valid until another turn takes its chat or key.
  const renew: TurnStore["Service"]["renew"] = ({ chatId, chatbot, id, idempotencyKey }) =>
    write((now): boolean | ChatNotFound => {
      if (chatId !== null && !Rows.chatExists(database, chatbot, chatId))
        return new ChatNotFound({ chatId });
      const until = now + turnLease;
      return (
        holdsNothing(chatId, idempotencyKey) ||
        run("UPDATE turns SET heldUntil = :until WHERE id = :id", { id, until }) > 0
      );
    });

  const append: TurnStore["Service"]["append"] = (
    { chatId: targetId, chatbot, id: turnId, idempotencyKey, visitor = null },
    { apiKeyId = null, spentTokens = null, usage, ...entry },
  ) =>
    write((now): Entry | TurnLost | ChatbotNotFound | ChatNotFound => {
      if (targetId !== null && !Rows.chatExists(database, chatbot, targetId))
        return new ChatNotFound({ chatId: targetId });
      if (
        run("DELETE FROM turns WHERE id = :turnId", { turnId }) === 0 &&
        !holdsNothing(targetId, idempotencyKey)
      )
        return new TurnLost();
      const refusal = targetId === null ? Rows.chatbotMissing(database, chatbot) : undefined;
      if (refusal) return refusal;
      const createTime = Rows.nextTime(database, chatbot, targetId, now);
      const chatId = targetId ?? ChatId.make(Rows.nextId(database, "chat"));
      if (targetId === null)
        Rows.insertChat(database, chatbot, {
          id: chatId,
          name: null,
          userRef: visitor,
          createTime,
        });
      const id = Rows.nextId(database, "entry");
      const newEntry = { id, chatId, ...entry, createTime };
      Rows.insertEntry(database, chatbot, newEntry, usage, apiKeyId);
      if (apiKeyId !== null && spentTokens !== null) spend(chatbot, apiKeyId, spentTokens, now);
      const until = now + idempotencyKeyLifetime;
      const values = { chatbot, chatId, id, turnId, now, until, ...idempotencyKey };
      run("UPDATE chats SET turnEnded = :now WHERE chatbot = :chatbot AND id = :chatId", values);
      if (idempotencyKey !== null)
        run(
          `INSERT INTO results (chatbot, idempotencyKey, fingerprint, keepUntil, chat, entry, turn)
           VALUES (:chatbot, :key, :fingerprint, :until, :chatId, :id, :turnId)`,
          values,
        );
      return newEntry;
    });

  const release: TurnStore["Service"]["release"] = ({ chatId, chatbot, id }, cost) =>
    write((now) => {
      if (cost) spend(chatbot, cost.apiKeyId, cost.tokens, now);
      const values = { chat: chatId, chatbot, id, now };
      if (run("DELETE FROM turns WHERE id = :id", values) > 0)
        run("UPDATE chats SET turnEnded = :now WHERE chatbot = :chatbot AND id = :chat", values);
    });

  const spending: TurnStore["Service"]["spending"] = (chatbot, apiKeyId) =>
    read((now) => ({
      tokens:
        get<{ tokens: number }>(
          "SELECT tokens FROM spending WHERE chatbot = :chatbot AND apiKeyId = :apiKeyId AND day = :day",
          { chatbot, apiKeyId, day: Math.floor(now / day) },
        )?.tokens ?? 0,
      endsInMillis: day - (now % day),
    }));

  return TurnStore.of({
    take,
    earlier,
    renew,
    append,
    release,
    spending,
  });
};
