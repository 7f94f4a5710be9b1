/**
 * Checks that a store keeps the promises of `ChatStore`, except those about idempotency keys and visitors.
 */
import { Effect } from "effect";
import { ChatStore, type ChatToCreate } from "../ports/ChatStore.ts";
import { ChatbotNotFound, ChatNotFound } from "../model/Errors.ts";
import { ChatId } from "../model/Ids.ts";
import {
  chatFields,
  entryFields,
  defaultEntryQuery,
  defaultChatQuery,
  type ChatQuery,
  type EntryQuery,
} from "../model/ListQuery.ts";
import type { TurnStore } from "../ports/TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  alikeUpTo,
  ask,
  atOnce,
  awkwardTexts,
  bare,
  conversation,
  create,
  createAll,
  entry,
  entryPage,
  history,
  list,
  newChatbot,
  noChatbot,
  orders,
  pageIs,
  storedChats,
} from "./Fixtures.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

/** Chats with many ties and gaps: `name` and `userRef` have few distinct values, and some are `null`. */
const chatsWithTies: ReadonlyArray<Partial<ChatToCreate>> = Array.from({ length: 23 }, (_, n) => ({
  name: [null, "b", "a", "B", ""][n % 5]!,
  userRef: [null, "y", "x"][n % 3]!,
}));

/** The checks for creating chats and for listing chats and entries. */
export const chatStoreChecks: ReadonlyArray<Check<ChatStore | TurnStore | StoreUnderTest>> = [
  check("a chat is listed and stored as it was returned", function* () {
    const chatbot = yield* newChatbot;
    const fields: ReadonlyArray<Partial<ChatToCreate>> = [
      { name: "😀".repeat(255), userRef: "😀".repeat(60) },
      ...awkwardTexts.flatMap((text) => [{ name: text, userRef: text }, { name: text }]),
      { userRef: "u" },
    ];
    const chats = yield* createAll(chatbot, fields);
    yield* same(
      "the names and references",
      chats.map(({ name, userRef }) => [name, userRef]),
      fields.map(({ name = null, userRef = null }) => [name, userRef]),
    );
    const inStore = (yield* storedChats(chatbot)).map(({ chat }) => chat);
    yield* same("the stored chats", inStore, chats);
    yield* same("the total", (yield* list(chatbot)).total, chats.length);
    for (const chat of chats) {
      const page = yield* list(chatbot, { id: chat.id });
      yield* same("the listed chat", page, { items: [chat], total: 1 });
      yield* same("whole milliseconds", Number.isInteger(chat.createTime.getTime()), true);
    }
  }),

  check("a chat is stored together with its hello entry, if it has one", function* () {
    const chatbot = yield* newChatbot;
    const chats = yield* atOnce(awkwardTexts.length, (at) =>
      create(chatbot, { helloMessage: awkwardTexts[at]! }),
    );
    const inStore = yield* storedChats(chatbot);
    for (const [at, chat] of chats.entries()) {
      const { items, total } = yield* history(chatbot, chat.id);
      const { createTime, id } = items[0]!;
      const hello = {
        id,
        chatId: chat.id,
        question: "",
        answer: awkwardTexts[at]!,
        moderation: "none",
        flagged: false,
        createTime,
      };
      yield* same("the history", { items, total }, { items: [hello], total: 1 });
      yield* same("the entry's time is not before its chat's", createTime >= chat.createTime, true);
      const { entries } = inStore.find((storedChat) => storedChat.chat.id === chat.id)!;
      yield* same("the stored entries", entries, [{ ...hello, usage: null }]);
    }
    const { id } = yield* create(chatbot);
    yield* same("without a hello entry", yield* history(chatbot, id), { items: [], total: 0 });
  }),

  check("ids ascend and times never descend, whichever instance creates the chats", function* () {
    const chatbot = yield* newChatbot;
    const { second } = yield* StoreUnderTest;
    const store = yield* ChatStore;
    const createNth = (n: number) =>
      Effect.map(
        (n % 2 === 0 ? store : second.chats).createChat(
          chatbot,
          { ...bare, name: `${n}`, helloMessage: n % 3 ? null : "Hi" },
          null,
        ),
        ({ chat }) => chat,
      );
    const sequentialChats = yield* Effect.forEach(Array.from({ length: 10 }).keys(), createNth);
    const concurrentChats = yield* atOnce(64, (n) => createNth(n + 10));
    const chats = [...sequentialChats, ...concurrentChats.toSorted((a, b) => a.id - b.id)];
    yield* same(
      "every chat as requested",
      [...sequentialChats, ...concurrentChats].map(({ name }) => name),
      chats.map((_, n) => `${n}`),
    );
    for (const [at, { createTime, id }] of chats.entries()) {
      yield* same("the id is a positive safe integer", Number.isSafeInteger(id) && id > 0, true);
      if (at === 0) continue;
      yield* same("the id is higher", id > chats[at - 1]!.id, true);
      yield* same("the time is not earlier", createTime >= chats[at - 1]!.createTime, true);
    }
    const inStore = (yield* storedChats(chatbot)).map(({ chat }) => chat);
    yield* same("the stored chats", inStore, chats);
    const page = yield* list(chatbot, { limit: 100 });
    yield* same("the page", page, { items: chats.toReversed(), total: chats.length });
  }),

  check("chats are listed in every order the contract allows, page by page", function* () {
    const chatbot = yield* newChatbot;
    yield* same("the chats", yield* list(chatbot, { page: 2 }), { items: [], total: 0 });
    const chats = yield* createAll(chatbot, chatsWithTies);
    for (const orderBy of orders(chatFields)) {
      for (const [limit, page] of [
        ...[1, 2, 3, 4, 5].map((page) => [7, page] as const),
        [1, 2],
        [100, 1],
        [25, Number.MAX_SAFE_INTEGER],
      ] as const) {
        yield* pageIs(chatbot, chats, { orderBy, limit, page });
      }
    }
    const [a, b, c] = ["userRef", "name", "createTime"].map((field) => ({
      field: field as "name",
      descending: field === "name",
    }));
    yield* pageIs(chatbot, chats, { orderBy: [a!, b!, c!] });
  }),

  check("strings sort by all their code points, and absent values sort highest", function* () {
    const chatbot = yield* newChatbot;
    const references = alikeUpTo(59);
    const chats = yield* createAll(chatbot, [
      {},
      ...awkwardTexts.map((text) => ({ name: text, userRef: text })),
      ...alikeUpTo(254).map((name, n) => ({ name, userRef: references[n]! })),
      {},
    ]);
    for (const field of ["name", "userRef"] as const) {
      for (const descending of [false, true]) {
        yield* pageIs(chatbot, chats, { limit: 100, orderBy: [{ field, descending }] });
      }
    }
  }),

  check("a search finds names that contain its text literally, ignoring case", function* () {
    const chatbot = yield* newChatbot;
    const chats = yield* createAll(chatbot, [
      {},
      ...awkwardTexts.map((name) => ({ name })),
      ...awkwardTexts.map((text) => ({ name: `before ${text} after` })),
      // Folding makes these names longer, the last one only in an intermediate step.
      ...["ﬃ", "ﷺ", "İ"].map((sign) => ({ name: `${sign.repeat(254)}!` })),
    ]);
    const parts = ["before ", "BEFORE", "r a", "%a", "i!", "م!", "ffi".repeat(254)];
    for (const search of [...awkwardTexts, ...parts, "nothing like it"]) {
      yield* pageIs(chatbot, chats, { search, limit: 100 });
    }
  }),

  check("filters combine, for the page and for the total", function* () {
    const chatbot = yield* newChatbot;
    const chats = yield* createAll(chatbot, [
      ...chatsWithTies,
      ...chatsWithTies,
      ...chatsWithTies,
      ...chatsWithTies,
    ]);
    const someOrders = orders(chatFields).filter((_, n) => n % 7 === 0);
    for (const search of [null, "", "B", "a"]) {
      for (const userRef of [null, "x", ""]) {
        for (const id of [null, chats[1]!.id, chats[2]!.id]) {
          for (const orderBy of someOrders) {
            for (const page of id === null ? [1, 2, 4] : [1, 2]) {
              yield* pageIs(chatbot, chats, { search, userRef, id, orderBy, limit: 5, page });
            }
          }
        }
      }
    }
  }),

  check("a chatbot never lists or counts another chatbot's chats", function* () {
    const [ours, theirs] = [yield* newChatbot, yield* newChatbot];
    const fields = { name: "shared", userRef: "shared", helloMessage: "Hello" };
    const chats = yield* createAll(theirs, [fields, fields]);
    yield* same("the chats", yield* list(ours), { items: [], total: 0 });
    const mine = yield* create(ours, { name: "shared", userRef: "shared" });
    // Ids are unique only within a chatbot: one of their chats may have the same id as mine.
    const foreign = chats.find(({ id }) => id !== mine.id)!.id;
    for (const query of [
      {},
      { orderBy: [{ field: "name", descending: true }] as const },
      { search: "share" },
      { userRef: "shared" },
    ]) {
      const what = `the chats for ${JSON.stringify(query)}`;
      yield* same(what, yield* list(ours, query), { items: [mine], total: 1 });
    }
    yield* same("another chatbot's id", yield* list(ours, { id: foreign }), {
      items: [],
      total: 0,
    });
    const notFound = new ChatNotFound({ chatId: foreign });
    yield* failsWith("another chatbot's history", notFound, history(ours, foreign));
    yield* failsWith("another chatbot's entry", notFound, history(ours, foreign, { id: 1 }));
  }),

  check("reading the history of an unknown chat fails with ChatNotFound", function* () {
    const chatbot = yield* newChatbot;
    const { id } = yield* create(chatbot);
    for (const chatId of [0, id + 1_000_000, Number.MAX_SAFE_INTEGER].map((n) => ChatId.make(n))) {
      const notFound = new ChatNotFound({ chatId });
      const orderBy = [{ field: "question", descending: false }] as const;
      yield* failsWith(`chat ${chatId}`, notFound, history(chatbot, chatId));
      yield* failsWith("the history by question", notFound, history(chatbot, chatId, { orderBy }));
    }
  }),

  check("entries are listed in every order the contract allows, in pages or by id", function* () {
    const chatbot = yield* newChatbot;
    const { chat, entries } = yield* conversation(
      chatbot,
      Array.from({ length: 11 }, (_, n) =>
        entry(["b", "a", "", "B"][n % 4]!, {
          answer: ["x", "Y", "é"][n % 3]!,
          moderation: n % 5 === 0 ? "hate" : "none",
          flagged: n % 5 === 0,
        }),
      ),
    );
    const read = Effect.fnUntraced(function* (query: EntryQuery) {
      const what = `the page for ${JSON.stringify(query)}`;
      yield* same(what, yield* history(chatbot, chat.id, query), entryPage(entries, query));
    });
    const otherEntry = yield* ask(chatbot, null, entry("in another chat"));
    for (const { id } of [...entries, otherEntry, { id: Number.MAX_SAFE_INTEGER }]) {
      for (const page of [1, 2]) yield* read({ ...defaultEntryQuery, id, page });
    }
    for (const orderBy of orders(entryFields)) {
      yield* read({ ...defaultEntryQuery, orderBy });
      const pages = orderBy.length === 1 ? [1, 3, 4, Number.MAX_SAFE_INTEGER] : [2];
      for (const page of pages) yield* read({ ...defaultEntryQuery, orderBy, limit: 4, page });
    }
    const texts = alikeUpTo(20_000).map((text) => entry(text, { answer: `${text}x` }));
    const longEntries = yield* conversation(chatbot, texts);
    for (const orderBy of orders(["question", "answer"])) {
      const query = { ...defaultEntryQuery, orderBy };
      const page = yield* history(chatbot, longEntries.chat.id, query);
      yield* same("long texts", page, entryPage(longEntries.entries, query));
    }
  }),

  check("a page and its total come from one snapshot, for chats and for entries", function* () {
    const chatbot = yield* newChatbot;
    const { id } = yield* create(chatbot, { name: "n" });
    const { second } = yield* StoreUnderTest;
    const store = yield* ChatStore;
    const writers = yield* Effect.forkChild(
      Effect.forEach(
        Array.from({ length: 60 }),
        () => Effect.andThen(create(chatbot, { name: "n" }), ask(chatbot, id, entry("q"))),
        { discard: true },
      ),
    );
    const queries: ReadonlyArray<Partial<ChatQuery>> = [
      {},
      { search: "n" },
      { orderBy: [{ field: "name", descending: false }] },
    ];
    for (let isWritten = false; !isWritten;) {
      // Read once more after everything is written.
      isWritten = writers.pollUnsafe() !== undefined;
      for (const chats of [store, second.chats]) {
        for (const query of queries) {
          const page = yield* chats.listChats(chatbot, {
            ...defaultChatQuery,
            limit: 100,
            ...query,
          });
          yield* same("as many chats as the total", page.items.length, page.total);
          if (isWritten) yield* same("all chats", page.total, 61);
        }
        for (const field of ["id", "question"] as const) {
          const orderBy = [{ field, descending: true }] as const;
          const page = yield* chats.listEntries(chatbot, id, {
            ...defaultEntryQuery,
            limit: 100,
            orderBy,
          });
          yield* same("as many entries as the total", page.items.length, page.total);
          if (isWritten) yield* same("all entries", page.total, 60);
        }
      }
      yield* Effect.yieldNow;
    }
  }),

  check("an unregistered chatbot has empty lists, and creating a chat in it fails", function* () {
    const chatbot = noChatbot;
    yield* failsWith("creating a chat", new ChatbotNotFound({ chatbot }), create(chatbot));
    for (const query of [{}, { search: "a" }, { userRef: "u" }, { id: 1 }]) {
      yield* same("the chats", yield* list(chatbot, query), { items: [], total: 0 });
    }
    const chatId = ChatId.make(1);
    yield* failsWith("reading a history", new ChatNotFound({ chatId }), history(chatbot, chatId));
  }),
];
