/**
 * What random comparison does not notice about erasures, exports and imports: concurrent calls, snapshots, interruptions,
 * and more rows than a store reads at once.
 */
import { Cause, Effect, Exit, Fiber, Result, Stream } from "effect";
import type { Chat } from "../model/Chat.ts";
import { dayMillis } from "../model/Day.ts";
import type { ChatbotId, ChatId } from "../model/Ids.ts";
import { defaultChatQuery, defaultEntryQuery, entryIncludes } from "../model/ListQuery.ts";
import { ChatArchive, type ArchiveRecord, type ChatbotSize } from "../ports/ChatArchive.ts";
import { ChatNotFound } from "../model/Errors.ts";
import { ChatbotRegistry } from "../ports/ChatbotRegistry.ts";
import type { StorePorts } from "../ports/Store.ts";
import { turnLease, TurnStore } from "../ports/TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  actor,
  after,
  append,
  ask,
  atOnce,
  bare,
  chatPage,
  chatRecord,
  create,
  entry,
  entryRecord,
  erase,
  exportAll,
  history,
  importAll,
  instances,
  keyOf,
  list,
  newChatbot,
  pass,
  storedChats,
  tagOf,
  takeTurn,
  usage,
} from "./Fixtures.ts";
import type { StoreUnderTest } from "./StoreUnderTest.ts";

/** Earlier than any time on a test clock, which may start in 1970. */
const longAgo = new Date("1960-01-01T00:00:00Z");
const future = new Date("2900-01-01T00:00:00Z");
const key = keyOf("key");

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

export const archiveChecks: ReadonlyArray<Check<StorePorts | StoreUnderTest>> = [
  check("an export is one snapshot, whatever is written while it is read", function* () {
    const archive = yield* ChatArchive;
    const chatbot = yield* newChatbot;
    yield* importAll(chatbot, many);
    const chats = chatsOf(many);
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
    yield* same("the records", recordsRead, many);
    // An export that is not read to its end blocks no other call.
    yield* Stream.runDrain(Stream.take(archive.export(chatbot, actor), 1));
    yield* create(chatbot, { name: "afterwards" });
    const { total } = yield* list(chatbot);
    yield* same("the next export", chatsOf(yield* exportAll(chatbot)).length, total);
  }),

  check("the sizes of chatbots are known, those of erased chats gone", function* () {
    const [first, second, empty] = [yield* newChatbot, yield* newChatbot, yield* newChatbot];
    yield* importAll(first, many);
    yield* importAll(second, [
      chatRecord(1, longAgo),
      entryRecord(1, 1, longAgo, { answer: "é".repeat(500), metadata: { a: "b".repeat(500) } }),
      ...Array.from({ length: 9 }, (_, n) => entryRecord(1, n + 2, longAgo)),
    ]);
    yield* erase(first, { _tag: "UserRef", userRef: "y" });
    const sizesNow = ChatArchive.use(({ sizes }) => sizes);
    const sizeOf = (chatbot: ChatbotId) =>
      Effect.map(sizesNow, (all) => all.find((size) => size.chatbot === chatbot)!);
    const counts = ({ chats, entries }: ChatbotSize) => ({ chats, entries });
    yield* same("many chats", counts(yield* sizeOf(first)), { chats: 840, entries: 1_440 });
    const { bytes, ...size } = yield* sizeOf(second);
    yield* same("one chat", size, { chatbot: second, chats: 1, entries: 10 });
    yield* same(`about 3,200 bytes, not ${bytes}`, 2_500 < bytes && bytes < 4_000, true);
    const noSize = { chatbot: empty, chats: 0, entries: 0, bytes: 0 };
    yield* same("no chats", yield* sizeOf(empty), noSize);
  }),

  check("large chatbots are copied and erased while another chatbot is written to", function* () {
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
        const keptChats = chatsOf(many).filter(({ userRef }) => userRef === "y");
        const count = yield* erase(to, { _tag: "UserRef", userRef: "x" });
        yield* same("the number of erased chats", count, 1_050 - keptChats.length);
        const query = { ...defaultChatQuery, limit: 100, page: 3 };
        yield* same("a page afterwards", yield* list(to, query), chatPage(keptChats, query));
      });
    const copies = Effect.as(atOnce(3, copy), "in time");
    yield* same("three copies", yield* Effect.raceFirst(copies, after(20_000)), "in time");
    yield* same("the chats that were erased meanwhile", (yield* list(other)).total, 0);
  }),

  check("an import that fails writes nothing, and keeps what other calls write", function* () {
    const turns = yield* TurnStore;
    const [from, to] = [yield* newChatbot, yield* newChatbot];
    const { chatId } = yield* ask(from, null, entry("a"));
    const before = yield* exportAll(from);
    const records = Stream.die(new Error("The import read the records before it was rejected"));
    const refusal = ChatArchive.use((archive) => archive.import(from, records, actor));
    yield* failsWith("before the records are read", "ImportRefused", refusal);
    yield* same("the rows of the chatbot", yield* exportAll(from), before);
    const turn = yield* takeTurn(to, null, key);
    const askNow = ask(from, chatId, entry("meanwhile"));
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
    const { total } = yield* history(from, chatId);
    yield* same("asks meanwhile", total, 3);
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

  check("lists stay exact while two instances create, ask and erase concurrently", function* () {
    const chatbot = yield* newChatbot;
    const both = yield* instances;
    const { id } = yield* create(chatbot);
    let erasedCount = 0;
    const write = (n: number) =>
      Effect.gen(function* () {
        const { archive, chats } = both[n % 2]!;
        for (const name of ["gone", "kept", "gone", "kept", "gone", "kept"]) {
          yield* chats.createChat(chatbot, { ...bare, name, userRef: name }, null);
          if (n === 0) yield* ask(chatbot, id, entry("q"));
          if (n > 1) continue;
          const gone = { _tag: "UserRef", userRef: "gone" } as const;
          const erased = yield* archive.erase(chatbot, gone, actor);
          erasedCount += erased;
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
        const orderBy = [{ field: n % 2 === 0 ? "id" : "answer", descending: true }] as const;
        const page = yield* history(chatbot, id, { limit: 100, orderBy });
        yield* same("as many entries as the total", page.items.length, page.total);
      }
      yield* Effect.yieldNow;
    }
    yield* Fiber.join(writers);
    const all = (yield* storedChats(chatbot)).map(({ chat }) => chat);
    yield* same("no chat is lost", all.length + erasedCount, 37);
    for (const { chats } of both) {
      for (const query of queries)
        yield* same("the final list", yield* chats.listChats(chatbot, query), chatPage(all, query));
    }
  }),

  check("a chat that is read while it is being erased is complete or not found", function* () {
    const both = yield* instances;
    const chatbot = yield* newChatbot;
    for (let round = 0; round < 10; round++) {
      const first = yield* ask(chatbot, null, entry("a"));
      const { chatId } = first;
      const entries = [yield* ask(chatbot, chatId, entry("b")), first];
      const read = (n: number) =>
        Effect.gen(function* () {
          const { chats, turns } = both[n % 2]!;
          while (true) {
            const page = yield* chats.listEntries(chatbot, chatId, defaultEntryQuery);
            yield* same("its history", page, { items: entries, total: 2 });
            const outcome = yield* turns.take(chatbot, chatId, null);
            yield* Effect.yieldNow;
            if (outcome._tag !== "TurnTaken") continue;
            yield* same("its newest entries", outcome.turn.newest, entries);
            yield* turns.release(outcome.turn);
          }
        }).pipe(Effect.catchTag("ChatNotFound", () => Effect.void));
      const readers = yield* Effect.forkChild(atOnce(4, read), { startImmediately: true });
      yield* after(round % 5);
      const counts = yield* atOnce(4, (n) =>
        both[n % 2]!.archive.erase(chatbot, { _tag: "Chat", id: chatId }, actor),
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
    const all = { include: entryIncludes };
    for (const id of chatIds) {
      const { turns } = both[1];
      const outcome = yield* turns.take(chatbot, id, keyOf(`key ${id}`));
      const answers = outcome._tag === "AlreadyAnswered" ? [outcome.entry] : [];
      yield* same("the ask's entry", (yield* history(chatbot, id, all)).items, answers);
      if (outcome._tag === "TurnTaken") yield* turns.release(outcome.turn);
      yield* takeTurn(chatbot, id, null, turns);
    }
  }),

  check("an erasure ends the asks of its visitors in new chats, and nobody else's", function* () {
    const chatbot = yield* newChatbot;
    const { id } = yield* create(chatbot);
    const archive = yield* ChatArchive;
    const turns = yield* TurnStore;
    const keys = ["key\nu", "key\nxu", "key\nv", "key"].map((key) => keyOf(key));
    for (const key of keys) yield* takeTurn(chatbot, null, key);
    const [heldTag, takenTag] = ["Held", "TurnTaken"];
    for (const [which, tags] of [
      [{ _tag: "Chat", id }, [heldTag, heldTag, heldTag, heldTag]],
      [{ _tag: "UserRef", userRef: "u" }, [takenTag, heldTag, heldTag, heldTag]],
      [{ _tag: "IdleSince", limit: longAgo }, [heldTag, heldTag, heldTag, heldTag]],
      [{ _tag: "IdleSince", limit: future }, [takenTag, takenTag, takenTag, heldTag]],
      [{ _tag: "All" }, [takenTag, takenTag, takenTag, heldTag]],
    ] as const) {
      yield* archive.erase(chatbot, which, actor);
      const next = yield* Effect.forEach(keys, (key) =>
        Effect.map(turns.take(chatbot, null, key), ({ _tag }) => _tag),
      );
      yield* same(`the turns after an erasure of ${which._tag}`, next, tags);
    }
  }),

  check("a span of time includes its start and excludes its end, erased days too", function* () {
    const archive = yield* ChatArchive;
    const chatbot = yield* newChatbot;
    const unanswered = entry("q", { usage, metadata: { found: false } });
    const { createTime } = yield* ask(chatbot, null, unanswered);
    const at = (millis: number) => new Date(createTime.getTime() + millis);
    const answers = (since: Date, until: Date) =>
      Effect.map(archive.usage(chatbot, { since, until }), (sums) =>
        sums.map((sum) => sum.answers),
      );
    yield* same("from its time on", yield* answers(at(0), at(1)), [1]);
    yield* same("until its time", yield* answers(at(-1), at(0)), []);
    yield* same("after its time", yield* answers(at(1), future), []);
    for (const [millis, count] of [[0, 1] as const, [1, 0] as const]) {
      const entries = yield* Stream.runCount(archive.feedback(chatbot, at(millis), "unanswered"));
      yield* same(`the entries since ${millis} ms later`, entries, count);
    }
    yield* erase(chatbot, { _tag: "All" });
    const midnight = -(createTime.getTime() % dayMillis);
    yield* same("its day", yield* answers(at(midnight), at(midnight + 1)), [1]);
    yield* same("the day before", yield* answers(at(midnight - dayMillis), at(midnight)), []);
    yield* same(
      "the rest of its day",
      yield* answers(at(midnight + 1), at(midnight + dayMillis)),
      [],
    );
  }),

  check("a visitor erases own chats only, which the audit log sums by key and day", function* () {
    const chatbot = yield* newChatbot;
    const [own, other, foreign] = yield* Effect.forEach(["v", "v", "w"], (userRef) =>
      create(chatbot, { userRef }),
    );
    const archive = yield* ChatArchive;
    for (const [chat, apiKeyId, visitor] of [
      [foreign!, "key", "w"],
      [own!, "second key", "v"],
      [other!, "second key", "v"],
    ] as const) {
      const stranger = visitor === "v" ? "w" : "v";
      const refusal = archive.deleteChat(chatbot, chat.id, apiKeyId, stranger);
      yield* failsWith("another's chat", new ChatNotFound({ chatId: chat.id }), refusal);
      const deletion = archive.deleteChat(chatbot, chat.id, apiKeyId, visitor);
      yield* same("the erased chat", yield* deletion, chat);
      yield* failsWith("a second time", new ChatNotFound({ chatId: chat.id }), deletion);
      yield* pass(1_000);
      yield* after(5);
    }
    const log = yield* ChatbotRegistry.use((registry) => registry.audit(1));
    const details = log.map(({ action, actor, detail }) => `${actor}: ${action} ${detail}`);
    const newest = "second key: erase 2 chats of its visitors";
    yield* same("the newest in the audit log", details, [newest]);
  }),
];
