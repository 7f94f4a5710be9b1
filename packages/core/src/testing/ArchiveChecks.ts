/**
 * The promises of `ChatArchive`: erasures, exports, imports and the cost of answers.
 */
import { Cause, Effect, Exit, Fiber, Result, Stream } from "effect";
import type { Chat } from "../Chat.ts";
import {
  ChatArchive,
  erasureDetail,
  importDetail,
  type ArchiveRecord,
  type Erasable,
} from "../ChatArchive.ts";
import type { ChatbotRegistry } from "../ChatbotRegistry.ts";
import { ChatStore } from "../ChatStore.ts";
import { ChatbotNotFound, ChatNotFound, TurnLost } from "../Errors.ts";
import { newest, newestChats } from "../ListQuery.ts";
import { turnLease, TurnStore } from "../TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  actor,
  after,
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
  exported,
  filled,
  history,
  imported,
  instances,
  keyOf,
  list,
  listsAre,
  newChatbot,
  noChatbot,
  pass,
  questions,
  stored,
  taken,
  usage,
} from "./Fixtures.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

const longAgo = new Date(1_700_000_000_000);
const key = keyOf("key");

const idle = (limit: Date): Erasable => ({ _tag: "IdleSince", limit });

/** So many chats that no store writes or reads them at once, each with an entry. */
const many = Array.from({ length: 1_050 }, (_, n) => [
  chatRecord(n + 1, longAgo, { name: `chat ${n % 7}`, userRef: n % 5 === 0 ? "y" : "x" }),
  entryRecord(n + 1, n + 1, longAgo),
]).flat();

const chatsOf = (records: ReadonlyArray<ArchiveRecord>): ReadonlyArray<Chat> =>
  records.flatMap((record) => (record._tag === "Chat" ? [record.chat] : []));

export const archiveChecks: ReadonlyArray<
  Check<ChatStore | TurnStore | ChatArchive | ChatbotRegistry | StoreUnderTest>
> = [
  check(
    "erased chats are gone with their entries, and the lists stay exact",
    Effect.fnUntraced(function* () {
      const [chatbot, others] = [yield* newChatbot, yield* newChatbot];
      const foreign = [...(yield* filled(others)), ...(yield* createAll(others, [bare, bare]))];
      let chats: ReadonlyArray<Chat> = yield* filled(chatbot);
      yield* listsAre(chatbot, chats);
      const { second } = yield* StoreUnderTest;
      const [early, late] = [chats[1]!.id, chats.at(-1)!.id];
      const erasures: ReadonlyArray<readonly [Erasable, (chat: Chat) => boolean]> = [
        [{ _tag: "Chat", id: early }, ({ id }) => id === early],
        [{ _tag: "Chat", id: late }, ({ id }) => id === late],
        [{ _tag: "UserRef", userRef: "x" }, ({ userRef }) => userRef === "x"],
        [{ _tag: "UserRef", userRef: "nobody" }, () => false],
        [{ _tag: "Chat", id: Number.MAX_SAFE_INTEGER }, () => false],
        [{ _tag: "All" }, () => true],
      ];
      for (const [which, isErased] of erasures) {
        const gone = chats.filter(isErased);
        const archive = which._tag === "All" ? second.archive : yield* ChatArchive;
        const count = yield* archive.erase(chatbot, which, actor);
        yield* same("how many", count, gone.length);
        for (const { id } of gone) {
          yield* failsWith("its history", new ChatNotFound({ chatId: id }), history(chatbot, id));
        }
        chats = chats.filter((chat) => !gone.includes(chat));
        yield* listsAre(chatbot, chats);
        chats = [...chats, yield* create(chatbot, { name: "chat 1", userRef: "y" })];
        yield* listsAre(chatbot, chats);
      }
      yield* listsAre(others, foreign);
    }),
  ),

  check(
    "no id of a chat or an entry is used again after an erasure, and no time goes back",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const kept = yield* create(chatbot);
      let [chatId, entryId, time] = [kept.id, 0, kept.createTime];
      for (let n = 0; n < 3; n++) {
        const chat = yield* create(chatbot);
        yield* same("a higher id", chat.id > chatId, true);
        yield* same("a time not before", chat.createTime >= time, true);
        [chatId, time] = [chat.id, chat.createTime];
        for (const one of [chat, kept]) {
          const { id } = yield* ask(chatbot, one.id, entry("q"));
          yield* same("an entry's higher id", id > entryId, true);
          entryId = id;
          if (one === chat) yield* erase(chatbot, { _tag: "Chat", id: chat.id });
        }
      }
    }),
  ),

  check(
    "an erasure of very many chats takes them with their keys, and keeps pages and totals exact",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      yield* imported(chatbot, many);
      const { createChat } = yield* ChatStore;
      const keyed = (n: number, request: number) =>
        createChat(chatbot, { ...bare, userRef: "x" }, keyOf(`key ${n}`, request));
      const first = yield* Effect.forEach(Array.from({ length: 220 }).keys(), (n) => keyed(n, 0), {
        concurrency: 20,
      });
      const all = [...chatsOf(many), ...first.map(({ chat }) => chat)].toSorted(
        (a, b) => a.id - b.id,
      );
      const kept = all.filter(({ userRef }) => userRef === "y");
      const count = yield* erase(chatbot, { _tag: "UserRef", userRef: "x" });
      yield* same("how many", count, all.length - kept.length);
      for (const more of [{}, { userRef: "y" }, { search: "CHAT 3" }]) {
        for (const field of ["id", "name"] as const) {
          for (const page of [1, 2, 3]) {
            const orderBy = [{ field, descending: true }] as const;
            const query = { ...newestChats, ...more, orderBy, limit: 100, page };
            yield* same("a page", yield* list(chatbot, query), chatPage(kept, query));
          }
        }
      }
      const again = yield* Effect.forEach(Array.from({ length: 220 }).keys(), (n) => keyed(n, 1), {
        concurrency: 20,
      });
      yield* same("known keys", again.filter(({ replayed }) => replayed).length, 0);
    }),
  ),

  check(
    "a chat is idle since its last entry, or else since its creation",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const turns = yield* TurnStore;
      const [unused, used] = yield* createAll(chatbot, [{ helloMessage: "Hello" }, {}]);
      const { createTime: limit } = yield* askLater(chatbot, used!.id, unused!.createTime);
      // Reading is no use, nor is a turn without an entry.
      yield* history(chatbot, unused!.id);
      yield* turns.release(yield* taken(chatbot, unused!.id));
      const late = yield* taken(chatbot, unused!.id);
      yield* pass(turnLease + 1);
      yield* turns.renew(late);
      yield* same("the unused one", yield* erase(chatbot, idle(limit)), 1);
      const left = (yield* stored(chatbot)).map(({ chat }) => chat.id);
      yield* same("the used one is left", left, [used!.id]);
      const { createTime } = yield* create(chatbot);
      yield* same("the other", yield* erase(chatbot, idle(createTime)), 1);
      const soon = new Date(createTime.getTime() + 1);
      yield* same("one without entries", yield* erase(chatbot, idle(soon)), 1);
      // Imported times are whatever they were elsewhere.
      const [old, asked] = [new Date("1960-01-01T00:00:00Z"), new Date("1965-01-01T00:00:00Z")];
      yield* imported(chatbot, [chatRecord(1, old), chatRecord(2, old), entryRecord(2, 1, asked)]);
      for (const [limit, expected] of [
        [old, 0],
        [new Date(old.getTime() + 1), 1],
        [asked, 0],
        [new Date(asked.getTime() + 1), 1],
      ] as const) {
        const count = yield* erase(chatbot, idle(limit));
        yield* same(`before ${limit.toISOString()}`, count, expected);
      }
    }),
  ),

  check(
    "an ask in flight in a chat that is erased stores nothing and forgets its key",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      for (const retryKey of [null, key]) {
        for (const renewals of [0, 2]) {
          const { id } = yield* create(chatbot);
          const turn = yield* taken(chatbot, id, retryKey);
          for (let n = 0; n < renewals; n++) yield* store.renew(turn);
          yield* erase(chatbot, { _tag: "Chat", id });
          const notFound = new ChatNotFound({ chatId: id });
          yield* failsWith("another take", notFound, store.take(chatbot, id, retryKey));
          yield* failsWith("the renewal", notFound, store.renew(turn));
          yield* failsWith("the append", notFound, append(turn, entry("q")));
          yield* same("earlier entries", yield* store.earlier(turn, 2 ** 53), []);
          yield* store.release(turn);
          yield* store.release(yield* taken(chatbot, null, keyOf("key", 1)));
        }
      }
      yield* same("the stored chats", yield* stored(chatbot), []);
    }),
  ),

  check(
    "an erasure leaves alone the turns, keys and places of other chats",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      const { second } = yield* StoreUnderTest;
      const [gone, other] = yield* createAll(chatbot, [{}, {}]);
      const turns = yield* Effect.forEach([other!.id, null], (chat) =>
        taken(chatbot, chat, keyOf(`key of ${chat}`)),
      );
      const waiting = yield* second.turns.take(chatbot, other!.id, null);
      yield* same("the second waits", waiting._tag, "Held");
      yield* erase(chatbot, { _tag: "Chat", id: gone!.id });
      for (const turn of turns) {
        yield* same("the renewal", yield* store.renew(turn), true);
        const again = store.take(chatbot, turn.chat, turn.retryKey);
        yield* same("the key is held", (yield* again)._tag, "Held");
        const made = yield* append(turn, entry("q"));
        yield* same("afterwards", yield* again, { _tag: "Done", entry: made, turn: turn.id });
      }
      const early = yield* store.take(chatbot, other!.id, null);
      yield* same("the first does not overtake", early._tag, "Held");
    }),
  ),

  check(
    "the keys of an erased chat are forgotten, and no others, at both instances",
    Effect.fnUntraced(function* () {
      const [{ chats, turns }, second] = yield* instances;
      for (const kind of ["Chat", "UserRef", "All"] as const) {
        const [chatbot, twin] = [yield* newChatbot, yield* newChatbot];
        const [created, asked] = [keyOf("created"), keyOf("asked")];
        const wanted = { ...bare, name: "secret", userRef: "u" };
        const { chat } = yield* chats.createChat(chatbot, wanted, created);
        yield* append(yield* taken(chatbot, chat.id, asked), entry("q"));
        const kept = yield* append(yield* taken(chatbot, null, keyOf("kept")), entry("kept"));
        // A key may move to another chat once its turn is released.
        yield* turns.release(yield* taken(chatbot, chat.id, keyOf("moved")));
        yield* append(yield* taken(chatbot, kept.chatId, keyOf("moved")), entry("moved"));
        // Chats of two chatbots may have one id, and their keys one name.
        yield* imported(twin, yield* exported(chatbot));
        yield* append(yield* taken(twin, chat.id, asked), entry("q"));
        const which: Erasable =
          kind === "Chat"
            ? { _tag: kind, id: chat.id }
            : kind === "UserRef"
              ? { _tag: kind, userRef: "u" }
              : { _tag: kind };
        const again = chats.createChat(chatbot, wanted, created);
        yield* same("known before", yield* again, { chat, replayed: true });
        yield* same(
          "how many",
          yield* second.archive.erase(chatbot, which, actor),
          kind === "All" ? 2 : 1,
        );
        yield* same("the twin's key", (yield* turns.take(twin, chat.id, asked))._tag, "Done");
        for (const name of kind === "All" ? [] : ["kept", "moved"]) {
          const done = yield* turns.take(chatbot, kept.chatId, keyOf(name));
          yield* same(`the key "${name}"`, done._tag, "Done");
        }
        yield* same("the creation's key", (yield* again).replayed, false);
        yield* turns.release(yield* taken(chatbot, null, keyOf("asked", 1)));
        const query = { ...newestChats, search: "secret", limit: 1 };
        yield* same("the new one alone", (yield* chats.listChats(chatbot, query)).total, 1);
      }
    }),
  ),

  check(
    "erasures, exports and imports write one line each to the audit",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
      const chatbot = yield* newChatbot;
      const before = yield* auditOf(chatbot);
      const [first, second] = yield* createAll(chatbot, [
        { userRef: "secret" },
        { userRef: "secret" },
        {},
        {},
      ]);
      yield* archive.erase(chatbot, { _tag: "Chat", id: first!.id }, "ann");
      yield* archive.erase(chatbot, { _tag: "Chat", id: first!.id }, "ann");
      yield* archive.erase(chatbot, idle(second!.createTime), "ann");
      yield* archive.erase(chatbot, { _tag: "UserRef", userRef: "secret" }, "bob");
      // The line of an export is written when it begins.
      yield* Stream.runDrain(Stream.take(archive.export(chatbot, "cat"), 1));
      const refused = archive.import(chatbot, Stream.make(chatRecord(1, longAgo)), "dan");
      yield* failsWith("a refused import", "ImportRefused", refused);
      const limit = new Date("2900-01-01T00:00:00Z");
      yield* archive.erase(chatbot, idle(limit), "eve");
      const records = [chatRecord(1, longAgo), chatRecord(2, longAgo), chatRecord(3, longAgo)];
      yield* archive.import(chatbot, Stream.fromIterable(records), "fay");
      yield* archive.erase(chatbot, { _tag: "All" }, "guy");
      yield* archive.import(chatbot, Stream.empty, "hal");
      yield* same("the audit", (yield* auditOf(chatbot)).slice(before.length), [
        `ann erase ${erasureDetail({ _tag: "Chat", id: first!.id }, 1)}`,
        "bob erase 1 chat of a userRef",
        "cat export ",
        `eve erase ${erasureDetail(idle(limit), 2)}`,
        `fay import ${importDetail(3)}`,
        "guy erase 3 chats",
        `hal import ${importDetail(0)}`,
      ]);
    }),
  ),

  check(
    "an export holds every chat and entry in order, and an import restores them",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
      const [from, to] = [yield* newChatbot, yield* newChatbot];
      const chats = [
        ...(yield* filled(from)),
        ...(yield* createAll(from, [
          ...awkwardTexts.map((text) => ({ name: text, userRef: text })),
          ...awkwardTexts.map((text) => ({ name: `before ${text} after` })),
        ])),
      ];
      for (const none of ["promptTokens", "completionTokens", "latencyMillis"] as const) {
        yield* ask(from, chats[0]!.id, entry(none, { usage: { ...usage, [none]: 0 } }));
      }
      yield* erase(from, { _tag: "UserRef", userRef: "x" });
      const records = yield* exported(from);
      const kept = chats.filter(({ userRef }) => userRef !== "x");
      yield* same("its chats", chatsOf(records), kept);
      for (const { id } of kept) {
        const entries = records.flatMap((record) =>
          record._tag === "Entry" && record.entry.chatId === id ? [record.entry] : [],
        );
        const orderBy = [{ field: "id", descending: false }] as const;
        const { items } = yield* history(from, id, { orderBy });
        yield* same("its entries", entries, items);
      }
      const count = yield* archive.import(to, archive.export(from, actor), actor);
      yield* same("how many", count, kept.length);
      yield* same("the copy", yield* exported(to), records);
      yield* listsAre(to, kept);
      for (const text of awkwardTexts) {
        for (const more of [{ search: text }, { userRef: text }]) {
          const query = { ...newestChats, limit: 100, ...more };
          const what = `the page of ${JSON.stringify(query)}`;
          yield* same(what, yield* list(to, query), chatPage(kept, query));
        }
      }
      const later = yield* create(to);
      yield* same("a later id", later.id > kept.at(-1)!.id, true);
      const { chatId, id } = yield* ask(to, kept[0]!.id, entry("later"));
      const page = yield* history(to, chatId, { limit: 1 });
      yield* same("the newest entry", page.items[0]?.id, id);
      const former = records.filter((one) => one._tag === "Entry" && one.entry.chatId === chatId);
      yield* same("the total", page.total, former.length + 1);
    }),
  ),

  check(
    "an export is of one moment, whatever is written while it is read",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
      const [few, long] = [yield* newChatbot, yield* newChatbot];
      yield* filled(few);
      yield* imported(long, many);
      for (const chatbot of [few, long]) {
        const before = yield* exported(chatbot);
        const chats = chatsOf(before);
        let seen = 0;
        const read = yield* archive.export(chatbot, actor).pipe(
          Stream.tap(() =>
            seen++ % 300 > 0
              ? Effect.void
              : Effect.andThen(
                  ask(chatbot, chats.at(-1)!.id, entry("meanwhile")),
                  Effect.andThen(
                    erase(chatbot, { _tag: "Chat", id: chats.at(-2)!.id }),
                    create(chatbot, { name: "meanwhile" }),
                  ),
                ),
          ),
          Stream.runCollect,
        );
        yield* same("the records", read, before);
        // An export that is not read to its end is in nobody's way.
        yield* Stream.runDrain(Stream.take(archive.export(chatbot, actor), 1));
        yield* create(chatbot, { name: "afterwards" });
        const { total } = yield* list(chatbot);
        yield* same("the next export", chatsOf(yield* exported(chatbot)).length, total);
      }
    }),
  ),

  check(
    "copies of a chatbot run at once, while it is written to",
    Effect.fnUntraced(function* () {
      const [{ archive }, second] = yield* instances;
      const [from, other] = [yield* newChatbot, yield* newChatbot];
      yield* imported(from, many);
      const { id } = yield* create(other);
      const copy = (n: number) =>
        Effect.gen(function* () {
          const to = yield* newChatbot;
          // Each reads two exports in step, and erases something else between their records.
          const records = Stream.zip(
            archive.export(from, actor),
            second.archive.export(from, actor),
          ).pipe(
            Stream.map(([record]) => record),
            Stream.tap((record) =>
              record._tag === "Chat" && record.chat.id === 1_000
                ? archive.erase(other, { _tag: "Chat", id: id + n }, actor)
                : Effect.void,
            ),
          );
          yield* archive.import(to, records, actor);
          yield* same("a copy", yield* exported(to), many);
        });
      const copies = Effect.as(atOnce(3, copy), "in time");
      yield* same("three copies", yield* Effect.raceFirst(copies, after(20_000)), "in time");
    }),
  ),

  check(
    "long chats and long texts are exported whole, and imported as they were",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const records = [
        chatRecord(1, longAgo),
        ...Array.from({ length: 1_205 }, (_, n) =>
          entryRecord(1, n + 1, longAgo, {
            answer: n % 5 === 0 ? "😀".repeat(5_000) : "a",
            usage,
          }),
        ),
        chatRecord(2, longAgo),
      ];
      yield* imported(chatbot, records);
      yield* same("the export", yield* exported(chatbot), records);
      const entries = records.flatMap((one) => (one._tag === "Entry" ? [one.entry] : []));
      for (const page of [1, 7, 13]) {
        const { items, total } = yield* history(chatbot, 1, { limit: 100, page });
        yield* same("the total", total, 1_205);
        const expected = entries.toReversed().slice((page - 1) * 100, page * 100);
        yield* same(`page ${page}`, items, expected);
      }
      const [sum] = yield* ChatArchive.use((archive) => archive.usage(chatbot, longAgo));
      yield* same("the answers", sum?.answers, 1_205);
    }),
  ),

  check(
    "times are kept to the millisecond, and compared as times",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
      const chatbot = yield* newChatbot;
      const records = awkwardTimes.flatMap((time, n) => [
        chatRecord(n + 1, time),
        entryRecord(n + 1, n + 1, time, { usage }),
      ]);
      yield* imported(chatbot, records);
      yield* same("the export", yield* exported(chatbot), records);
      for (const descending of [true, false]) {
        const query = { ...newestChats, orderBy: [{ field: "_createTime", descending }] as const };
        const page = yield* list(chatbot, query);
        yield* same("by time", page, chatPage(chatsOf(records), query));
      }
      for (const [n, time] of awkwardTimes.entries()) {
        const [sum] = yield* archive.usage(chatbot, time);
        yield* same("how many since", sum?.answers, awkwardTimes.length - n);
      }
      for (const [n, limit] of awkwardTimes.entries()) {
        const count = yield* erase(chatbot, idle(limit));
        yield* same("how many before", count, n === 0 ? 0 : 1);
      }
    }),
  ),

  check(
    "after an import, ids go on past the imported ones, and times from the imported ones",
    Effect.fnUntraced(function* () {
      const now = (yield* create(yield* newChatbot)).createTime;
      const future = new Date(now.getTime() + 3_600_000);
      const last = new Date(future.getTime() + 5_000);
      const far = 1_000_000_000;
      for (const { archive, chats } of yield* instances) {
        const chatbot = yield* newChatbot;
        const records = [
          chatRecord(1, new Date(-1_000)),
          chatRecord(far, future),
          // The highest entry id need not be in the last chat.
          entryRecord(far, far + 90_000, last),
          chatRecord(far + 1, last),
          entryRecord(far + 1, far + 7, last),
        ];
        yield* archive.import(chatbot, Stream.fromIterable(records), actor);
        const { chat } = yield* chats.createChat(chatbot, { ...bare, helloMessage: "Hi" }, null);
        yield* same("a chat's higher id", chat.id > far + 1, true);
        yield* same("a chat's time not before", chat.createTime >= last, true);
        const [hello] = (yield* chats.listEntries(chatbot, chat.id, newest)).items;
        yield* same("its entry's time not before", hello!.createTime >= chat.createTime, true);
        const made = yield* ask(chatbot, far, entry("later"));
        yield* same("an entry's higher id", made.id > far + 90_000, true);
        yield* same("an entry's time not before", made.createTime >= last, true);
        const { chatId } = yield* ask(chatbot, null, entry("in a new chat"));
        const orderBy = [{ field: "_createTime", descending: false }] as const;
        const { items } = yield* list(chatbot, { orderBy });
        const ids = items.map(({ id }) => id);
        yield* same("by time", ids, [1, far, far + 1, chat.id, chatId]);
        // Also when no chat of the future is left.
        yield* erase(chatbot, { _tag: "All" });
        yield* imported(chatbot, [chatRecord(1, new Date(-1_000))]);
        const next = yield* create(chatbot);
        yield* same("a time not before an erased one's", next.createTime >= last, true);
      }
    }),
  ),

  check(
    "erased chats can be imported again, and keep nothing of before",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const chats = yield* filled(chatbot);
      const records = yield* exported(chatbot);
      const { id } = chats[0]!;
      const late = yield* taken(chatbot, id, key);
      yield* erase(chatbot, { _tag: "All" });
      const changed = records.map((record) =>
        record._tag === "Entry" && record.entry.chatId === id
          ? { ...record, entry: { ...record.entry, question: "new" } }
          : record,
      );
      yield* same("how many", yield* imported(chatbot, changed), chats.length);
      yield* same("the export", yield* exported(chatbot), changed);
      yield* listsAre(chatbot, chats);
      yield* failsWith("the late append", new TurnLost(), append(late, entry("late")));
      const { second } = yield* StoreUnderTest;
      for (const turns of [yield* TurnStore, second.turns]) {
        const turn = yield* taken(chatbot, id, null, turns);
        const brought = turn.newest.map(({ question }) => question);
        yield* same("the entries that a turn brings", brought, ["new", "new"]);
        yield* turns.release(turn);
      }
    }),
  ),

  check(
    "chatbots whose chats and entries have the same ids never meet",
    Effect.fnUntraced(function* () {
      const [archive, turns] = [yield* ChatArchive, yield* TurnStore];
      const from = yield* newChatbot;
      const { chat, entries } = yield* conversation(from, [entry("a"), entry("b")]);
      const twins = [from, yield* newChatbot, yield* newChatbot] as const;
      for (const twin of twins.slice(1)) yield* imported(twin, yield* exported(from));
      const held = yield* Effect.forEach(twins, (twin, n) => taken(twin, chat.id, keyOf("key", n)));
      for (const turn of held) {
        yield* same("what it brings", turn.newest, entries.toReversed());
        yield* same("the renewal", yield* turns.renew(turn), true);
        const older = yield* turns.earlier(turn, entries[1]!.id);
        yield* same("earlier", older, [entries[0]]);
      }
      yield* turns.release(held[2]!);
      yield* append(held[0]!, entry("first", { usage }));
      yield* append(held[1]!, entry("second"));
      for (const [n, more] of [["first"], ["second"], []].entries()) {
        yield* same("the questions", yield* questions(twins[n]!), [["a", "b", ...more]]);
        const sums = yield* archive.usage(twins[n]!, new Date(0));
        yield* same("the usage", sums.length, n === 0 ? 1 : 0);
      }
      yield* erase(twins[1], { _tag: "Chat", id: chat.id });
      for (const [n, total] of [1, 0, 1].entries()) {
        const page = yield* list(twins[n]!, { id: chat.id });
        yield* same("the chat", page.total, total);
      }
    }),
  ),

  check(
    "an import that is out of order writes nothing",
    Effect.fnUntraced(function* () {
      const to = yield* newChatbot;
      const [time, sooner] = [longAgo, new Date(longAgo.getTime() - 1)];
      const one = chatRecord(1, time);
      for (const [what, records] of [
        ["a chat's id twice", [one, one]],
        ["chats that descend", [chatRecord(2, time), one]],
        ["an entry's id twice", [one, entryRecord(1, 1, time), entryRecord(1, 1, time)]],
        [
          "an entry's id that came before",
          [...many, chatRecord(2_000, time), entryRecord(2_000, 1, time)],
        ],
        ["an entry before any chat", [entryRecord(1, 1, time), one]],
        ["an entry of chat 0", [entryRecord(0, 1, time)]],
        ["an entry of an earlier chat", [one, chatRecord(2, time), entryRecord(1, 1, time)]],
        ["chats' times that go back", [one, chatRecord(2, sooner)]],
        ["an entry before its chat", [one, entryRecord(1, 1, sooner)]],
        [
          "entries' times that go back",
          [chatRecord(1, sooner), entryRecord(1, 1, time), entryRecord(1, 2, sooner)],
        ],
        ...[0, -1, 1.5, 2 ** 53 - 2 ** 40 + 1, 2 ** 53].map(
          (id) => [`the id ${id}`, [chatRecord(id, time)]] as const,
        ),
        ...[Number.NaN, -8_000_000_000_000_000, 8_000_000_000_000_000].map(
          (millis) => [`the time ${millis}`, [chatRecord(1, new Date(millis))]] as const,
        ),
      ] as ReadonlyArray<readonly [string, ReadonlyArray<ArchiveRecord>]>) {
        yield* failsWith(what, "ImportRefused", imported(to, records));
      }
      yield* same("the stored chats", yield* stored(to), []);
    }),
  ),

  check(
    "an import that breaks off writes nothing, and keeps what others write meanwhile",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
      const turns = yield* TurnStore;
      const [from, to] = [yield* newChatbot, yield* newChatbot];
      const { chat } = yield* conversation(from, [entry("a")]);
      const before = yield* exported(from);
      yield* failsWith("into a full chatbot", "ImportRefused", imported(from, before));
      yield* same("what it holds", yield* exported(from), before);
      const turn = yield* taken(to, null, key);
      const broken = Stream.unwrap(
        Effect.as(ask(from, chat.id, entry("meanwhile")), Stream.fail({ _tag: "Broken" as const })),
      );
      const breaking = Stream.concat(Stream.fromIterable(many), broken);
      yield* failsWith("one that breaks off", "Broken", archive.import(to, breaking, actor));
      for (const { archive } of yield* instances) {
        const endless = Stream.concat(Stream.fromIterable(many), Stream.never);
        const importing = yield* Effect.forkChild(archive.import(to, endless, actor));
        yield* after(20);
        yield* Fiber.interrupt(importing);
      }
      yield* same("nothing", yield* stored(to), []);
      yield* same("the ask meanwhile", yield* questions(from), [["a", "meanwhile"]]);
      yield* same("a turn meanwhile", yield* turns.renew(turn), true);
      const refused = chatRecord(5, new Date("2900-01-01T00:00:00Z"));
      yield* failsWith("a future", "ImportRefused", imported(to, [refused, refused]));
      const { createTime } = yield* append(turn, entry("q"));
      yield* same("a time of the present", createTime < new Date("2900-01-01T00:00:00Z"), true);
    }),
  ),

  check(
    "imports at once and a chat that is created meanwhile leave one order",
    Effect.fnUntraced(function* () {
      const [{ archive }, second] = yield* instances;
      const to = yield* newChatbot;
      const tags = yield* atOnce(4, (n) =>
        Effect.match(
          (n % 2 === 0 ? archive : second.archive).import(
            to,
            Stream.make(chatRecord(1, longAgo, { name: `${n}` }), entryRecord(1, 1, longAgo)),
            actor,
          ),
          { onFailure: ({ _tag }) => _tag, onSuccess: () => "stored" },
        ),
      );
      const expected = ["ImportRefused", "ImportRefused", "ImportRefused", "stored"];
      yield* same("the imports", tags.toSorted(), expected);
      yield* same("the chats", (yield* list(to)).total, 1);
      for (const isAsked of [false, true]) {
        const chatbot = yield* newChatbot;
        const turn = yield* taken(chatbot, null);
        const creating = yield* Effect.cached(
          Effect.gen(function* () {
            if (isAsked) return (yield* second.turns.append(turn, entry("q"))).chatId;
            return (yield* second.chats.createChat(chatbot, bare, null)).chat.id;
          }),
        );
        const meanwhile = Effect.gen(function* () {
          yield* Effect.forkDetach(creating, { startImmediately: true });
          // It may have to wait for the import.
          yield* Effect.raceFirst(Effect.exit(creating), after(100));
        });
        // Higher ids than that of a chat created before the import.
        const { id } = yield* create(yield* newChatbot);
        const records = Array.from({ length: 1_050 }, (_, n) =>
          chatRecord(id + 1_000 + n, longAgo),
        );
        const stream = Stream.fromIterable(records).pipe(
          Stream.tap((record) => (record === records.at(-1) ? meanwhile : Effect.void)),
        );
        const result = yield* Effect.result(archive.import(chatbot, stream, actor));
        const created = yield* Effect.result(creating);
        if (Result.isFailure(created)) {
          yield* same("why not", created.failure._tag, "Overloaded");
        }
        if (Result.isFailure(result)) yield* same("why not", result.failure._tag, "ImportRefused");
        const before = Result.isSuccess(result) ? chatsOf(records).map((chat) => chat.id) : [];
        const inStore = (yield* stored(chatbot)).map(({ chat }) => chat.id);
        const later = Result.isSuccess(created) ? [created.success] : [];
        yield* same("the stored chats", inStore, [...before, ...later]);
        const { items } = yield* list(chatbot);
        yield* same(
          "the newest",
          items.map((chat) => chat.id),
          inStore.slice(-25).toReversed(),
        );
      }
    }),
  ),

  check(
    "creations, asks and erasures of two instances at once leave exact lists",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const both = yield* instances;
      const kept = new Map<number, Array<string>>();
      let [created, erased] = [0, 0];
      const writing = yield* Effect.forkChild(
        atOnce(6, (n) =>
          Effect.gen(function* () {
            const { archive, chats, turns } = both[n % 2]!;
            for (let round = 0; round < 4; round++) {
              for (const userRef of ["kept", "gone"]) {
                const wanted = { ...bare, name: `${userRef} ${n}`, userRef };
                const { chat } = yield* chats.createChat(chatbot, wanted, null);
                if (userRef === "kept") kept.set(chat.id, []);
                else created++;
                const question = `question ${n} ${round}`;
                // An erasure may come between.
                yield* taken(chatbot, chat.id, null, turns).pipe(
                  Effect.flatMap((turn) => turns.append(turn, entry(question))),
                  Effect.tap(() => Effect.sync(() => kept.get(chat.id)?.push(question))),
                  Effect.catchTag("ChatNotFound", () => Effect.void),
                );
              }
              if (n < 2) {
                const which = { _tag: "UserRef", userRef: "gone" } as const;
                const some = yield* archive.erase(chatbot, which, actor);
                // Not in one expression, which would read the sum before it waits.
                erased += some;
              }
            }
          }),
        ),
        { startImmediately: true },
      );
      const queries = [
        {},
        { userRef: "gone" },
        { search: "GO" },
        { orderBy: [{ field: "name", descending: false }] as const },
      ].map((more) => ({ ...newestChats, limit: 100, ...more }));
      while (writing.pollUnsafe() === undefined) {
        for (const { chats } of both) {
          for (const query of queries) {
            const { items, total } = yield* chats.listChats(chatbot, query);
            yield* same("as many chats as the total", items.length, total);
            yield* same("in their order", items, chatPage(items, query).items);
          }
        }
        yield* Effect.yieldNow;
      }
      yield* Fiber.join(writing);
      const inStore = yield* stored(chatbot);
      const left = inStore.filter(({ chat }) => chat.userRef === "gone").length;
      yield* same("how many were erased", erased, created - left);
      yield* same(
        "the questions of the others",
        new Map(
          inStore
            .filter(({ chat }) => chat.userRef === "kept")
            .map(({ chat, entries }) => [chat.id, entries.map(({ question }) => question)]),
        ),
        kept,
      );
      const all = inStore.map(({ chat }) => chat);
      for (const { chats } of both) {
        for (const query of queries) {
          const page = yield* chats.listChats(chatbot, query);
          yield* same("at last", page, chatPage(all, query));
        }
      }
    }),
  ),

  check(
    "a chat that is read while it is erased is whole, or not found; one erasure counts it",
    Effect.fnUntraced(function* () {
      const both = yield* instances;
      const chatbot = yield* newChatbot;
      for (let round = 0; round < 10; round++) {
        const { chat, entries } = yield* conversation(chatbot, [entry("a"), entry("b")]);
        const newestFirst = entries.toReversed();
        const reading = yield* Effect.forkChild(
          atOnce(4, (n) =>
            Effect.gen(function* () {
              const { chats, turns } = both[n % 2]!;
              while (true) {
                const page = yield* chats.listEntries(chatbot, chat.id, newest);
                yield* same("its history", page, { items: newestFirst, total: 2 });
                const outcome = yield* turns.take(chatbot, chat.id, null);
                yield* Effect.yieldNow;
                if (outcome._tag !== "Turn") continue;
                yield* same("its newest entries", outcome.turn.newest, newestFirst);
                yield* turns.release(outcome.turn);
              }
            }).pipe(Effect.catchTag("ChatNotFound", () => Effect.void)),
          ),
          { startImmediately: true },
        );
        yield* after(round % 5);
        const counts = yield* atOnce(4, (n) =>
          both[n % 2]!.archive.erase(chatbot, { _tag: "Chat", id: chat.id }, actor),
        );
        yield* same("how often it was erased", counts.toSorted(), [0, 0, 0, 1]);
        yield* Fiber.join(reading);
      }
    }),
  ),

  check(
    "an interrupted call leaves nothing half done, and nothing that others wait for",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const both = yield* instances;
      const hello = { ...bare, name: "n", helloMessage: "Hello" };
      const keyed: Array<readonly [chat: number, key: string]> = [];
      for (let n = 0; n < 30; n++) {
        const { archive, chats, turns } = both[n % 2]!;
        const { id } = yield* create(chatbot);
        keyed.push([id, `key ${n}`]);
        const begun: ReadonlyArray<Fiber.Fiber<unknown, unknown>> = [
          yield* Effect.forkChild(chats.createChat(chatbot, hello, null)),
          yield* Effect.forkChild(chats.createChat(chatbot, hello, keyOf(`chat ${n}`))),
          yield* Effect.forkChild(
            Effect.flatMap(turns.take(chatbot, id, keyOf(`key ${n}`)), (taken) =>
              taken._tag === "Turn" ? turns.append(taken.turn, entry("q")) : Effect.void,
            ),
          ),
          yield* Effect.forkChild(
            archive.erase(chatbot, { _tag: "UserRef", userRef: "nobody" }, actor),
          ),
        ];
        for (let step = 0; step < n % 5; step++) yield* Effect.yieldNow;
        if (n % 2 === 1) yield* after(n % 8);
        yield* Fiber.interruptAll(begun);
        for (const fiber of begun) {
          const exit = yield* Fiber.await(fiber);
          if (Exit.isFailure(exit) && !Cause.hasInterruptsOnly(exit.cause)) yield* exit;
        }
      }
      const { length } = yield* stored(chatbot);
      yield* after(20);
      const inStore = yield* stored(chatbot);
      yield* same("nothing is written afterwards", inStore.length, length);
      for (const { chat, entries } of inStore) {
        yield* same("the total", (yield* history(chatbot, chat.id)).total, entries.length);
        if (chat.name === "n") yield* same("its hello entry", entries.length, 1);
      }
      yield* pass(turnLease + 1);
      const { turns } = both[1];
      for (const [id, name] of keyed) {
        const outcome = yield* turns.take(chatbot, id, keyOf(name));
        const { items } = yield* history(chatbot, id);
        const made = outcome._tag === "Done" ? [outcome.entry] : [];
        yield* same("the ask's entry", items, made);
        if (outcome._tag === "Turn") yield* turns.release(outcome.turn);
        yield* taken(chatbot, id, null, turns);
      }
    }),
  ),

  check(
    "usage is summed by provider and model since a time",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
      const chatbot = yield* newChatbot;
      const { chat } = yield* conversation(chatbot, [
        entry("a", { usage }),
        entry("b", { usage: { ...usage, model: "another" } }),
        entry("c", { usage }),
        entry("d"),
        ...["e", "f", "g"].map((question) =>
          entry(question, { usage: { ...usage, provider: "another" } }),
        ),
      ]);
      yield* conversation(yield* newChatbot, [entry("a", { usage })]);
      const sum = (answers: number, more: { provider?: string; model?: string } = {}) => ({
        provider: usage.provider,
        model: usage.model,
        ...more,
        answers,
        attempts: answers * usage.attempts,
        promptTokens: answers * usage.promptTokens,
        completionTokens: answers * usage.completionTokens,
      });
      const sums = Effect.fnUntraced(function* (since: Date) {
        const rows = yield* archive.usage(chatbot, since);
        return rows.toSorted((a, b) => b.answers - a.answers || (a.model < b.model ? -1 : 1));
      });
      yield* same(
        "since ever",
        yield* sums(new Date(0)),
        [sum(3, { provider: "another" }), sum(2), sum(1, { model: "another" })].toSorted(
          (a, b) => b.answers - a.answers,
        ),
      );
      const [last] = (yield* history(chatbot, chat.id)).items;
      yield* askLater(chatbot, chat.id, last!.createTime);
      const turn = yield* taken(chatbot, chat.id);
      const { createTime } = yield* append(turn, entry("late", { usage }));
      yield* same("since the last", yield* sums(createTime), [sum(1)]);
      yield* same("later", yield* sums(new Date(createTime.getTime() + 1)), []);
    }),
  ),

  check(
    "a chatbot that is not registered cannot be erased from, exported or imported into",
    Effect.fnUntraced(function* () {
      const notFound = new ChatbotNotFound({ chatbot: noChatbot });
      yield* failsWith("an erasure", notFound, erase(noChatbot, { _tag: "All" }));
      yield* failsWith("an export", notFound, exported(noChatbot));
      yield* failsWith("an import", notFound, imported(noChatbot, [chatRecord(1, longAgo)]));
      const sums = yield* ChatArchive.use((archive) => archive.usage(noChatbot, new Date(0)));
      yield* same("the usage", sums, []);
    }),
  ),
];
