/**
 * The table of `decideTake`: states in which a request asks for a turn, each with the decision on it.
 */
import { ChatId } from "@parley/core";
import {
  type decideTake,
  idempotencyKeyLifetime,
  turnPrecedence,
  type ChatRow,
  type KeyRow,
  type TakeState,
} from "@parley/core/ports";

/** The rules in order. Where rules meet, the first one decides. What has not ended yet ends `margin` after `now`. */
export const takeStates = (
  now: number,
  margin: number,
): ReadonlyArray<readonly [name: string, TakeState, ReturnType<typeof decideTake>]> => {
  const lease = now + margin;
  const chatRow = (more: Partial<ChatRow> = {}): ChatRow => ({
    chat: { id: ChatId.make(1), name: null, userRef: "anna", createTime: new Date(0) },
    lastEntryTime: null,
    turn: null,
    turnUntil: 0,
    waiting: [],
    ...more,
  });
  const key: KeyRow = {
    fingerprint: "f",
    madeAt: now - idempotencyKeyLifetime + margin,
    turn: "t",
    turnUntil: null,
    chatId: ChatId.make(1),
    entryId: 7,
    isStopped: false,
  };
  const claimed: KeyRow = { ...key, turnUntil: lease, entryId: null };
  const old = now - idempotencyKeyLifetime;

  const inChat: TakeState = {
    now,
    instance: "this",
    fingerprint: "f",
    hasChatId: true,
    visitor: null,
    key: null,
    chat: chatRow(),
    hasChatbot: true,
  };
  const newChat: TakeState = { ...inChat, hasChatId: false, chat: null };
  const held = chatRow({ turn: "other", turnUntil: lease });
  const reserved = chatRow({ turnUntil: now, waiting: ["other", "this"] });
  const heldBy = (by: "key" | "chat", until = lease) => ({ heldBy: by, until });

  return [
    ["a key of another request", { ...inChat, key, fingerprint: "g" }, "key_reused"],
    [
      "a key of another running request",
      { ...inChat, key: claimed, fingerprint: "g" },
      "key_reused",
    ],
    [
      "a stopped key of another request",
      { ...inChat, key: { ...key, isStopped: true }, fingerprint: "g" },
      "key_reused",
    ],
    ["a key that created a chat", { ...inChat, key: { ...key, entryId: null } }, "key_reused"],
    ["a stopped key", { ...inChat, key: { ...key, entryId: null, isStopped: true } }, "stopped"],
    [
      "a stopped key, without the chat",
      { ...inChat, chat: null, key: { ...key, entryId: null, isStopped: true } },
      "stopped",
    ],
    ["an answered key", { ...inChat, key, chat: held }, "answered"],
    ["an answered key, without the chat", { ...inChat, key, chat: null }, "answered"],
    ["no such chat", { ...inChat, chat: null }, "no_chat"],
    ["no such chat, while the key is held", { ...inChat, chat: null, key: claimed }, "no_chat"],
    ["another user's chat", { ...inChat, visitor: "berta" }, "no_chat"],
    [
      "a chat without a user",
      { ...inChat, visitor: "anna", chat: chatRow({ chat: { ...chatRow().chat, userRef: null } }) },
      "no_chat",
    ],
    ["the visitor's own chat", { ...inChat, visitor: "anna" }, "free"],
    ["no such chatbot", { ...newChat, hasChatbot: false }, "no_chatbot"],
    ["no such chatbot and no key", { ...newChat, fingerprint: null, hasChatbot: false }, "free"],
    ["a held key", { ...inChat, key: claimed, chat: held }, heldBy("key")],
    ["a held key without a chat", { ...newChat, key: claimed }, heldBy("key")],
    ["a held chat", { ...inChat, chat: held }, heldBy("chat")],
    [
      "a held chat, of this instance",
      { ...inChat, chat: { ...held, waiting: ["this"] } },
      heldBy("chat"),
    ],
    [
      "a chat that is reserved",
      { ...inChat, chat: reserved },
      heldBy("chat", now + turnPrecedence),
    ],
    [
      "a chat that is reserved since a lease has expired",
      { ...inChat, chat: { ...reserved, turn: "other" } },
      heldBy("chat", now + turnPrecedence),
    ],
    [
      "a reservation of this instance",
      { ...inChat, chat: { ...reserved, waiting: ["this", "other"] } },
      "free",
    ],
    [
      "a reservation that has ended",
      { ...inChat, chat: { ...reserved, turnUntil: now - turnPrecedence } },
      "free",
    ],
    [
      "an expired lease of the chat",
      { ...inChat, chat: chatRow({ turn: "other", turnUntil: now }) },
      "free",
    ],
    ["an expired lease of the key", { ...inChat, key: { ...claimed, turnUntil: now } }, "free"],
    [
      "an expired lease of another request's key",
      { ...inChat, key: { ...claimed, turnUntil: now }, fingerprint: "g" },
      "free",
    ],
    ["a key that is a day old", { ...inChat, key: { ...key, madeAt: old } }, "free"],
    [
      "a stopped key that is a day old",
      { ...inChat, key: { ...key, madeAt: old, isStopped: true } },
      "free",
    ],
    ["a chat that is free", inChat, "free"],
    ["a new chat", newChat, "free"],
  ];
};
