/**
 * Takes, renews and ends the turns of chats, and records the idempotency keys of asks.
 */
import {
  ChatNotFound,
  IdempotencyKeyReused,
  turnEntries,
  turnLease,
  TurnLost,
  turnPrecedence,
  TurnStore,
  type TakeResult,
  type Turn,
} from "@parley/core/ports";
import { Clock, Effect, Result } from "effect";
import { findRecord, putRecord } from "./IdempotencyRecords.ts";
import {
  addChat,
  addEntry,
  atomically,
  findChatbot,
  isOwn,
  spend,
  spendingOf,
  tenantOf,
  type Memory,
  type StoredChat,
  type Tenant,
} from "./Memory.ts";

/** Returns the newest {@link turnEntries} of the chat's first `count` entries, newest first. */
const newestEntries = ({ entries }: StoredChat, count = entries.length) =>
  entries
    .slice(Math.max(0, count - turnEntries), count)
    .reverse()
    .map(({ entry }) => entry);

const day = 24 * 60 * 60 * 1000;

const holdsNothing = ({ chatId, idempotencyKey }: Turn) =>
  chatId === null && idempotencyKey === null;

type Port = TurnStore["Service"];

export const makeTurnStore = (memory: Memory): TurnStore["Service"] => {
  const instance = {};

  /** Finds a turn's tenant and chat. The chat is `null` if the append creates it, `undefined` if it does not exist. */
  const find = ({ chatId, chatbot }: Pick<Turn, "chatId" | "chatbot">) => {
    const tenant = tenantOf(memory, chatbot);
    return { tenant, chat: chatId === null ? null : tenant.chats.get(chatId) };
  };

  /**
   * Returns the earliest time at which this instance may take the chat's turn, which may be held, or reserved for
   * another instance.
   */
  const availableAt = (
    { leases }: Tenant,
    { turnEnded, turnId, waiting }: StoredChat,
    now: number,
  ): number => {
    const until = leases.get(turnId ?? "");
    if (until !== undefined && until > now) return until;
    const [first = instance] = waiting;
    return first === instance ? now : (until ?? turnEnded) + turnPrecedence;
  };

  /** Ends the turn; returns whether it was still valid. */
  const end = (turn: Turn, now: number): boolean => {
    const { chat, tenant } = find(turn);
    if (!tenant.leases.delete(turn.id)) return holdsNothing(turn);
    if (chat) chat.turnEnded = now;
    return true;
  };

  const take: Port["take"] = (chatbot, chatId, idempotencyKey, visitor = null) =>
    atomically(function* (now) {
      const { chat, tenant } = find({ chatbot, chatId });
      const record = findRecord(tenant, idempotencyKey, now);
      if (record !== undefined && record.fingerprint !== idempotencyKey!.fingerprint) {
        return yield* Result.fail(new IdempotencyKeyReused());
      }
      const outcome = record?.outcome;
      if (outcome?._tag === "Entry") {
        const { entries } = tenant.chats.get(outcome.chat)!;
        const { entry } = entries.find(({ entry }) => entry.id === outcome.entry)!;
        return { _tag: "AlreadyAnswered", entry, turnId: outcome.turnId } satisfies TakeResult;
      }
      if (chat === undefined || (chat !== null && !isOwn(chat, visitor)))
        return yield* Result.fail(new ChatNotFound({ chatId: chatId! }));
      if (chat === null && idempotencyKey !== null) yield* findChatbot(memory, chatbot);
      if (outcome?._tag === "Pending") {
        const forMillis = tenant.leases.get(outcome.turnId)! - now;
        return { _tag: "Held", forMillis, by: "key" } satisfies TakeResult;
      }
      // Unique across processes: a client may resume a stream by its turn's id after the process has restarted.
      const id = crypto.randomUUID();
      if (chat !== null) {
        const at = availableAt(tenant, chat, now);
        if (at > now) {
          if (!chat.waiting.includes(instance)) chat.waiting.push(instance);
          return { _tag: "Held", forMillis: at - now, by: "chat" } satisfies TakeResult;
        }
        // The first instance in the queue is either this one, or one that did not ask again in time.
        chat.waiting = chat.waiting.slice(1).filter((other) => other !== instance);
        tenant.leases.delete(chat.turnId ?? "");
        chat.turnId = id;
      }
      putRecord(tenant, idempotencyKey, now, { _tag: "Pending", chat: chatId, turnId: id });
      const newest = chat === null ? [] : newestEntries(chat);
      const turn = { id, chatbot, chatId, idempotencyKey, visitor, newest };
      if (!holdsNothing(turn)) tenant.leases.set(id, now + turnLease);
      return { _tag: "TurnTaken", turn } satisfies TakeResult;
    });

  const earlier: Port["earlier"] = (turn, before) =>
    Effect.sync(() => {
      const { chat } = find(turn);
      if (!chat) return [];
      const at = chat.entries.findIndex(({ entry }) => entry.id >= before);
      return newestEntries(chat, at === -1 ? undefined : at);
    });

  const renew: Port["renew"] = (turn) =>
    atomically(function* (now) {
      const { chat, tenant } = find(turn);
      if (chat === undefined) return yield* Result.fail(new ChatNotFound({ chatId: turn.chatId! }));
      if (!tenant.leases.has(turn.id)) return holdsNothing(turn);
      tenant.leases.set(turn.id, now + turnLease);
      return true;
    });

  const append: Port["append"] = (turn, entry) =>
    atomically(function* (now) {
      const { chat, tenant } = find(turn);
      if (chat === undefined) return yield* Result.fail(new ChatNotFound({ chatId: turn.chatId! }));
      if (!end(turn, now)) return yield* Result.fail(new TurnLost());
      yield* findChatbot(memory, turn.chatbot);
      const target =
        chat ?? addChat(memory, tenant, { name: null, userRef: turn.visitor ?? null }, now);
      const newEntry = addEntry(memory, target, entry, now);
      spend(tenant, entry.apiKeyId, entry.spentTokens, now);
      const ids = { chat: newEntry.chatId, entry: newEntry.id, turnId: turn.id };
      putRecord(tenant, turn.idempotencyKey, now, { _tag: "Entry", ...ids });
      return newEntry;
    });

  const release: Port["release"] = (turn, cost) =>
    Effect.map(Clock.currentTimeMillis, (now) => {
      spend(tenantOf(memory, turn.chatbot), cost?.apiKeyId, cost?.tokens, now);
      end(turn, now);
    });

  const spending: Port["spending"] = (chatbot, apiKeyId) =>
    Effect.map(Clock.currentTimeMillis, (now) => ({
      tokens: spendingOf(tenantOf(memory, chatbot), apiKeyId, now),
      endsInMillis: day - (now % day),
    }));

  return TurnStore.of({ take, earlier, renew, append, release, spending });
};
