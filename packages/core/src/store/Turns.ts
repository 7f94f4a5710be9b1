/**
 * The rules of turns: who holds a chat and an idempotency key, and what an append stores.
 */
import { Effect } from "effect";
import type { Chat } from "../model/Chat.ts";
import type { Entry } from "../model/Entry.ts";
import {
  AnswerStopped,
  ChatbotNotFound,
  ChatNotFound,
  IdempotencyKeyReused,
  TurnLost,
} from "../model/Errors.ts";
import { dayMillis, dayNumber } from "../model/Day.ts";
import type { ChatbotId, ChatId } from "../model/Ids.ts";
import {
  turnEntries,
  turnLease,
  TurnStore,
  type StopResult,
  type TakeResult,
  type Turn,
} from "../ports/TurnStore.ts";
import { addChat, addEntry } from "./Additions.ts";
import { decideStop, decideTake } from "./DecideTake.ts";
import { ownKey, sweepKeys, writeKey } from "./Keys.ts";
import type { ChatRow, KeyRow, Rows, Tx } from "./Rows.ts";

type Port = TurnStore["Service"];

/** Whether a turn holds neither a chat nor a key. The store keeps nothing of such a turn. */
const holdsNothing = ({ chatId, idempotencyKey }: Pick<Turn, "chatId" | "idempotencyKey">) =>
  chatId === null && idempotencyKey === null;

/** Reads the row of a request's chat; `null` if the request has no chat. */
const chatOf = (tx: Tx, chatbot: ChatbotId, chatId: ChatId | null) =>
  chatId === null ? Effect.succeed(null) : tx.chat(chatbot, chatId);

/**
 * Reads what the turn holds; `null` if the turn is lost. Fails with `ChatNotFound` if its chat has been erased, or with
 * `AnswerStopped` if a client has stopped its ask.
 */
const readTurn = Effect.fnUntraced(function* (tx: Tx, turn: Turn) {
  const { chatbot, chatId, id, idempotencyKey } = turn;
  const chat = yield* chatOf(tx, chatbot, chatId);
  if (chatId !== null && chat === null) return yield* new ChatNotFound({ chatId });
  const key = yield* ownKey(tx, chatbot, idempotencyKey);
  if (key?.isStopped && key.turn === id) return yield* new AnswerStopped();
  const isLost =
    (chat !== null && chat.turn !== id) ||
    (idempotencyKey !== null && (key?.turn !== id || key.turnUntil === null));
  return isLost ? null : { chat, key };
});

type Holding = { readonly chat: ChatRow | null; readonly key: KeyRow | null };

/** Writes the end of the lease, or the end of the turn, into the rows that the turn holds. */
const setUntil = Effect.fnUntraced(function* (
  tx: Tx,
  { chatbot, idempotencyKey }: Turn,
  { chat, key }: Holding,
  until: { readonly lease: number } | "ended",
) {
  if (chat !== null) {
    const { turn, waiting } = chat;
    const next =
      until === "ended" ? { turn: null, turnUntil: tx.now } : { turn, turnUntil: until.lease };
    yield* tx.setTurn(chatbot, chat.chat.id, { ...next, waiting });
  }
  if (key !== null) {
    const next = until === "ended" ? null : { ...key, turnUntil: until.lease };
    yield* tx.setIdempotencyKey(chatbot, idempotencyKey!.key, next);
  }
});

const spend = (
  tx: Tx,
  chatbot: ChatbotId,
  apiKeyId: string | null | undefined,
  tokens: number | null | undefined,
) =>
  apiKeyId == null || tokens == null
    ? Effect.void
    : tx.spend(chatbot, apiKeyId, dayNumber(tx.now), tokens);

export const makeTurnStore = (rows: Rows): Port => {
  const instance = crypto.randomUUID();
  const inChatbot = <A, E>(chatbot: ChatbotId, body: (tx: Tx) => Effect.Effect<A, E>) =>
    rows.write({ _tag: "Chatbot", chatbot }, body);

  const take: Port["take"] = (chatbot, chatId, idempotencyKey, visitor = null) => {
    // Unique across processes: a client may resume a stream by its turn's id after the process has restarted.
    const id = crypto.randomUUID();
    const newTurn = { id, chatbot, chatId, idempotencyKey, visitor };
    const toTaken = (chat: Chat | null, newest: ReadonlyArray<Entry>): TakeResult => ({
      _tag: "TurnTaken",
      turn: { ...newTurn, chat, newest },
    });
    if (holdsNothing(newTurn)) return Effect.succeed(toTaken(null, []));
    return inChatbot(
      chatbot,
      Effect.fnUntraced(function* (tx) {
        const { now } = tx;
        yield* sweepKeys(tx, chatbot, idempotencyKey);
        const key = yield* ownKey(tx, chatbot, idempotencyKey);
        const chat = yield* chatOf(tx, chatbot, chatId);
        const decision = decideTake({
          now,
          instance,
          fingerprint: idempotencyKey?.fingerprint ?? null,
          hasChatId: chatId !== null,
          visitor,
          key,
          chat,
          hasChatbot: chatId !== null || (yield* tx.chatbot(chatbot)) !== null,
        });
        switch (decision) {
          case "key_reused":
            return yield* new IdempotencyKeyReused();
          case "stopped":
            return { _tag: "Stopped" } satisfies TakeResult;
          case "answered": {
            const entry = yield* tx.entry(chatbot, key!.chatId!, key!.entryId!);
            return {
              _tag: "AlreadyAnswered",
              entry: entry!,
              turnId: key!.turn!,
            } satisfies TakeResult;
          }
          case "no_chat":
            return yield* new ChatNotFound({ chatId: chatId! });
          case "no_chatbot":
            return yield* new ChatbotNotFound({ chatbot });
          case "free": {
            const turnUntil = now + turnLease;
            if (chat !== null) {
              // The first instance in the queue is either this one, or one that did not ask again in time.
              const waiting = chat.waiting.slice(1).filter((other) => other !== instance);
              yield* tx.setTurn(chatbot, chat.chat.id, { turn: id, turnUntil, waiting });
            }
            yield* writeKey(tx, chatbot, idempotencyKey, { turn: id, turnUntil, chatId });
            if (chat === null) return toTaken(null, []);
            const newest = yield* tx.newestEntries(chatbot, chat.chat.id, Infinity, turnEntries);
            return toTaken(chat.chat, newest);
          }
          default: {
            const { heldBy: by, until } = decision;
            if (by === "chat" && !chat!.waiting.includes(instance)) {
              const waiting = [...chat!.waiting, instance];
              yield* tx.setTurn(chatbot, chatId!, { ...chat!, waiting });
            }
            return { _tag: "Held", forMillis: until - now, by } satisfies TakeResult;
          }
        }
      }),
    );
  };

  const earlier: Port["earlier"] = ({ chatbot, chatId }, before) =>
    chatId === null
      ? Effect.succeed([])
      : rows.read((tx) => tx.newestEntries(chatbot, chatId, before, turnEntries));

  const renew: Port["renew"] = (turn) =>
    inChatbot(
      turn.chatbot,
      Effect.fnUntraced(function* (tx) {
        const holding = yield* readTurn(tx, turn);
        if (holding === null) return false;
        yield* setUntil(tx, turn, holding, { lease: tx.now + turnLease });
        return true;
      }),
    );

  const append: Port["append"] = (turn, newEntry) =>
    inChatbot(
      turn.chatbot,
      Effect.fnUntraced(function* (tx) {
        const { chatbot, id, idempotencyKey, visitor = null } = turn;
        const holding = yield* readTurn(tx, turn);
        if (holding === null) return yield* new TurnLost();
        if (holding.chat === null && (yield* tx.chatbot(chatbot)) === null)
          return yield* new ChatbotNotFound({ chatbot });
        yield* setUntil(tx, turn, holding, "ended");
        const chat =
          holding.chat ?? (yield* addChat(tx, chatbot, { name: null, userRef: visitor }));
        const entry = yield* addEntry(tx, chatbot, chat, newEntry);
        yield* spend(tx, chatbot, newEntry.apiKeyId, newEntry.spentTokens);
        const { chatId, id: entryId } = entry;
        yield* writeKey(tx, chatbot, idempotencyKey, { turn: id, chatId, entryId });
        return entry;
      }),
    );

  const release: Port["release"] = (turn, cost) =>
    inChatbot(
      turn.chatbot,
      Effect.fnUntraced(function* (tx) {
        yield* spend(tx, turn.chatbot, cost?.apiKeyId, cost?.tokens);
        const holding = yield* readTurn(tx, turn).pipe(
          // The key stays stopped, and the chat is free for other asks.
          Effect.catchTag("AnswerStopped", () => readTurn(tx, { ...turn, idempotencyKey: null })),
          Effect.catchTags({
            AnswerStopped: () => Effect.succeed(null),
            ChatNotFound: () => Effect.succeed(null),
          }),
        );
        if (holding !== null) yield* setUntil(tx, turn, holding, "ended");
      }),
    );

  const stop: Port["stop"] = (chatbot, key, waiting) =>
    inChatbot(
      chatbot,
      Effect.fnUntraced(function* (tx) {
        const row = yield* tx.idempotencyKey(chatbot, key);
        const decision = decideStop({ now: tx.now, key: row, waiting });
        switch (decision) {
          case "stopped":
            return { _tag: "Stopped" } satisfies StopResult;
          case "answered": {
            const entry = yield* tx.entry(chatbot, row!.chatId!, row!.entryId!);
            return entry !== null && entry.question !== ""
              ? ({ _tag: "AlreadyAnswered", entry, turnId: row!.turn! } satisfies StopResult)
              : null;
          }
          case "unknown":
            return null;
          default: {
            if ((yield* tx.chatbot(chatbot)) === null) return null;
            const { chatId, fingerprint, turn } = decision.stop;
            // The chat of an ask that waits may not exist.
            const chat = yield* chatOf(tx, chatbot, chatId);
            const row = { turn, chatId: chat && chatId, isStopped: true };
            yield* writeKey(tx, chatbot, { key, fingerprint }, row);
            return { _tag: "Stopped" } satisfies StopResult;
          }
        }
      }),
    );

  const spending: Port["spending"] = (chatbot, apiKeyId) =>
    rows.read((tx) =>
      Effect.map(tx.spent(chatbot, apiKeyId, dayNumber(tx.now)), (tokens) => ({
        tokens,
        endsInMillis: dayMillis - (tx.now % dayMillis),
      })),
    );

  return TurnStore.of({ take, earlier, renew, append, stop, release, spending });
};
