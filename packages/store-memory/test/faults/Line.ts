/**
 * What can be wrong with the line of the instances that wait for a chat's turn.
 */
import { turnPrecedence } from "@parley/core";
import { Effect } from "effect";
import { atPresent, type Memory } from "../../src/Memory.ts";
import type { StoredChat } from "../../src/Tenant.ts";
import { shared, withTurns, type Stores } from "./Faults.ts";

/** When each instance that waits for a chat asked last. */
const asked = shared(() => new Map<StoredChat, Map<object, number>>());

/**
 * The same stores, where who does not come in time keeps its place, who asks again goes to the end, who does not ask
 * every two seconds loses its place, or who leaves one chat's line leaves all of them.
 */
export const inLine = (
  stores: Stores,
  memory: Memory,
  wrong: "keeps late" | "goes back" | "must ask" | "leaves all",
): Stores => {
  /** This instance, once it has waited. */
  let me: object | undefined;
  const isOther = (one: object) => one !== me;
  const askedIn = (chat: StoredChat) => {
    const times = asked(memory).get(chat) ?? new Map<object, number>();
    asked(memory).set(chat, times);
    return times;
  };

  return withTurns(stores, {
    take: (chatbot, chatId, retryKey) =>
      atPresent((now) => {
        const take = stores.turns.take(chatbot, chatId, retryKey);
        const chat = chatId === null ? undefined : memory.tenant(chatbot).byId.get(chatId);
        if (chat === undefined) return take;
        const times = askedIn(chat);
        if (wrong === "must ask") {
          chat.waiting = chat.waiting.filter((one) => now - times.get(one)! <= turnPrecedence);
        }
        const before = chat.waiting;
        return Effect.tap(take, (taken) =>
          Effect.sync(() => {
            if (taken._tag === "Turn" && wrong === "keeps late") {
              chat.waiting = before.filter(isOther);
            }
            if (taken._tag !== "Held" || taken.by === "key") return;
            me ??= chat.waiting.find((one) => !before.includes(one))!;
            times.set(me, now);
            if (wrong === "goes back") chat.waiting = [...chat.waiting.filter(isOther), me];
          }),
        );
      }),
    leave: (chatbot, chat) =>
      Effect.tap(stores.turns.leave(chatbot, chat), () =>
        Effect.sync(() => {
          if (wrong !== "leaves all") return;
          for (const one of memory.tenant(chatbot).chats) one.waiting = one.waiting.filter(isOther);
        }),
      ),
  });
};
