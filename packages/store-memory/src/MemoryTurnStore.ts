/**
 * Turns and retry keys of asks.
 */
import {
  ChatbotNotFound,
  ChatNotFound,
  RetryKeyReused,
  turnEntries,
  turnLease,
  TurnLost,
  turnPrecedence,
  TurnStore,
  type Entry,
  type RetryKey,
  type Taken,
  type Turn,
} from "@parley/core";
import { Effect, PubSub, Stream } from "effect";
import { entryOf } from "./MemoryChatStore.ts";
import { atPresent, type Memory } from "./Memory.ts";
import { isHeld, knownRequest, rememberRequest, type StoredChat } from "./Tenant.ts";

export const makeTurnStore = (memory: Memory): TurnStore["Service"] => {
  const { freed } = memory.hints;
  /** Names this instance among those that wait. */
  const waiter = {};

  const newestOf = (chat: StoredChat, below: number) =>
    chat.entries
      .slice(Math.max(0, below - turnEntries), below)
      .reverse()
      .map(entryOf);

  /** When this instance may take the chat's turn: not as long as it is held, or kept for who waited longer. */
  const freeAt = ({ turn, turnEnded, waiting }: StoredChat, now: number): number => {
    const end = turn?.until ?? turnEnded;
    const [first = waiter] = waiting;
    if (isHeld(turn, now)) return end;
    return first === waiter ? now : Math.min(end, now) + turnPrecedence;
  };

  const take = (
    chatbot: number,
    chatId: number | null,
    retryKey: RetryKey | null,
    now: number,
  ): Effect.Effect<Taken, ChatbotNotFound | ChatNotFound | RetryKeyReused> => {
    const tenant = memory.tenant(chatbot);
    const chat = chatId === null ? null : tenant.byId.get(chatId);
    const known = retryKey === null ? undefined : knownRequest(tenant, retryKey.key, now);
    if (known !== undefined) {
      if (known.fingerprint !== retryKey!.fingerprint) {
        return Effect.fail(new RetryKeyReused({ key: retryKey!.key }));
      }
      if (known.entry !== null) {
        const made = tenant.byId.get(known.chat!)!.entries.find(({ id }) => id === known.entry)!;
        return Effect.succeed({ _tag: "Done", entry: entryOf(made), turn: known.turn! });
      }
    }
    if (chat === undefined) return Effect.fail(new ChatNotFound({ chatId: chatId! }));
    if (chat === null && retryKey !== null && !memory.registered.has(chatbot)) {
      return Effect.fail(new ChatbotNotFound({ chatbot }));
    }
    if (known !== undefined && isHeld(known.holder, now)) {
      return Effect.succeed({ _tag: "Held", forMillis: known.holder.until - now, by: "key" });
    }
    const at = chat === null ? now : freeAt(chat, now);
    if (chat !== null && at > now) {
      if (!chat.waiting.includes(waiter)) chat.waiting = [...chat.waiting, waiter];
      return Effect.succeed({ _tag: "Held", forMillis: at - now, by: "chat" });
    }
    // A client may resume a stream by its turn's id after this process was replaced.
    const id = crypto.randomUUID();
    const holder = { turn: id, until: now + turnLease };
    if (chat !== null) {
      chat.turn = holder;
      // The first is this one, or did not come in time.
      chat.waiting = chat.waiting.slice(1).filter((one) => one !== waiter);
    }
    if (retryKey !== null) {
      rememberRequest(tenant, retryKey, now, { turn: id, holder, chat: null, entry: null });
    }
    const newest = chat === null ? [] : newestOf(chat, chat.entries.length);
    return Effect.succeed({ _tag: "Turn", turn: { id, chatbot, chat: chatId, retryKey, newest } });
  };

  /** The rows that the turn holds, each only while it is the turn's own. */
  const holdings = ({ chat, chatbot, id, retryKey }: Turn) => {
    const tenant = memory.tenant(chatbot);
    const stored = chat === null ? undefined : tenant.byId.get(chat);
    const request = retryKey === null ? undefined : tenant.requests.get(retryKey.key);
    return {
      tenant,
      erased: chat !== null && stored === undefined,
      chat: stored?.turn?.turn === id ? stored : undefined,
      request: request?.holder?.turn === id ? request : undefined,
    };
  };

  /** Whether all that the turn took is still its own. */
  const isOurs = (turn: Turn, { chat, request }: ReturnType<typeof holdings>): boolean =>
    (turn.chat === null || chat !== undefined) && (turn.retryKey === null || request !== undefined);

  const free = (chatbot: number, chat: StoredChat | undefined, now: number) => {
    if (chat === undefined) return Effect.void;
    chat.turn = null;
    chat.turnEnded = now;
    return PubSub.publish(freed, { chatbot, chat: chat.id });
  };

  return TurnStore.of({
    take: (chatbot, chat, retryKey) => atPresent((now) => take(chatbot, chat, retryKey, now)),

    earlier: ({ chat, chatbot }, before) =>
      Effect.sync(() => {
        const stored = chat === null ? undefined : memory.tenant(chatbot).byId.get(chat);
        if (stored === undefined) return [];
        const at = stored.entries.findIndex(({ id }) => id >= before);
        return newestOf(stored, at === -1 ? stored.entries.length : at);
      }),

    renew: (turn) =>
      atPresent<boolean, ChatNotFound>((now) => {
        const held = holdings(turn);
        if (held.erased) return Effect.fail(new ChatNotFound({ chatId: turn.chat! }));
        if (!isOurs(turn, held)) return Effect.succeed(false);
        const holder = { turn: turn.id, until: now + turnLease };
        if (held.chat !== undefined) held.chat.turn = holder;
        if (held.request !== undefined) {
          held.tenant.requests.set(turn.retryKey!.key, { ...held.request, holder });
        }
        return Effect.succeed(true);
      }),

    append: (turn, entry) =>
      atPresent<Entry, TurnLost | ChatbotNotFound | ChatNotFound>((now) => {
        const held = holdings(turn);
        if (held.erased) return Effect.fail(new ChatNotFound({ chatId: turn.chat! }));
        if (!isOurs(turn, held)) return Effect.fail(new TurnLost());
        if (turn.chat === null && !memory.registered.has(turn.chatbot)) {
          return Effect.fail(new ChatbotNotFound({ chatbot: turn.chatbot }));
        }
        const chat = held.chat ?? memory.addChat(held.tenant, { name: null, userRef: null }, now);
        const stored = memory.addEntry(chat, entry, now);
        if (turn.retryKey !== null) {
          rememberRequest(held.tenant, turn.retryKey, now, {
            turn: turn.id,
            holder: null,
            chat: chat.id,
            entry: stored.id,
          });
        }
        return Effect.as(free(turn.chatbot, held.chat, now), entryOf(stored));
      }),

    release: (turn) =>
      atPresent((now) => {
        const { chat, request, tenant } = holdings(turn);
        if (request !== undefined) tenant.requests.delete(turn.retryKey!.key);
        return Effect.asVoid(free(turn.chatbot, chat, now));
      }),

    freed: Stream.fromPubSub(freed),
  });
};
