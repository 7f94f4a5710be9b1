/**
 * Chats and entries to check with.
 */
import { Effect, Fiber, Latch, Stream } from "effect";
import type { Chat } from "../Chat.ts";
import { ChatArchive, type ArchiveRecord, type Erasable } from "../ChatArchive.ts";
import { ChatStore, type ChatToCreate } from "../ChatStore.ts";
import type { Entry, NewEntry } from "../Entry.ts";
import { newestChats } from "../ListQuery.ts";
import type { RetryKey } from "../RetryKey.ts";
import { TurnStore, type Turn } from "../TurnStore.ts";
import { CheckFailed, same } from "./Check.ts";
import { chatPage } from "./Model.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

export const newChatbot = StoreUnderTest.use((store) => store.newChatbot);
export const peek = (chatbot: number) => StoreUnderTest.use((store) => store.peek(chatbot));
export const pass = (millis: number) => StoreUnderTest.use((store) => store.pass(millis));

/** By no test clock, which stands still meanwhile. */
export const after = (millis: number) =>
  Effect.callback<string>((resume) => {
    const timer = setTimeout(() => resume(Effect.succeed(`after ${millis} ms`)), millis);
    return Effect.sync(() => clearTimeout(timer));
  });

/** The ports of both instances. */
export const instances = Effect.gen(function* () {
  const { second } = yield* StoreUnderTest;
  const first = {
    chats: yield* ChatStore,
    turns: yield* TurnStore,
    archive: yield* ChatArchive,
  };
  return [first, second] as const;
});

/** The turns of both instances, which are to wait for each other. */
export const bothTurns = Effect.gen(function* () {
  const { second } = yield* StoreUnderTest;
  const turns = [yield* TurnStore, second.turns] as const;
  yield* same("whether `second` is another instance", turns[0] !== turns[1], true);
  return turns;
});

/** Two that are as long as a SHA-256 in hexadecimal digits, and differ in the last. */
export const fingerprint = "f".repeat(64);
export const anotherFingerprint = `${"f".repeat(63)}0`;

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

export const usage = {
  provider: "provider",
  model: "model",
  promptTokens: 3,
  completionTokens: 5,
  attempts: 2,
  latencyMillis: 7,
};

/** Asks until an entry is later than the given time. */
export const askLater = Effect.fnUntraced(function* (
  chatbot: number,
  chat: number,
  than: Date,
  answered: NewEntry = entry("later"),
) {
  yield* pass(10);
  const began = Date.now();
  while (true) {
    const made = yield* ask(chatbot, chat, answered);
    if (made.createTime > than) return made;
    yield* same("whether time goes on, at least by `pass`", Date.now() - began < 1_000, true);
  }
});

/** Chats of two users and of none, some with entries. */
export const filled = Effect.fnUntraced(function* (chatbot: number) {
  const chats = yield* createAll(
    chatbot,
    Array.from({ length: 30 }, (_, n) => ({
      name: `chat ${n % 4}`,
      userRef: [null, "x", "y"][n % 3]!,
      helloMessage: n % 2 === 0 ? "Hello" : null,
    })),
  );
  for (const chat of chats.slice(0, 6)) yield* ask(chatbot, chat.id, entry("q", { usage }));
  return chats;
});

/** Every list of the chatbot is exact over these chats. */
export const listsAre = Effect.fnUntraced(function* (chatbot: number, chats: ReadonlyArray<Chat>) {
  const store = yield* ChatStore;
  for (const field of ["id", "_createTime", "name"] as const) {
    for (const descending of [true, false]) {
      for (let page = 1; page <= 6; page++) {
        for (const more of [{}, { userRef: "y" }, { search: "chat 1" }]) {
          const query = {
            ...newestChats,
            ...more,
            limit: 7,
            page,
            orderBy: [{ field, descending }] as const,
          };
          yield* same(
            `the page of ${JSON.stringify(query)}`,
            yield* store.listChats(chatbot, query),
            chatPage(chats, query),
          );
        }
      }
    }
  }
});

export const erase = (chatbot: number, which: Erasable) =>
  ChatArchive.use((archive) => archive.erase(chatbot, which));

export const exported = (chatbot: number) =>
  ChatArchive.use((archive) => Stream.runCollect(archive.export(chatbot)));

export const imported = (chatbot: number, records: Iterable<ArchiveRecord>) =>
  ChatArchive.use((archive) => archive.import(chatbot, Stream.fromIterable(records)));

/** What an export holds of a chat. */
export const chatRecord = (
  id: number,
  createTime: Date,
  more: Partial<Chat> = {},
): ArchiveRecord => ({
  _tag: "Chat",
  chat: { id, name: null, userRef: null, createTime, ...more },
});

/** What an export holds of an entry without usage. */
export const entryRecord = (
  chatId: number,
  id: number,
  createTime: Date,
  question = `question ${id}`,
): ArchiveRecord => {
  const { usage: none, ...texts } = entry(question);
  return { _tag: "Entry", entry: { ...texts, id, chatId, createTime }, usage: none };
};

/** Keys that differ, if only a little. */
export const awkwardKeys: ReadonlyArray<string> = [
  "key",
  "Key",
  "KEY",
  " key",
  "key ",
  "key_",
  "keyX",
  "key%",
  "key\\",
  "'; --",
  "1",
  "01",
  "1e0",
  "null",
  ...["a", "b"].map((end) => "k".repeat(254) + end),
];

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
  "[ab]",
  "[^b]",
  "a.b",
  "a*",
  "?",
  "^a$",
  "(a|b)",
  "a+b",
  "&amp;",
  "a%20b",
  "100%",
  "100",
  "%",
  "_",
  "\\",
  "\\%",
  "a\\b",
  // Wide signs, which folding makes those above.
  "％",
  "＿",
  "＼",
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
  "ひら",
  "ヒラ",
  "ﾋﾗ",
  "42",
  "042",
  "\ue000",
  "\uffee",
  "\ufffd",
  "\ufeffmark",
  "\ufeff\ufffd",
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

/** Times that are easily lost or mixed up: of other calendars, around a zone's change of the clock, and so on. */
export const awkwardTimes: ReadonlyArray<Date> = [
  "0001-01-01T00:00:00.000Z",
  "1582-10-10T12:00:00.000Z",
  "1899-12-31T23:59:59.999Z",
  "1969-12-31T23:59:59.999Z",
  "1970-01-01T00:00:00.001Z",
  "2000-02-29T12:00:00.500Z",
  "2016-12-31T23:59:59.999Z",
  "2023-03-12T09:30:00.000Z",
  "2023-03-26T01:30:00.001Z",
  "2023-10-29T00:30:00.000Z",
  "2023-10-29T01:30:00.000Z",
  "2023-11-05T05:30:00.000Z",
  "2023-11-05T06:30:00.000Z",
  "2023-11-05T08:30:00.000Z",
  "2023-11-05T09:30:00.000Z",
  "2038-01-19T03:14:08.000Z",
  "2106-02-07T06:28:16.000Z",
  "9999-12-31T23:59:59.997Z",
  "9999-12-31T23:59:59.999Z",
].map((text) => new Date(text));

/** Texts that differ, in each case or not, after this many code points. */
export const alikeUpTo = (length: number): ReadonlyArray<string> =>
  ["b", "a", "", "B", "😀"].map((end) => "x".repeat(length) + end);

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
