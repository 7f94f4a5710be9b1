/**
 * Turns of chats, and the idempotency keys of asks.
 */
import {
  ChatNotFound,
  IdempotencyKeyReused,
  turnEntries,
  turnLease,
  TurnLost,
  turnPrecedence,
  TurnStore,
  type Taken,
  type Turn,
} from "@parley/core";
import { Clock, Effect, Result, Stream } from "effect";
import { findRecord, putRecord } from "./IdempotencyRecords.ts";
import {
  addChat,
  addEntry,
  atomically,
  findChatbot,
  publish,
  tenantOf,
  type Memory,
  type StoredChat,
} from "./Memory.ts";

/** The newest of the chat's first `count` entries, newest first. */
const newestEntries = ({ entries }: StoredChat, count = entries.length) =>
  entries
    .slice(Math.max(0, count - turnEntries), count)
    .reverse()
    .map(({ entry }) => entry);

export const makeTurnStore = (memory: Memory): TurnStore["Service"] => {
  const { freed } = memory.notifications;
  /** Identifies this instance among those that wait. */
  const instance = {};

  /**
   * When this instance may take the chat's turn: not while it is held, nor while it is reserved for another instance.
   */
  const availableAt = ({ lease, turnEnded, waiting }: StoredChat, now: number): number => {
    if (lease !== null && lease.until > now) return lease.until;
    const [first = instance] = waiting;
    return first === instance ? now : Math.min(lease?.until ?? turnEnded, now) + turnPrecedence;
  };

  /** The chat and the record that the turn still holds. */
  const holdings = ({ chat, chatbot, id, idempotencyKey }: Turn) => {
    const tenant = tenantOf(memory, chatbot);
    const stored = chat === null ? null : tenant.chats.get(chat);
    const record =
      idempotencyKey === null ? null : tenant.idempotencyRecords.get(idempotencyKey.key);
    const isChatOurs = stored?.lease?.turn === id;
    const isKeyOurs = record?.outcome._tag === "Pending" && record.outcome.lease.turn === id;
    return {
      tenant,
      chat: isChatOurs ? stored : null,
      record: isKeyOurs ? record : null,
      isErased: stored === undefined,
      isLost: (stored !== null && !isChatOurs) || (record !== null && !isKeyOurs),
    };
  };

  const freeChat = (chatbot: number, chat: StoredChat | null, now: number) => {
    if (chat === null) return;
    chat.lease = null;
    chat.turnEnded = now;
    publish(freed, { chatbot, chat: chat.chat.id });
  };

  return TurnStore.of({
    take: (chatbot, chatId, idempotencyKey) =>
      atomically(function* (now) {
        const tenant = tenantOf(memory, chatbot);
        const chat = chatId === null ? null : tenant.chats.get(chatId);
        const record =
          idempotencyKey === null ? undefined : findRecord(tenant, idempotencyKey.key, now);
        if (record !== undefined && record.fingerprint !== idempotencyKey!.fingerprint) {
          return yield* Result.fail(new IdempotencyKeyReused({ key: idempotencyKey!.key }));
        }
        const outcome = record?.outcome;
        if (outcome?._tag === "Entry") {
          const { entries } = tenant.chats.get(outcome.chat)!;
          const { entry } = entries.find(({ entry }) => entry.id === outcome.entry)!;
          return { _tag: "Done", entry, turn: outcome.turn } satisfies Taken;
        }
        if (chat === undefined) return yield* Result.fail(new ChatNotFound({ chatId: chatId! }));
        if (chat === null && idempotencyKey !== null) yield* findChatbot(memory, chatbot);
        if (outcome?._tag === "Pending") {
          return { _tag: "Held", forMillis: outcome.lease.until - now, by: "key" } satisfies Taken;
        }
        const at = chat === null ? now : availableAt(chat, now);
        if (chat !== null && at > now) {
          if (!chat.waiting.includes(instance)) chat.waiting.push(instance);
          return { _tag: "Held", forMillis: at - now, by: "chat" } satisfies Taken;
        }
        // Unique across processes: a client may resume a stream by its turn's id after a restart.
        const id = crypto.randomUUID();
        const lease = { turn: id, until: now + turnLease };
        if (chat !== null) {
          chat.lease = lease;
          // The first is this instance, or did not ask again in time.
          chat.waiting = chat.waiting.slice(1).filter((one) => one !== instance);
        }
        if (idempotencyKey !== null)
          putRecord(tenant, idempotencyKey, now, { _tag: "Pending", lease });
        const newest = chat === null ? [] : newestEntries(chat);
        const turn = { id, chatbot, chat: chatId, idempotencyKey, newest };
        return { _tag: "Turn", turn } satisfies Taken;
      }),

    earlier: ({ chat, chatbot }, before) =>
      Effect.sync(() => {
        const stored = chat === null ? undefined : tenantOf(memory, chatbot).chats.get(chat);
        if (stored === undefined) return [];
        const at = stored.entries.findIndex(({ entry }) => entry.id >= before);
        return newestEntries(stored, at === -1 ? undefined : at);
      }),

    renew: (turn) =>
      atomically(function* (now) {
        const { chat, isErased, isLost, record, tenant } = holdings(turn);
        if (isErased) return yield* Result.fail(new ChatNotFound({ chatId: turn.chat! }));
        if (isLost) return false;
        const lease = { turn: turn.id, until: now + turnLease };
        if (chat !== null) chat.lease = lease;
        if (record !== null) {
          const outcome = { _tag: "Pending", lease } as const;
          tenant.idempotencyRecords.set(turn.idempotencyKey!.key, { ...record, outcome });
        }
        return true;
      }),

    append: (turn, entry) =>
      atomically(function* (now) {
        const { chat: held, isErased, isLost, tenant } = holdings(turn);
        if (isErased) return yield* Result.fail(new ChatNotFound({ chatId: turn.chat! }));
        if (isLost) return yield* Result.fail(new TurnLost());
        if (turn.chat === null) yield* findChatbot(memory, turn.chatbot);
        const chat = held ?? addChat(memory, tenant, { name: null, userRef: null }, now);
        const stored = addEntry(memory, chat, entry, now);
        if (turn.idempotencyKey !== null) {
          const made = { chat: stored.chatId, entry: stored.id, turn: turn.id };
          putRecord(tenant, turn.idempotencyKey, now, { _tag: "Entry", ...made });
        }
        freeChat(turn.chatbot, held, now);
        return stored;
      }),

    release: (turn) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        const { chat, record, tenant } = holdings(turn);
        if (record !== null) tenant.idempotencyRecords.delete(turn.idempotencyKey!.key);
        freeChat(turn.chatbot, chat, now);
      }),

    freed: Stream.fromPubSub(freed),
  });
};
