/**
 * Checks that a store keeps the promises of `ChatArchive` about erasures, exports, imports and the cost of answers.
 */
import { Cause, Effect, Exit, Fiber, Result, Stream } from "effect";
import type { Chat } from "../model/Chat.ts";
import {
  ChatArchive,
  erasureDetail,
  type ArchiveRecord,
  type DatedErasure,
  type Erasable,
  type UsageSum,
} from "../ports/ChatArchive.ts";
import { ChatbotRegistry } from "../ports/ChatbotRegistry.ts";
import type { ChatStore } from "../ports/ChatStore.ts";
import { ChatbotNotFound, ChatNotFound, TurnLost } from "../model/Errors.ts";
import { ChatId } from "../model/Ids.ts";
import { defaultEntryQuery, defaultChatQuery } from "../model/ListQuery.ts";
import { turnLease, TurnStore } from "../ports/TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  actor,
  after,
  answerOf,
  append,
  ask,
  askLater,
  atOnce,
  auditOf,
  awkwardTexts,
  awkwardTimes,
  bare,
  chatPage,
  chatRecord,
  conversation,
  create,
  createAll,
  entry,
  entryRecord,
  erase,
  exportAll,
  fillChatbot,
  history,
  importAll,
  instances,
  keyOf,
  list,
  listsAre,
  newChatbot,
  noChatbot,
  pageIs,
  pass,
  questions,
  storedChats,
  tagOf,
  takeTurn,
  usage,
} from "./Fixtures.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

/** Earlier than any time on a test clock, which may start in 1970. */
const longAgo = new Date("1960-01-01T00:00:00Z");
const future = new Date("2900-01-01T00:00:00Z");
const key = keyOf("key");

const idle = (limit: Date): DatedErasure => ({ _tag: "IdleSince", limit });

/** So many chats, and so many entries in one chat, that no store reads or writes them all at once. */
const many = [
  ...Array.from({ length: 1_050 }, (_, n) => [
    chatRecord(n + 1, longAgo, { name: `chat ${n % 7}`, userRef: n % 5 === 0 ? "y" : "x" }),
    entryRecord(n + 1, n + 1, longAgo),
  ]).flat(),
  ...Array.from({ length: 600 }, (_, n) =>
    entryRecord(1_050, n + 2_000, longAgo, { answer: n % 9 ? "a" : "😀".repeat(5_000), usage }),
  ),
];

const chatsOf = (records: ReadonlyArray<ArchiveRecord>): ReadonlyArray<Chat> =>
  records.flatMap((record) => (record._tag === "Chat" ? [record.chat] : []));

const entriesOf = (records: ReadonlyArray<ArchiveRecord>, chat: number) =>
  records.flatMap((record) =>
    record._tag === "Entry" && record.entry.chatId === chat ? [record.entry] : [],
  );

/** The checks for `ChatArchive`, some of which run while other calls write. */
export const archiveChecks: ReadonlyArray<
  Check<ChatStore | TurnStore | ChatArchive | ChatbotRegistry | StoreUnderTest>
> = [
  check("erased chats are gone with their entries, and the lists stay exact", function* () {
    const [chatbot, others] = [yield* newChatbot, yield* newChatbot];
    const foreign = [...(yield* fillChatbot(others)), ...(yield* createAll(others, [bare, bare]))];
    let chats: ReadonlyArray<Chat> = yield* fillChatbot(chatbot);
    const { second } = yield* StoreUnderTest;
    const [early, late] = [chats[1]!.id, chats.at(-1)!.id];
    const erasures: ReadonlyArray<readonly [Erasable, (chat: Chat) => boolean]> = [
      [{ _tag: "Chat", id: early }, ({ id }) => id === early],
      [{ _tag: "Chat", id: late }, ({ id }) => id === late],
      [{ _tag: "UserRef", userRef: "x" }, ({ userRef }) => userRef === "x"],
      [{ _tag: "UserRef", userRef: "X" }, () => false],
      [{ _tag: "Chat", id: ChatId.make(Number.MAX_SAFE_INTEGER) }, () => false],
      [{ _tag: "All" }, () => true],
    ];
    yield* listsAre(chatbot, chats);
    for (const [which, isErased] of erasures) {
      const erasedChats = chats.filter(isErased);
      const archive = which._tag === "All" ? second.archive : yield* ChatArchive;
      const count = yield* archive.erase(chatbot, which, actor);
      yield* same("the number of erased chats", count, erasedChats.length);
      for (const { id } of erasedChats) {
        yield* failsWith("its history", new ChatNotFound({ chatId: id }), history(chatbot, id));
      }
      chats = chats.filter((chat) => !erasedChats.includes(chat));
      chats = [...chats, yield* create(chatbot, { name: "chat 1", userRef: "y" })];
      yield* listsAre(chatbot, chats);
    }
    yield* listsAre(others, foreign);
  }),

  check("after an erasure, ids are not reused, and times do not go back", function* () {
    const chatbot = yield* newChatbot;
    const keptChat = yield* create(chatbot);
    let [chatId, entryId, time] = [keptChat.id, 0, keptChat.createTime];
    for (let n = 0; n < 3; n++) {
      const chat = yield* create(chatbot);
      yield* same("the id is higher", chat.id > chatId, true);
      yield* same("the time is not earlier", chat.createTime >= time, true);
      [chatId, time] = [chat.id, chat.createTime];
      for (const target of [chat, keptChat]) {
        const { id } = yield* ask(chatbot, target.id, entry("q"));
        yield* same("the entry's id is higher", id > entryId, true);
        entryId = id;
        if (target === chat) yield* erase(chatbot, { _tag: "Chat", id: chat.id });
      }
    }
  }),

  check("erasing very many chats keeps pages and totals exact", function* () {
    const chatbot = yield* newChatbot;
    yield* importAll(chatbot, many);
    const keptChats = chatsOf(many).filter(({ userRef }) => userRef === "y");
    const count = yield* erase(chatbot, { _tag: "UserRef", userRef: "x" });
    yield* same("the number of erased chats", count, 1_050 - keptChats.length);
    for (const more of [{}, { userRef: "y" }, { search: "CHAT 3" }]) {
      for (const field of ["id", "name"] as const) {
        for (const page of [1, 2, 3]) {
          const orderBy = [{ field, descending: true }] as const;
          yield* pageIs(chatbot, keptChats, { ...more, orderBy, limit: 100, page });
        }
      }
    }
  }),

  check("a chat is idle from its last entry or, if it has none, its creation", function* () {
    const chatbot = yield* newChatbot;
    const turns = yield* TurnStore;
    const [unused, used] = yield* createAll(chatbot, [{ helloMessage: "Hello" }, {}]);
    const { createTime: limit } = yield* askLater(chatbot, used!.id, unused!.createTime);
    // Reading does not count as use, nor does a turn without an entry.
    yield* history(chatbot, unused!.id);
    yield* turns.release(yield* takeTurn(chatbot, unused!.id));
    const late = yield* takeTurn(chatbot, unused!.id);
    yield* pass(turnLease + 1);
    yield* turns.renew(late);
    yield* same("the number of erased chats", yield* erase(chatbot, idle(limit)), 1);
    yield* same("the used chat is left", (yield* list(chatbot)).items, [used]);
    yield* erase(chatbot, { _tag: "All" });
    // Imported chats and entries keep their times.
    const askedAt = new Date("1965-01-01T00:00:00Z");
    const records = [chatRecord(1, longAgo), chatRecord(2, longAgo), entryRecord(2, 1, askedAt)];
    yield* importAll(chatbot, records);
    for (const [limit, expected] of [
      [longAgo, 0],
      [new Date(longAgo.getTime() + 1), 1],
      [askedAt, 0],
      [new Date(askedAt.getTime() + 1), 1],
    ] as const) {
      yield* same(
        `idle since ${limit.toISOString()}`,
        yield* erase(chatbot, idle(limit)),
        expected,
      );
    }
  }),

  check("the store's clock decides how long a chat has been idle", function* () {
    const chatbot = yield* newChatbot;
    const { now } = yield* ChatbotRegistry;
    const before = (yield* now).getTime();
    const ago = (minutes: number) => new Date(before - minutes * 60_000);
    const records = [chatRecord(1, ago(90)), chatRecord(2, ago(80)), entryRecord(2, 1, ago(30))];
    yield* importAll(chatbot, records);
    for (const [minutes, expected] of [
      [91, 0],
      [60, 1],
      [31, 0],
      [29, 1],
    ] as const) {
      const which = { _tag: "IdleFor", millis: minutes * 60_000 } as const;
      yield* same(`idle for ${minutes} minutes`, yield* erase(chatbot, which), expected);
    }
    const [line] = (yield* auditOf(chatbot)).slice(-1);
    const [, limit] = /^conformance erase 1 chat idle since (.*)$/.exec(line!) ?? [];
    const late = Date.parse(limit ?? "") - ago(29).getTime();
    yield* same("the limit in the audit log", late >= 0 && late < 60_000, true);
  }),

  check("an ask in an erased chat stores no entry, and its key is forgotten", function* () {
    const chatbot = yield* newChatbot;
    const turns = yield* TurnStore;
    for (const idempotencyKey of [null, key]) {
      for (const renewals of [0, 2]) {
        const { id } = yield* create(chatbot);
        const turn = yield* takeTurn(chatbot, id, idempotencyKey);
        for (let n = 0; n < renewals; n++) yield* turns.renew(turn);
        yield* erase(chatbot, { _tag: "Chat", id });
        const notFound = new ChatNotFound({ chatId: id });
        yield* failsWith("another take", notFound, turns.take(chatbot, id, idempotencyKey));
        yield* failsWith("the renewal", notFound, turns.renew(turn));
        yield* failsWith("the append", notFound, append(turn, entry("q")));
        yield* same("earlier entries", yield* turns.earlier(turn, 2 ** 53 - 1), []);
        // The ask's key is free, whether or not the ask has ended.
        if (renewals > 0) yield* turns.release(turn, { apiKeyId: "k", tokens: 5 });
        yield* turns.release(yield* takeTurn(chatbot, null, keyOf("key", 1)));
      }
    }
    yield* same("the tokens spent", (yield* turns.spending(chatbot, "k")).tokens, 10);
    yield* same("the stored chats", yield* storedChats(chatbot), []);
  }),

  check("an erasure leaves the turns, keys and queues of other chats as they are", function* () {
    const chatbot = yield* newChatbot;
    const [first, second] = yield* instances;
    const [goneChat, other] = yield* createAll(chatbot, [{}, {}]);
    const turns = yield* Effect.forEach([other!.id, null], (chat) =>
      takeTurn(chatbot, chat, keyOf(`key of ${chat}`)),
    );
    const secondTake = yield* second.turns.take(chatbot, other!.id, null);
    yield* same("the second instance waits", secondTake._tag, "Held");
    yield* erase(chatbot, { _tag: "Chat", id: goneChat!.id });
    for (const turn of turns) {
      yield* same("the renewal", yield* first.turns.renew(turn), true);
      const again = first.turns.take(chatbot, turn.chatId, turn.idempotencyKey);
      yield* same("the key is held", (yield* again)._tag, "Held");
      const newEntry = yield* append(turn, entry("q"));
      yield* same("afterwards", yield* again, answerOf(turn, newEntry));
    }
    const early = yield* first.turns.take(chatbot, other!.id, null);
    yield* same("the first instance does not overtake", early._tag, "Held");
  }),

  check("the keys of an erased chat are forgotten, and no others", function* () {
    const [{ chats, turns }, second] = yield* instances;
    for (const isUser of [true, false]) {
      const [chatbot, twin] = [yield* newChatbot, yield* newChatbot];
      const creation = chats.createChat(chatbot, { ...bare, userRef: "u" }, keyOf("created"));
      const { chat } = yield* creation;
      yield* append(yield* takeTurn(chatbot, chat.id, keyOf("asked")), entry("q"));
      const keptEntry = yield* append(yield* takeTurn(chatbot, null, keyOf("kept")), entry("kept"));
      // A key can be used in another chat once its turn is released.
      yield* turns.release(yield* takeTurn(chatbot, chat.id, keyOf("moved")));
      yield* append(yield* takeTurn(chatbot, keptEntry.chatId, keyOf("moved")), entry("moved"));
      // Two chatbots may have chats with the same id, and may use the same idempotency key.
      yield* importAll(twin, yield* exportAll(chatbot));
      yield* append(yield* takeTurn(twin, chat.id, keyOf("asked")), entry("q"));
      yield* same("the key before the erasure", yield* creation, { chat, replayed: true });
      const which: Erasable = isUser
        ? { _tag: "UserRef", userRef: "u" }
        : { _tag: "Chat", id: chat.id };
      yield* same("the erased chats", yield* second.archive.erase(chatbot, which, actor), 1);
      for (const [of, chatId, name] of [
        [twin, chat.id, "asked"],
        [chatbot, keptEntry.chatId, "kept"],
        [chatbot, keptEntry.chatId, "moved"],
      ] as const) {
        const outcome = yield* turns.take(of, chatId, keyOf(name));
        yield* same(`the key "${name}"`, outcome._tag, "AlreadyAnswered");
      }
      yield* same("the creation's key", (yield* creation).replayed, false);
      yield* turns.release(yield* takeTurn(chatbot, null, keyOf("asked", 1)));
    }
  }),

  check("an erasure also forgets keys of visitors' asks that have no chat yet", function* () {
    const [{ turns }, second] = yield* instances;
    const users = ["u", "U", "v\nu", "u\nv", "%", null];
    const erasures: ReadonlyArray<readonly [Erasable, (user: string | null) => boolean]> = [
      [{ _tag: "Chat", id: ChatId.make(1) }, () => false],
      [{ _tag: "UserRef", userRef: "u" }, (user) => user === "u"],
      [{ _tag: "UserRef", userRef: "v\nu" }, (user) => user === "v\nu"],
      [{ _tag: "UserRef", userRef: "%" }, (user) => user === "%"],
      [{ _tag: "IdleFor", millis: turnLease }, () => false],
      [idle(new Date("2100-01-01")), (user) => user !== null],
      [{ _tag: "All" }, (user) => user !== null],
    ];
    for (const [which, isErased] of erasures) {
      const [chatbot, twin] = [yield* newChatbot, yield* newChatbot];
      const heldTurns = yield* Effect.forEach(users, (user) =>
        takeTurn(chatbot, null, keyOf(user === null ? "k" : `k\n${user}`), turns, user),
      );
      const inTwin = yield* takeTurn(twin, null, keyOf("k\nu"), turns, "u");
      yield* same("the chats", yield* second.archive.erase(chatbot, which, actor), 0);
      yield* same("the renewal in another chatbot", yield* turns.renew(inTwin), true);
      for (const [n, user] of users.entries()) {
        const turn = heldTurns[n]!;
        const { _tag, ...rest } = which;
        const name = `the turn of ${user} after ${_tag} ${JSON.stringify(rest)}`;
        yield* same(name, yield* turns.renew(turn), !isErased(user));
        if (!isErased(user)) yield* append(turn, entry("q"));
        else {
          yield* failsWith(name, new TurnLost(), append(turn, entry("q")));
          const other = keyOf(turn.idempotencyKey!.key, 1);
          yield* turns.release(yield* takeTurn(chatbot, null, other, turns, user));
        }
      }
    }
  }),

  check("erasures, exports and imports add one entry each to the audit log", function* () {
    const archive = yield* ChatArchive;
    const chatbot = yield* newChatbot;
    const before = yield* auditOf(chatbot);
    const user = { userRef: "secret" };
    const [{ id }] = (yield* createAll(chatbot, [user, user, {}, {}])) as [Chat];
    yield* archive.erase(chatbot, { _tag: "Chat", id }, "ann");
    yield* archive.erase(chatbot, { _tag: "Chat", id }, "ann");
    yield* archive.erase(chatbot, idle(longAgo), "ann");
    yield* archive.erase(chatbot, { _tag: "UserRef", ...user, digest: "d1" }, "bob");
    // The audit log's entry for an export is written when the export begins.
    yield* Stream.runDrain(Stream.take(archive.export(chatbot, "cat"), 1));
    yield* Stream.runDrain(archive.export(chatbot, "cat", { ...user, digest: "d2" }));
    const importChats = archive.import(chatbot, Stream.make(chatRecord(1, longAgo)), "dan");
    yield* failsWith("a rejected import", "ImportRefused", importChats);
    yield* archive.erase(chatbot, idle(future), "eve");
    const records = [chatRecord(1, longAgo), chatRecord(2, longAgo), chatRecord(3, longAgo)];
    yield* archive.import(chatbot, Stream.fromIterable(records), "fay");
    yield* archive.erase(chatbot, { _tag: "All" }, "guy");
    yield* archive.import(chatbot, Stream.empty, "hal");
    yield* same("the audit log", (yield* auditOf(chatbot)).slice(before.length), [
      `ann erase ${erasureDetail({ _tag: "Chat", id }, 1)}`,
      "bob erase 1 chat of a userRef d1",
      "cat export ",
      "cat export a userRef d2",
      `eve erase ${erasureDetail(idle(future), 2)}`,
      "fay import 3 chats",
      "guy erase 3 chats",
      "hal import 0 chats",
    ]);
  }),

  check("an export contains all rows in order, and an import restores them", function* () {
    const archive = yield* ChatArchive;
    const [from, to] = [yield* newChatbot, yield* newChatbot];
    const chats = [
      ...(yield* fillChatbot(from)),
      ...(yield* createAll(
        from,
        awkwardTexts.map((text) => ({ name: `before ${text} after`, userRef: text })),
      )),
    ].filter(({ userRef }) => userRef !== "x");
    for (const none of ["promptTokens", "completionTokens", "latencyMillis"] as const) {
      yield* ask(from, chats[0]!.id, entry(none, { usage: { ...usage, [none]: 0 } }));
    }
    yield* erase(from, { _tag: "UserRef", userRef: "x" });
    const records = yield* exportAll(from);
    yield* same("its chats", chatsOf(records), chats);
    for (const { id } of chats) {
      const orderBy = [{ field: "id", descending: false }] as const;
      const { items } = yield* history(from, id, { orderBy });
      yield* same("its entries", entriesOf(records, id), items);
    }
    const count = yield* archive.import(to, archive.export(from, actor), actor);
    yield* same("the number of imported chats", count, chats.length);
    yield* same("the copy", yield* exportAll(to), records);
    yield* listsAre(to, chats);
    for (const text of awkwardTexts) {
      yield* pageIs(to, chats, { limit: 100, search: text });
      yield* pageIs(to, chats, { limit: 100, userRef: text });
    }
    const [{ id }] = chats as [Chat];
    const later = yield* ask(to, id, entry("later"));
    const { items, total } = yield* history(to, id, { limit: 1 });
    const expected = [later.id, entriesOf(records, id).length + 1];
    yield* same("the newest entry and the total", [items[0]?.id, total], expected);
  }),

  check("a user's export contains only that user's chats", function* () {
    const archive = yield* ChatArchive;
    const [chatbot, other] = [yield* newChatbot, yield* newChatbot];
    for (const id of [chatbot, other]) {
      for (const userRef of ["u", null, "U", "u", "u "]) {
        const chat = yield* create(id, { userRef });
        yield* ask(id, chat.id, entry("q", { usage }));
      }
    }
    const whole = yield* exportAll(chatbot);
    const chats = new Set(chatsOf(whole).flatMap(({ id, userRef }) => (userRef === "u" ? id : [])));
    const expected = whole.filter((record) =>
      chats.has(record._tag === "Chat" ? record.chat.id : record.entry.chatId),
    );
    for (const [userRef, records] of [
      ["u", expected],
      ["nobody", []],
    ] as const) {
      const userRecords = yield* Stream.runCollect(archive.export(chatbot, actor, { userRef }));
      yield* same(userRef, userRecords, records);
    }
  }),

  check("an export is one snapshot, whatever is written while it is read", function* () {
    const archive = yield* ChatArchive;
    const [small, large] = [yield* newChatbot, yield* newChatbot];
    yield* fillChatbot(small);
    yield* importAll(large, many);
    for (const chatbot of [small, large]) {
      const before = yield* exportAll(chatbot);
      if (chatbot === large) yield* same("the records", before, many);
      const chats = chatsOf(before);
      const meanwhile = Effect.gen(function* () {
        yield* ask(chatbot, chats.at(-1)!.id, entry("meanwhile"));
        yield* erase(chatbot, { _tag: "Chat", id: chats.at(-2)!.id });
        yield* create(chatbot, { name: "meanwhile" });
      });
      let count = 0;
      const recordsRead = yield* archive.export(chatbot, actor).pipe(
        Stream.tap(() => (count++ % 400 === 0 ? meanwhile : Effect.void)),
        Stream.runCollect,
      );
      yield* same("the records", recordsRead, before);
      // An export that is not read to its end blocks no other call.
      yield* Stream.runDrain(Stream.take(archive.export(chatbot, actor), 1));
      yield* create(chatbot, { name: "afterwards" });
      const { total } = yield* list(chatbot);
      yield* same("the next export", chatsOf(yield* exportAll(chatbot)).length, total);
    }
  }),

  check("copies of a chatbot run concurrently, while another chatbot is written to", function* () {
    const [{ archive }, second] = yield* instances;
    const [from, other] = [yield* newChatbot, yield* newChatbot];
    yield* importAll(from, many);
    const copy = () =>
      Effect.gen(function* () {
        const to = yield* newChatbot;
        // Each copy reads two exports in lockstep, and erases a chat of another chatbot between two records.
        const exports = Stream.zip(archive.export(from, actor), second.archive.export(from, actor));
        const { id } = yield* create(other);
        const erasure = archive.erase(other, { _tag: "Chat", id }, actor);
        const records = Stream.zipWithIndex(exports).pipe(
          Stream.tap(([, at]) => (at === 2_000 ? erasure : Effect.void)),
          Stream.map(([[record]]) => record),
        );
        yield* archive.import(to, records, actor);
        yield* same("a copy", yield* exportAll(to), many);
      });
    const copies = Effect.as(atOnce(3, copy), "in time");
    yield* same("three copies", yield* Effect.raceFirst(copies, after(20_000)), "in time");
    yield* same("the chats that were erased meanwhile", (yield* list(other)).total, 0);
  }),

  check("times are kept to the millisecond, and compared as times", function* () {
    const archive = yield* ChatArchive;
    const chatbot = yield* newChatbot;
    const records = awkwardTimes.flatMap((time, n) => [
      chatRecord(n + 1, time),
      entryRecord(n + 1, n + 1, time, { usage }),
    ]);
    yield* importAll(chatbot, records);
    yield* same("the export", yield* exportAll(chatbot), records);
    for (const descending of [true, false]) {
      const orderBy = [{ field: "createTime", descending }] as const;
      yield* pageIs(chatbot, chatsOf(records), { orderBy });
    }
    for (const [n, time] of awkwardTimes.entries()) {
      const [sum] = yield* archive.usage(chatbot, time);
      yield* same("the answers since", sum?.answers, awkwardTimes.length - n);
    }
    for (const [n, limit] of awkwardTimes.entries()) {
      yield* same("the chats idle since", yield* erase(chatbot, idle(limit)), n === 0 ? 0 : 1);
    }
  }),

  check("after an import, ids and times continue from the imported ones", function* () {
    const now = (yield* create(yield* newChatbot)).createTime;
    const soon = new Date(now.getTime() + 3_600_000);
    const last = new Date(soon.getTime() + 5_000);
    const far = 1_000_000_000;
    for (const { archive, chats } of yield* instances) {
      const chatbot = yield* newChatbot;
      const records = [
        chatRecord(1, longAgo),
        chatRecord(far, soon),
        // The highest entry id need not be in the last chat.
        entryRecord(far, far + 90_000, last),
        chatRecord(far + 1, last),
        entryRecord(far + 1, far + 7, last),
      ];
      yield* archive.import(chatbot, Stream.fromIterable(records), actor);
      const { chat } = yield* chats.createChat(chatbot, { ...bare, helloMessage: "Hi" }, null);
      yield* same("the chat's id is higher", chat.id > far + 1, true);
      yield* same("the chat's time is not earlier", chat.createTime >= last, true);
      const [hello] = (yield* chats.listEntries(chatbot, chat.id, defaultEntryQuery)).items;
      yield* same("the entry's time is not earlier", hello!.createTime >= chat.createTime, true);
      const newEntry = yield* ask(chatbot, ChatId.make(far), entry("later"));
      yield* same("the entry's id is higher", newEntry.id > far + 90_000, true);
      yield* same("the entry's time is not earlier", newEntry.createTime >= last, true);
      const { chatId } = yield* ask(chatbot, null, entry("in a new chat"));
      const { items } = yield* list(chatbot, {
        orderBy: [{ field: "createTime", descending: true }],
      });
      const ids = items.map(({ id }) => id);
      yield* same("the chats by time", ids, [chatId, chat.id, far + 1, far, 1]);
      // This holds even when no chat with a future time is left.
      yield* erase(chatbot, { _tag: "All" });
      yield* importAll(chatbot, [chatRecord(1, longAgo)]);
      const next = yield* create(chatbot);
      yield* same("the time is not before an erased chat's", next.createTime >= last, true);
    }
  }),

  check("chatbots whose chats and entries have equal ids do not affect each other", function* () {
    const [archive, turns] = [yield* ChatArchive, yield* TurnStore];
    const from = yield* newChatbot;
    const { chat, entries } = yield* conversation(from, [entry("a"), entry("b")]);
    const twins = [from, yield* newChatbot, yield* newChatbot] as const;
    for (const twin of twins.slice(1)) yield* importAll(twin, yield* exportAll(from));
    const heldTurns = yield* Effect.forEach(twins, (twin, n) =>
      takeTurn(twin, chat.id, keyOf("key", n)),
    );
    for (const turn of heldTurns) {
      yield* same("the entries of a take", turn.newest, entries.toReversed());
      yield* same("the renewal", yield* turns.renew(turn), true);
      yield* same("earlier entries", yield* turns.earlier(turn, entries[1]!.id), [entries[0]]);
    }
    yield* turns.release(heldTurns[2]!);
    yield* append(heldTurns[0]!, entry("first", { usage }));
    yield* append(heldTurns[1]!, entry("second"));
    for (const [n, more] of [["first"], ["second"], []].entries()) {
      yield* same("the questions", yield* questions(twins[n]!), [["a", "b", ...more]]);
      const all = yield* archive.usage(twins[n]!, longAgo);
      const sums = all.filter(({ provider }) => provider !== null);
      yield* same("the usage", sums.length, n === 0 ? 1 : 0);
    }
    yield* erase(twins[1], { _tag: "Chat", id: chat.id });
    for (const [n, total] of [1, 0, 1].entries()) {
      yield* same("the chat", (yield* list(twins[n]!, { id: chat.id })).total, total);
    }
  }),

  check("an import with records out of order, or a wrong id or time, writes nothing", function* () {
    const to = yield* newChatbot;
    const sooner = new Date(longAgo.getTime() - 1);
    const chat = (id: number, time = longAgo) => chatRecord(id, time);
    const entryOf = (chat: number, id: number, time = longAgo) => entryRecord(chat, id, time);
    const wrong: Record<string, ReadonlyArray<ArchiveRecord>> = {
      "a repeated chat id": [chat(1), chat(1)],
      "chats in descending order": [chat(2), chat(1)],
      "a repeated entry id": [chat(1), entryOf(1, 1), entryOf(1, 1)],
      "an entry id from an earlier chat": [...many, chat(2_000), entryOf(2_000, 1)],
      "an entry before any chat": [entryOf(1, 1), chat(1)],
      "an entry in no chat": [entryOf(0, 1)],
      "an entry in an earlier chat": [chat(1), chat(2), entryOf(1, 1)],
      "chat times that go back": [chat(1), chat(2, sooner)],
      "an entry older than its chat": [chat(1), entryOf(1, 1, sooner)],
      "entry times that go back": [chat(1, sooner), entryOf(1, 1), entryOf(1, 2, sooner)],
      ...Object.fromEntries(
        [0, -1, 1.5, 2 ** 53 - 2 ** 40 + 1, 2 ** 53].map((id) => [`the id ${id}`, [chat(id)]]),
      ),
      ...Object.fromEntries(
        [Number.NaN, -8e15, 8e15].map((time) => [`the time ${time}`, [chat(1, new Date(time))]]),
      ),
    };
    for (const [what, records] of Object.entries(wrong)) {
      yield* failsWith(what, "ImportRefused", importAll(to, records));
    }
    yield* same("the stored chats", yield* storedChats(to), []);
  }),

  check("an import that fails writes nothing, and keeps what other calls write", function* () {
    const turns = yield* TurnStore;
    const [from, to] = [yield* newChatbot, yield* newChatbot];
    const { chat } = yield* conversation(from, [entry("a")]);
    const before = yield* exportAll(from);
    yield* failsWith("into a chatbot that has chats", "ImportRefused", importAll(from, before));
    const records = Stream.die(new Error("The import read the records before it was rejected"));
    const refusal = ChatArchive.use((archive) => archive.import(from, records, actor));
    yield* failsWith("before the records are read", "ImportRefused", refusal);
    yield* same("the rows of the chatbot", yield* exportAll(from), before);
    const turn = yield* takeTurn(to, null, key);
    const askNow = ask(from, chat.id, entry("meanwhile"));
    const failure = Effect.as(askNow, Stream.fail({ _tag: "Broken" as const }));
    for (const { archive } of yield* instances) {
      const records = Stream.fromIterable([...many, chatRecord(2_000, future)]);
      const brokenRecords = Stream.concat(records, Stream.unwrap(failure));
      yield* failsWith("a broken import", "Broken", archive.import(to, brokenRecords, actor));
      const endless = Stream.concat(records, Stream.never);
      const importFiber = yield* Effect.forkChild(archive.import(to, endless, actor));
      yield* after(20);
      yield* Fiber.interrupt(importFiber);
    }
    yield* same("the stored chats", yield* storedChats(to), []);
    yield* same("asks meanwhile", yield* questions(from), [["a", "meanwhile", "meanwhile"]]);
    yield* same("a turn meanwhile", yield* turns.renew(turn), true);
    const { createTime } = yield* append(turn, entry("q"));
    yield* same("the current time", createTime < future, true);
  }),

  check("a chat that is created during an import comes after the imported ones", function* () {
    const [{ archive }, second] = yield* instances;
    for (const isAsked of [false, true]) {
      const chatbot = yield* newChatbot;
      const turn = yield* takeTurn(chatbot, null);
      const createOnce = yield* Effect.cached(
        Effect.gen(function* () {
          if (isAsked) return (yield* second.turns.append(turn, entry("q"))).chatId;
          return (yield* second.chats.createChat(chatbot, bare, null)).chat.id;
        }),
      );
      const meanwhile = Effect.gen(function* () {
        yield* Effect.forkDetach(createOnce, { startImmediately: true });
        // The creation may have to wait for the import.
        yield* Effect.raceFirst(Effect.exit(createOnce), after(100));
      });
      // The imported ids are higher than the id of a chat that was created before the import.
      const { id } = yield* create(yield* newChatbot);
      const records = Array.from({ length: 1_050 }, (_, n) => chatRecord(id + 1_000 + n, longAgo));
      const stream = Stream.fromIterable(records).pipe(
        Stream.tap((record) => (record === records.at(-1) ? meanwhile : Effect.void)),
      );
      const tag = yield* tagOf(archive.import(chatbot, stream, actor));
      if (tag !== "success") yield* same("the import's failure", tag, "ImportRefused");
      const creation = yield* Effect.result(createOnce);
      if (Result.isFailure(creation))
        yield* same("the creation's failure", creation.failure._tag, "Overloaded");
      const ids = [
        ...(tag === "success" ? chatsOf(records).map((chat) => chat.id) : []),
        ...(Result.isSuccess(creation) ? [creation.success] : []),
      ];
      const inStore = (yield* storedChats(chatbot)).map(({ chat }) => chat.id);
      yield* same("the stored chats", inStore, ids);
      const page = (yield* list(chatbot)).items.map((chat) => chat.id);
      yield* same("the newest", page, ids.slice(-25).toReversed());
    }
  }),

  check("lists stay exact while two instances create and erase chats concurrently", function* () {
    const chatbot = yield* newChatbot;
    const both = yield* instances;
    let erasedCount = 0;
    const write = (n: number) =>
      Effect.gen(function* () {
        const { archive, chats } = both[n % 2]!;
        for (const name of ["gone", "kept", "gone", "kept", "gone", "kept"]) {
          yield* chats.createChat(chatbot, { ...bare, name, userRef: name }, null);
          if (n > 1) continue;
          const count = yield* archive.erase(chatbot, { _tag: "UserRef", userRef: "gone" }, actor);
          erasedCount += count;
        }
      });
    const queries = [
      {},
      { userRef: "gone" },
      { search: "GO" },
      { orderBy: [{ field: "name", descending: false }] as const },
    ].map((more) => ({ ...defaultChatQuery, limit: 100, ...more }));
    const writers = yield* Effect.forkChild(atOnce(6, write), { startImmediately: true });
    while (writers.pollUnsafe() === undefined) {
      for (const [n, query] of queries.entries()) {
        const { items, total } = yield* both[n % 2]!.chats.listChats(chatbot, query);
        yield* same("as many chats as the total", items.length, total);
        yield* same("the order of the chats", items, chatPage(items, query).items);
      }
      yield* Effect.yieldNow;
    }
    yield* Fiber.join(writers);
    const all = (yield* storedChats(chatbot)).map(({ chat }) => chat);
    yield* same("no chat is lost", all.length + erasedCount, 36);
    yield* same("the kept chats", all.filter(({ name }) => name === "kept").length, 18);
    for (const { chats } of both) {
      for (const query of queries) {
        yield* same("the final list", yield* chats.listChats(chatbot, query), chatPage(all, query));
      }
    }
  }),

  check("a chat that is read while it is being erased is complete or not found", function* () {
    const both = yield* instances;
    const chatbot = yield* newChatbot;
    for (let round = 0; round < 10; round++) {
      const { chat, entries } = yield* conversation(chatbot, [entry("a"), entry("b")]);
      const read = (n: number) =>
        Effect.gen(function* () {
          const { chats, turns } = both[n % 2]!;
          while (true) {
            const page = yield* chats.listEntries(chatbot, chat.id, defaultEntryQuery);
            yield* same("its history", page, { items: entries.toReversed(), total: 2 });
            const outcome = yield* turns.take(chatbot, chat.id, null);
            yield* Effect.yieldNow;
            if (outcome._tag !== "TurnTaken") continue;
            yield* same("its newest entries", outcome.turn.newest, entries.toReversed());
            yield* turns.release(outcome.turn);
          }
        }).pipe(Effect.catchTag("ChatNotFound", () => Effect.void));
      const readers = yield* Effect.forkChild(atOnce(4, read), { startImmediately: true });
      yield* after(round % 5);
      const counts = yield* atOnce(4, (n) =>
        both[n % 2]!.archive.erase(chatbot, { _tag: "Chat", id: chat.id }, actor),
      );
      yield* same("how often it was erased", counts.toSorted(), [0, 0, 0, 1]);
      yield* Fiber.join(readers);
    }
  }),

  check("an interrupted call leaves nothing half done, and blocks no other call", function* () {
    const chatbot = yield* newChatbot;
    const both = yield* instances;
    const hello = { ...bare, name: "n", helloMessage: "Hello" };
    const chatIds: Array<ChatId> = [];
    for (let n = 0; n < 30; n++) {
      const { archive, chats, turns } = both[n % 2]!;
      const { id } = yield* create(chatbot);
      chatIds.push(id);
      const calls: ReadonlyArray<Effect.Effect<unknown, unknown>> = [
        chats.createChat(chatbot, hello, null),
        chats.createChat(chatbot, hello, keyOf(`chat ${n}`)),
        Effect.flatMap(turns.take(chatbot, id, keyOf(`key ${id}`)), (outcome) =>
          outcome._tag === "TurnTaken" ? turns.append(outcome.turn, entry("q")) : Effect.void,
        ),
        archive.erase(chatbot, { _tag: "UserRef", userRef: "nobody" }, actor),
      ];
      const fibers = yield* Effect.forEach(calls, (call) => Effect.forkChild(call));
      for (let step = 0; step < n % 5; step++) yield* Effect.yieldNow;
      if (n % 2 === 1) yield* after(n % 8);
      yield* Fiber.interruptAll(fibers);
      for (const fiber of fibers) {
        const exit = yield* Fiber.await(fiber);
        if (Exit.isFailure(exit) && !Cause.hasInterruptsOnly(exit.cause)) yield* exit;
      }
    }
    const before = yield* storedChats(chatbot);
    yield* after(20);
    yield* same("nothing is written afterwards", yield* storedChats(chatbot), before);
    for (const { chat, entries } of before) {
      yield* same("the total", (yield* history(chatbot, chat.id)).total, entries.length);
      if (chat.name === "n") yield* same("its hello entry", entries.length, 1);
    }
    yield* pass(turnLease + 1);
    for (const id of chatIds) {
      const { turns } = both[1];
      const outcome = yield* turns.take(chatbot, id, keyOf(`key ${id}`));
      const answers = outcome._tag === "AlreadyAnswered" ? [outcome.entry] : [];
      yield* same("the ask's entry", (yield* history(chatbot, id)).items, answers);
      if (outcome._tag === "TurnTaken") yield* turns.release(outcome.turn);
      yield* takeTurn(chatbot, id, null, turns);
    }
  }),

  check(
    "usage since a time is summed by provider and model, including answers without a model",
    function* () {
      const archive = yield* ChatArchive;
      const chatbot = yield* newChatbot;
      const { latencyMillis: _, attempts, completionTokens, promptTokens, ...ourModel } = usage;
      const later = new Date(longAgo.getTime() + 1);
      const costs = [
        ourModel,
        { ...ourModel, model: "another" },
        ourModel,
        null,
        { ...ourModel, provider: "p" },
        ourModel,
      ];
      yield* importAll(chatbot, [
        chatRecord(1, longAgo),
        ...costs.map((cost, n) =>
          entryRecord(1, n + 1, n < 5 ? longAgo : later, { usage: cost && { ...usage, ...cost } }),
        ),
        // A hello entry and a flagged question, which do not count as answers.
        entryRecord(1, 7, later, { question: "" }),
        entryRecord(1, 8, later, { flagged: true }),
      ]);
      yield* conversation(yield* newChatbot, [entry("a", { usage })]);
      type Model = Pick<UsageSum, "provider" | "model">;
      const sum = (answers: number, model: Model, group: string | null = null) => ({
        group,
        ...model,
        answers,
        attempts: answers * attempts,
        promptTokens: answers * promptTokens,
        completionTokens: answers * completionTokens,
      });
      const noTokens = { attempts: 0, promptTokens: 0, completionTokens: 0 };
      const free = { ...sum(1, { provider: null, model: null }), ...noTokens };
      for (const [since, expected] of [
        [longAgo, [sum(3, ourModel), sum(1, costs[1]!), sum(1, costs[4]!), free]],
        [later, [sum(1, ourModel)]],
        [new Date(later.getTime() + 1), []],
      ] as const) {
        const name = ({ model, provider }: Model) => `${provider} ${model}`;
        const sortSums = (rows: ReadonlyArray<UsageSum>) =>
          rows.toSorted((a, b) => (name(a) < name(b) ? -1 : 1));
        const sums = sortSums(yield* archive.usage(chatbot, since));
        yield* same(`since ${since.toISOString()}`, sums, sortSums(expected));
      }
      const days = yield* archive.usage(chatbot, later, "day");
      yield* same("the usage by day", days, [sum(1, ourModel, later.toISOString().slice(0, 10))]);
    },
  ),

  check("usage is summed by the key that asked, and by the chat's user", function* () {
    const archive = yield* ChatArchive;
    const chatbot = yield* newChatbot;
    for (const [userRef, apiKeyId] of [["u", "k"], ["u", null], [null, "k"], [null]] as const) {
      const chat = yield* create(chatbot, { userRef });
      const newEntryFields = entry("q", apiKeyId === undefined ? { usage } : { usage, apiKeyId });
      const { apiKeyId: _, usage: __, ...texts } = newEntryFields;
      const newEntry = yield* ask(chatbot, chat.id, newEntryFields);
      const { createTime, id } = newEntry;
      yield* same("the entry", newEntry, { ...texts, id, chatId: chat.id, createTime });
    }
    yield* ask(chatbot, null, entry("q", { usage, apiKeyId: "first" }));
    // An answer without a model counts for its key, but has no cost.
    yield* ask(chatbot, null, entry("q", { apiKeyId: "free" }));
    for (const [by, ...expected] of [
      ["key", "first,1", "free,1", "k,2", ",2"],
      ["userRef", "u,2", ",1", ",3"],
    ] as const) {
      const sums = yield* archive.usage(chatbot, new Date(0), by);
      const groups = sums.map(({ answers, group }) => `${group ?? ""},${answers}`);
      yield* same(by, groups.toSorted(), expected.toSorted());
    }
    const text = JSON.stringify(yield* exportAll(chatbot));
    yield* same("a key in the export", text.includes("first"), false);
  }),

  check("erasing, exporting or importing chats of an unregistered chatbot fails", function* () {
    const notFound = new ChatbotNotFound({ chatbot: noChatbot });
    yield* failsWith("an erasure", notFound, erase(noChatbot, { _tag: "All" }));
    yield* failsWith("an export", notFound, exportAll(noChatbot));
    yield* failsWith("an import", notFound, importAll(noChatbot, [chatRecord(1, longAgo)]));
  }),
];
