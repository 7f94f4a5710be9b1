/**
 * Chats and entries to check with.
 */
import { Effect, Fiber, Latch } from "effect";
import type { Chat } from "../Chat.ts";
import { ChatStore, type ChatToCreate } from "../ChatStore.ts";
import type { Entry, NewEntry } from "../Entry.ts";
import type { RetryKey } from "../RetryKey.ts";
import { TurnStore, type Turn } from "../TurnStore.ts";
import { CheckFailed } from "./Check.ts";

export const bare: ChatToCreate = { name: null, userRef: null, helloMessage: null };

export const create = (chatbot: number, chat: Partial<ChatToCreate> = {}) =>
  ChatStore.use((store) =>
    Effect.map(store.createChat(chatbot, { ...bare, ...chat }, null), (created) => created.chat),
  );

/** Creates chats one after the other. */
export const createAll = (chatbot: number, chats: ReadonlyArray<Partial<ChatToCreate>>) =>
  Effect.forEach(chats, (chat) => create(chatbot, chat));

export const entry = (question: string, more: Partial<NewEntry> = {}): NewEntry => ({
  question,
  answer: `Answer to ${question}`,
  moderation: "none",
  flagged: false,
  usage: null,
  ...more,
});

/** Takes a turn that must be free. */
export const taken = (chatbot: number, chat: number | null, retryKey: RetryKey | null = null) =>
  TurnStore.use((store) => store.take(chatbot, chat, retryKey)).pipe(
    Effect.flatMap((outcome) =>
      outcome._tag === "Turn"
        ? Effect.succeed(outcome.turn)
        : Effect.fail(
            new CheckFailed({ what: "the turn is free", expected: "Turn", actual: outcome }),
          ),
    ),
  );

export const append = (turn: Turn, answered: NewEntry) =>
  TurnStore.use((store) => store.append(turn, answered));

/** Takes the turn of a chat, or of a new one, and appends one entry. */
export const ask = (chatbot: number, chat: number | null, answered: NewEntry) =>
  Effect.flatMap(taken(chatbot, chat), (turn) => append(turn, answered));

/** A chat with entries of these questions. */
export const conversation = Effect.fnUntraced(function* (
  chatbot: number,
  entries: ReadonlyArray<NewEntry>,
) {
  const chat: Chat = yield* create(chatbot);
  const stored: ReadonlyArray<Entry> = yield* Effect.forEach(entries, (one) =>
    ask(chatbot, chat.id, one),
  );
  return { chat, entries: stored };
});

/** Texts whose order, folding or storing goes wrong easily; all of at most 60 code points. */
export const awkwardTexts: ReadonlyArray<string> = [
  "",
  " ",
  "a",
  "A",
  "B",
  "Z",
  "b",
  "z",
  "aa",
  "a b",
  "a-b",
  "a_b",
  "aXb",
  "100%",
  "100",
  "%",
  "_",
  "\\",
  "\\%",
  "a\\b",
  "'; drop table chat; --",
  '"quoted"',
  "line\nbreak",
  "tab\there",
  "\u007f",
  "é",
  "e\u0301",
  "É",
  "ß",
  "ẞ",
  "SS",
  "ﬁn",
  "FIN",
  "Ｆｕｌｌ",
  "İstanbul",
  "istanbul",
  "ΣΊΣΥΦΟΣ",
  "σίσυφος",
  "Ǆ",
  "ǆ",
  "中文",
  "\ue000",
  "\uffee",
  "\ufffd",
  "𐐀",
  "𐐨",
  "😀",
  "👩‍👩‍👧",
  "\u202eright to left",
  "null",
  "NULL",
  "0",
  "{}",
  "$1",
];

/** Runs `n` effects at once: each stands at a gate, which opens when all are there. */
export const atOnce = <A, E, R>(
  n: number,
  effect: (at: number) => Effect.Effect<A, E, R>,
): Effect.Effect<ReadonlyArray<A>, E, R> =>
  Effect.gen(function* () {
    const gate = yield* Latch.make();
    const fibers = yield* Effect.forEach(
      Array.from({ length: n }, (_, at) => at),
      (at) => Effect.forkChild(Effect.andThen(gate.await, effect(at)), { startImmediately: true }),
    );
    yield* gate.open;
    return yield* Fiber.joinAll(fibers);
  });
