/**
 * What `ChatStore` promises.
 */
import { Effect } from "effect";
import { ChatStore, type ChatToCreate } from "../ChatStore.ts";
import { ChatNotFound, RetryKeyReused } from "../Errors.ts";
import {
  chatFields,
  entryFields,
  newest,
  newestChats,
  type ChatQuery,
  type EntryQuery,
} from "../ListQuery.ts";
import { retryKeyLifetime } from "../RetryKey.ts";
import type { TurnStore } from "../TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  alikeUpTo,
  anotherFingerprint,
  ask,
  atOnce,
  awkwardKeys,
  awkwardTexts,
  bare,
  conversation,
  create,
  createAll,
  entry,
  fingerprint,
  newChatbot,
  pass,
} from "./Fixtures.ts";
import { chatPage, entryPage } from "./Model.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";
import { watchedCheck } from "./Watched.ts";

const list = (chatbot: number, query: Partial<ChatQuery> = {}) =>
  ChatStore.use((store) => store.listChats(chatbot, { ...newestChats, ...query }));

const history = (chatbot: number, chat: number, query: Partial<EntryQuery> = {}) =>
  ChatStore.use((store) => store.listEntries(chatbot, chat, { ...newest, ...query }));

const createWith = (chatbot: number, chat: Partial<ChatToCreate>, key: string, of = fingerprint) =>
  ChatStore.use((store) =>
    store.createChat(chatbot, { ...bare, ...chat }, { key, fingerprint: of }),
  );

/** Every order of one field and of two, either way. */
const orders = <const Field extends string>(fields: ReadonlyArray<Field>) => {
  const directions = [true, false];
  const single = fields.flatMap((field) =>
    directions.map((descending) => [{ field, descending }] as const),
  );
  const double = single.flatMap(([first]) =>
    single
      .filter(([second]) => second.field !== first.field)
      .map(([second]) => [first, second] as const),
  );
  return [...single, ...double];
};

/** Some orders of three fields, also with the id before the last: what follows it decides nothing. */
const ordersOfThree = <const Field extends string>(fields: ReadonlyArray<Field>) =>
  orders(fields)
    .flatMap(([first, second]) =>
      second === undefined
        ? []
        : orders(fields).flatMap(([third, none]) =>
            none !== undefined || third.field === first.field || third.field === second.field
              ? []
              : [[first, second, third] as const],
          ),
    )
    .filter((_, n) => n % (fields.length - 1) === 0);

/** Chats with many ties and gaps: names and references of a few values, some absent. */
const tied: ReadonlyArray<Partial<ChatToCreate>> = Array.from({ length: 23 }, (_, n) => ({
  name: [null, "b", "a", "B", ""][n % 5]!,
  userRef: [null, "y", "x"][n % 3]!,
}));

export const chatStoreChecks: ReadonlyArray<Check<ChatStore | TurnStore | StoreUnderTest>> = [
  check(
    "a chat is listed and stored as it was returned",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const wanted: ReadonlyArray<Partial<ChatToCreate>> = [
        { name: "😀".repeat(255), userRef: "😀".repeat(60) },
        ...awkwardTexts.flatMap((text) => [
          { name: text, userRef: text },
          { name: text },
          { userRef: text, helloMessage: text },
        ]),
      ];
      const chats = yield* createAll(chatbot, wanted);
      yield* same(
        "what was asked for",
        chats.map(({ name, userRef }) => [name, userRef]),
        wanted.map(({ name = null, userRef = null }) => [name, userRef]),
      );
      const stored = yield* StoreUnderTest.use(({ peek }) => peek(chatbot));
      yield* same(
        "what lies in the storage",
        stored.map(({ entries: _, ...chat }) => chat),
        chats,
      );
      const { total } = yield* list(chatbot);
      yield* same("the total", total, chats.length);
      for (const chat of chats) {
        const one = yield* list(chatbot, { id: chat.id });
        yield* same("the listed chat", one, { items: [chat], total: 1 });
        yield* same("whole milliseconds", Number.isInteger(chat.createTime.getTime()), true);
      }
    }),
  ),

  check(
    "a chat and its hello entry are stored together",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const chats = yield* atOnce(awkwardTexts.length, (at) =>
        create(chatbot, { helloMessage: awkwardTexts[at]! }),
      );
      const stored = yield* StoreUnderTest.use(({ peek }) => peek(chatbot));
      for (const [at, chat] of chats.entries()) {
        const hello = {
          question: "",
          answer: awkwardTexts[at]!,
          moderation: "none",
          flagged: false,
        };
        const { items, total } = yield* history(chatbot, chat.id);
        yield* same("the history", [total, items.length], [1, 1]);
        const { id, chatId, createTime, ...rest } = items[0]!;
        yield* same("the hello entry", { chatId, ...rest }, { chatId: chat.id, ...hello });
        const { entries } = stored.find((other) => other.id === chat.id)!;
        yield* same("what lies in the storage", entries, [
          { ...hello, id, createTime, usage: null },
        ]);
      }
    }),
  ),

  check(
    "a chat without a hello message has no entries",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      yield* same("the history", yield* history(chatbot, id), { items: [], total: 0 });
      yield* same("past the end", yield* history(chatbot, id, { page: 7 }), {
        items: [],
        total: 0,
      });
    }),
  ),

  check(
    "ids are positive, below 2^53, and ascend in order of creation, as times do",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const chats = yield* createAll(chatbot, tied);
      for (const [at, { id, createTime }] of chats.entries()) {
        yield* same("a positive safe integer", Number.isSafeInteger(id) && id > 0, true);
        const before = chats[at - 1];
        if (before === undefined) continue;
        yield* same("an id above the one before", id > before.id, true);
        yield* same("a time not before the one before", createTime >= before.createTime, true);
      }
    }),
  ),

  check(
    "chats that are created at once are all kept, in one order of ids, times and positions",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { second } = yield* StoreUnderTest;
      const store = yield* ChatStore;
      const chats = yield* atOnce(64, (n) =>
        Effect.map(
          (n % 2 === 0 ? store : second.chats).createChat(
            chatbot,
            { name: `chat ${n}`, userRef: null, helloMessage: n % 3 === 0 ? "Hello" : null },
            null,
          ),
          ({ chat }) => chat,
        ),
      );
      yield* same(
        "every chat as it was asked for",
        chats.map(({ name }) => name),
        chats.map((_, n) => `chat ${n}`),
      );
      const ascending = chats.toSorted((a, b) => a.id - b.id);
      const stored = yield* StoreUnderTest.use(({ peek }) => peek(chatbot));
      yield* same(
        "what lies in the storage, by position",
        stored.map(({ entries: _, ...chat }) => chat),
        ascending,
      );
      const byTime = ascending.toSorted(
        (a, b) => a.createTime.getTime() - b.createTime.getTime() || a.id - b.id,
      );
      yield* same("the order of times", byTime, ascending);
      yield* same("the page", yield* list(chatbot, { limit: 100 }), {
        items: ascending.toReversed(),
        total: 64,
      });
    }),
  ),

  check(
    "every order of the chats is the contract's, page by page",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const chats = yield* createAll(chatbot, tied);
      for (const orderBy of orders(chatFields)) {
        for (const limit of [1, 7, 100]) {
          for (let page = 1; page <= Math.ceil(chats.length / limit) + 1; page++) {
            const query = { ...newestChats, orderBy, limit, page };
            yield* same(
              `the page of ${JSON.stringify(query)}`,
              yield* list(chatbot, query),
              chatPage(chats, query),
            );
            if (limit === 1 && page > 3) break;
          }
        }
      }
      for (const orderBy of ordersOfThree(chatFields)) {
        const query = { ...newestChats, orderBy, limit: 100 };
        yield* same(
          `the page of ${JSON.stringify(query)}`,
          yield* list(chatbot, query),
          chatPage(chats, query),
        );
      }
    }),
  ),

  check(
    "text sorts by code point, absent values after all others",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const chats = yield* createAll(chatbot, [
        {},
        ...awkwardTexts.map((text) => ({ name: text, userRef: text })),
        {},
      ]);
      for (const field of ["name", "userRef"] as const) {
        for (const descending of [false, true]) {
          const query = { ...newestChats, limit: 100, orderBy: [{ field, descending }] as const };
          yield* same(
            `by ${field}${descending ? ", descending" : ""}`,
            yield* list(chatbot, query),
            chatPage(chats, query),
          );
        }
      }
    }),
  ),

  check(
    "long texts sort by all of their code points",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const references = alikeUpTo(59);
      const chats = yield* createAll(
        chatbot,
        alikeUpTo(254).map((name, n) => ({ name, userRef: references[n]! })),
      );
      const { chat, entries } = yield* conversation(
        chatbot,
        alikeUpTo(20_000).map((text) => entry(text, { answer: text })),
      );
      for (const descending of [false, true]) {
        for (const field of ["name", "userRef"] as const) {
          const query = { ...newestChats, orderBy: [{ field, descending }] as const, id: null };
          const all = [...chats, { ...chat, name: null, userRef: null }];
          yield* same(`by ${field}`, yield* list(chatbot, query), chatPage(all, query));
        }
        for (const field of ["question", "answer"] as const) {
          const query = { ...newest, orderBy: [{ field, descending }] as const };
          const read = yield* history(chatbot, chat.id, query);
          yield* same(`by ${field}`, read, entryPage(entries, query));
        }
      }
    }),
  ),

  check(
    "a page past the end has no rows and the true total",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      yield* same("of no chats", yield* list(chatbot), { items: [], total: 0 });
      yield* createAll(chatbot, tied);
      for (const page of [2, 3, 1000, Number.MAX_SAFE_INTEGER]) {
        for (const orderBy of orders(chatFields)) {
          yield* same(`page ${page}`, yield* list(chatbot, { page, orderBy }), {
            items: [],
            total: tied.length,
          });
        }
      }
    }),
  ),

  check(
    "search finds literal, case-insensitive parts of names, and nothing else",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const chats = yield* createAll(chatbot, [
        {},
        ...awkwardTexts.map((name) => ({ name })),
        ...awkwardTexts.map((text) => ({ name: `before ${text} after` })),
        // Folding makes them longer.
        ...["ﬃ", "ﷺ", "İ"].map((sign) => ({ name: `${sign.repeat(254)}!` })),
      ]);
      const parts = ["before ", "r a", "%a", "i!", "م!", "ffi".repeat(254)];
      for (const search of [...awkwardTexts, ...parts, "nothing like it"]) {
        const query = { ...newestChats, search, limit: 100 };
        yield* same(
          `the chats found by ${JSON.stringify(search)}`,
          yield* list(chatbot, query),
          chatPage(chats, query),
        );
      }
    }),
  ),

  check(
    "userRef matches exactly",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const chats = yield* createAll(chatbot, [
        {},
        ...awkwardTexts.map((userRef) => ({ userRef })),
        ...awkwardTexts.map((userRef) => ({ userRef })),
      ]);
      for (const userRef of [...awkwardTexts, "nobody", "a "]) {
        const query = { ...newestChats, userRef };
        yield* same(
          `the chats of ${JSON.stringify(userRef)}`,
          yield* list(chatbot, query),
          chatPage(chats, query),
        );
      }
    }),
  ),

  check(
    "filters hold together, for the page and for the total",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const chats = yield* createAll(chatbot, [...tied, ...tied, ...tied, ...tied]);
      const some = orders(chatFields).filter((_, n) => n % 5 === 0);
      for (const search of [null, "", "B", "a"]) {
        for (const userRef of [null, "x", ""]) {
          for (const id of [null, chats[1]!.id, chats[2]!.id]) {
            for (const orderBy of some) {
              const query = { ...newestChats, search, userRef, id, orderBy, limit: 5, page: 2 };
              for (const page of id === null ? [1, 2, 4] : [1, 2]) {
                yield* same(
                  `the page of ${JSON.stringify({ ...query, page })}`,
                  yield* list(chatbot, { ...query, page }),
                  chatPage(chats, { ...query, page }),
                );
              }
            }
          }
        }
      }
    }),
  ),

  check(
    "one chatbot never sees or counts another's chats",
    Effect.fnUntraced(function* () {
      const ours = yield* newChatbot;
      const theirs = yield* newChatbot;
      const shared = { name: "shared", userRef: "shared", helloMessage: "Hello" };
      const chats = yield* createAll(theirs, [shared, shared]);
      yield* same("the chats", yield* list(ours), { items: [], total: 0 });
      const mine = yield* create(ours, { name: "shared", userRef: "shared" });
      // Ids are a chatbot's own: one of theirs may be the same as mine.
      const foreign = chats.find(({ id }) => id !== mine.id)!.id;
      const one = { items: [mine], total: 1 };
      yield* same("the chats", yield* list(ours), one);
      yield* same(
        "by name",
        yield* list(ours, { orderBy: [{ field: "name", descending: true }] }),
        one,
      );
      yield* same("found", yield* list(ours, { search: "share" }), one);
      yield* same("of a user", yield* list(ours, { userRef: "shared" }), one);
      yield* same("a foreign id", yield* list(ours, { id: foreign }), { items: [], total: 0 });
      yield* failsWith(
        "a foreign history",
        new ChatNotFound({ chatId: foreign }),
        history(ours, foreign),
      );
      yield* failsWith(
        "a foreign history by entry",
        new ChatNotFound({ chatId: foreign }),
        history(ours, foreign, { id: 1 }),
      );
    }),
  ),

  check(
    "the history of an unknown chat is not found",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      for (const unknown of [0, id + 1_000_000, Number.MAX_SAFE_INTEGER]) {
        const notFound = new ChatNotFound({ chatId: unknown });
        yield* failsWith(`chat ${unknown}`, notFound, history(chatbot, unknown));
        yield* failsWith(
          `chat ${unknown}, by question`,
          notFound,
          history(chatbot, unknown, { orderBy: [{ field: "question", descending: false }] }),
        );
      }
    }),
  ),

  check(
    "every order of a history is the contract's, page by page",
    Effect.fnUntraced(function* () {
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
      yield* conversation(chatbot, [entry("in another chat")]);
      for (const orderBy of orders(entryFields)) {
        for (const { limit, page } of [
          { limit: 4, page: 1 },
          { limit: 4, page: 3 },
          { limit: 100, page: 1 },
          { limit: 4, page: 4 },
          { limit: 100, page: Number.MAX_SAFE_INTEGER },
        ]) {
          const query = { ...newest, orderBy, limit, page };
          yield* same(
            `the page of ${JSON.stringify(query)}`,
            yield* history(chatbot, chat.id, query),
            entryPage(entries, query),
          );
        }
      }
      for (const orderBy of ordersOfThree(entryFields)) {
        const query = { ...newest, orderBy, limit: 100 };
        const page = yield* history(chatbot, chat.id, query);
        yield* same(`the page of ${JSON.stringify(query)}`, page, entryPage(entries, query));
      }
    }),
  ),

  check(
    "the id filter of a history counts what it matches",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { chat, entries } = yield* conversation(chatbot, [entry("a"), entry("b")]);
      const other = yield* ask(chatbot, null, entry("elsewhere"));
      for (const { id } of [...entries, other, { id: Number.MAX_SAFE_INTEGER }]) {
        for (const page of [1, 2]) {
          for (const orderBy of orders(entryFields).slice(0, 4)) {
            const query = { ...newest, id, page, orderBy };
            yield* same(
              `entry ${id}, page ${page}`,
              yield* history(chatbot, chat.id, query),
              entryPage(entries, query),
            );
          }
        }
      }
    }),
  ),

  check(
    "a page and its total are of one snapshot",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const writing = yield* Effect.forkChild(
        Effect.forEach(Array.from({ length: 90 }), () => create(chatbot, { name: "n" })),
      );
      while (true) {
        for (const query of [
          { limit: 100 },
          { limit: 100, search: "n" },
          { limit: 100, orderBy: [{ field: "name", descending: false }] as const },
        ]) {
          const { items, total } = yield* list(chatbot, query);
          yield* same("as many rows as the total says", items.length, total);
        }
        yield* Effect.yieldNow;
        if (writing.pollUnsafe() !== undefined) break;
      }
    }),
  ),

  check(
    "a page of a history and its total are of one snapshot",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      const { second } = yield* StoreUnderTest;
      const store = yield* ChatStore;
      const writing = yield* Effect.forkChild(
        Effect.forEach(Array.from({ length: 60 }), () => ask(chatbot, id, entry("q"))),
      );
      let written = false;
      while (!written) {
        // Once more when all is written.
        written = writing.pollUnsafe() !== undefined;
        for (const { listEntries } of [store, second.chats]) {
          for (const field of ["id", "_createTime", "question"] as const) {
            const query = { limit: 100, orderBy: [{ field, descending: true }] as const };
            const read = yield* listEntries(chatbot, id, { ...newest, ...query });
            yield* same("as many rows as the total says", read.items.length, read.total);
            if (written) yield* same("all that were written", read.total, 60);
          }
        }
        yield* Effect.yieldNow;
      }
    }),
  ),

  check(
    "a retry key gives the chat that it made before",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const wanted = { name: "n", userRef: "u", helloMessage: "Hello" };
      const first = yield* createWith(chatbot, wanted, "key");
      yield* same("the first time", first.replayed, false);
      yield* same("again", yield* createWith(chatbot, wanted, "key"), {
        ...first,
        replayed: true,
      });
      const other = yield* createWith(chatbot, wanted, "another key");
      yield* same("another key", [other.replayed, other.chat.id === first.chat.id], [false, false]);
      yield* failsWith(
        "the key of another request",
        new RetryKeyReused({ key: "key" }),
        createWith(chatbot, wanted, "key", anotherFingerprint),
      );
      const foreign = yield* createWith(yield* newChatbot, wanted, "key");
      yield* same("another chatbot's key", foreign.replayed, false);
      yield* same("the chats", (yield* list(chatbot)).total, 2);
      yield* same("its entries", (yield* history(chatbot, first.chat.id)).total, 1);
    }),
  ),

  check(
    "retry keys that differ at all are different keys",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const made = yield* Effect.forEach(awkwardKeys, (key) => createWith(chatbot, {}, key));
      for (const [n, { chat, replayed }] of made.entries()) {
        yield* same("the first time", replayed, false);
        const again = yield* createWith(chatbot, {}, awkwardKeys[n]!);
        yield* same("again", again, { chat, replayed: true });
      }
    }),
  ),

  check(
    "a retry key used at once by many makes one chat",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { second } = yield* StoreUnderTest;
      const store = yield* ChatStore;
      const created = yield* atOnce(20, (n) =>
        (n % 2 === 0 ? store : second.chats).createChat(
          chatbot,
          { ...bare, helloMessage: "Hello" },
          { key: "key", fingerprint: "f" },
        ),
      );
      yield* same("new ones", created.filter(({ replayed }) => !replayed).length, 1);
      yield* same("different ones", new Set(created.map(({ chat }) => chat.id)).size, 1);
      yield* same("the chats", (yield* list(chatbot)).total, 1);
    }),
  ),

  check(
    "a retry key is forgotten after 24 hours",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const first = yield* createWith(chatbot, {}, "key");
      yield* pass(retryKeyLifetime - 60_000);
      yield* same("before", (yield* createWith(chatbot, {}, "key")).replayed, true);
      yield* pass(61_000);
      const again = yield* createWith(chatbot, {}, "key", "another fingerprint");
      yield* same("after", [again.replayed, again.chat.id === first.chat.id], [false, false]);
    }),
  ),
].map(watchedCheck);
