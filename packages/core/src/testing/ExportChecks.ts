/**
 * What `ChatArchive` promises of exports and imports.
 */
import { Effect, Stream } from "effect";
import { ChatArchive, type ArchiveRecord } from "../ChatArchive.ts";
import { ChatStore } from "../ChatStore.ts";
import { ChatNotFound, TurnLost } from "../Errors.ts";
import { newest, newestChats } from "../ListQuery.ts";
import { TurnStore } from "../TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  after,
  append,
  ask,
  atOnce,
  awkwardTexts,
  awkwardTimes,
  bare,
  chatRecord,
  conversation,
  create,
  createAll,
  entry,
  entryRecord,
  erase,
  exported,
  filled,
  imported,
  listsAre,
  newChatbot,
  peek,
  taken,
  usage,
} from "./Fixtures.ts";
import { chatPage, entryPage } from "./Model.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

/** The record with another id; entries keep following their chat. */
const withId = (record: ArchiveRecord, id: number): ArchiveRecord =>
  record._tag === "Chat" ? { ...record, chat: { ...record.chat, id } } : record;

const entryOf = (record: ArchiveRecord) => (record._tag === "Entry" ? record.entry : undefined);

const lastChat = (records: ReadonlyArray<ArchiveRecord>) =>
  records.findLast((record) => record._tag === "Chat")!.chat.id;

export const exportChecks: ReadonlyArray<
  Check<ChatStore | TurnStore | ChatArchive | StoreUnderTest>
> = [
  check(
    "an export holds every chat and entry in order, and imports as it was",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
      const from = yield* newChatbot;
      const chats = yield* filled(from);
      // Nothing is no usage but none at all.
      for (const none of [
        "promptTokens",
        "completionTokens",
        "latencyMillis",
        "attempts",
      ] as const) {
        yield* ask(from, chats.at(-1)!.id, entry(none, { usage: { ...usage, [none]: 0 } }));
      }
      yield* erase(from, { _tag: "UserRef", userRef: "x" });
      const records = yield* exported(from);
      const stored = yield* peek(from);
      yield* same(
        "the records",
        records,
        stored.flatMap(({ entries, ...chat }): Array<ArchiveRecord> => [
          { _tag: "Chat", chat },
          ...entries.map(({ usage, ...rest }): ArchiveRecord => ({
            _tag: "Entry",
            entry: { ...rest, chatId: chat.id },
            usage,
          })),
        ]),
      );
      const to = yield* newChatbot;
      yield* same("how many", yield* archive.import(to, archive.export(from)), stored.length);
      yield* same("what lies in the storage", yield* peek(to), stored);
      yield* listsAre(
        to,
        stored.map(({ entries: _, ...chat }) => chat),
      );
      const later = yield* create(to);
      yield* same("a later id", later.id > chats.at(-1)!.id, true);
      const asked = yield* ask(to, stored[0]!.id, entry("later"));
      const history = yield* ChatStore.use((store) =>
        store.listEntries(to, stored[0]!.id, { ...newest, limit: 1 }),
      );
      yield* same("the history", history, {
        items: [asked],
        total: stored[0]!.entries.length + 1,
      });
    }),
  ),

  check(
    "an export is of one moment, whatever is written while it is read",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
      const few = yield* newChatbot;
      yield* filled(few);
      // So many that they are not read at once.
      const many = yield* newChatbot;
      const time = new Date(1_700_000_000_000);
      yield* imported(
        many,
        Array.from({ length: 1_300 }, (_, n) => chatRecord(n + 1, time)),
      );
      for (const chatbot of [few, many]) {
        const before = yield* exported(chatbot);
        const chats = yield* peek(chatbot);
        let seen = 0;
        const read = yield* archive.export(chatbot).pipe(
          Stream.tap(() => {
            if (seen++ % 150 > 0) return Effect.void;
            return Effect.gen(function* () {
              yield* ask(chatbot, chats.at(-1)!.id, entry("meanwhile"));
              yield* erase(chatbot, { _tag: "Chat", id: chats.at(-2)!.id });
              yield* create(chatbot, { name: "meanwhile" });
            });
          }),
          Stream.runCollect,
        );
        yield* same("the records", read, before);
        // Who does not read one to its end is in nobody's way.
        yield* Stream.runDrain(Stream.take(archive.export(chatbot), 1));
        yield* create(chatbot, { name: "afterwards" });
        const { length } = yield* peek(chatbot);
        const whole = (yield* exported(chatbot)).filter(({ _tag }) => _tag === "Chat");
        yield* same("how many chats the next one has", whole.length, length);
      }
      // Two of one instance do not disturb each other.
      const both = yield* Effect.all([exported(many), exported(few), exported(many)], {
        concurrency: 3,
      });
      for (const [n, chatbot] of [many, few, many].entries()) {
        yield* same("one of several at once", both[n], yield* exported(chatbot));
      }
      const all = yield* exported(many);
      const zipped = Stream.zip(archive.export(many), archive.export(many));
      yield* same(
        "two in step",
        yield* Stream.runCollect(zipped),
        all.map((one) => [one, one]),
      );
    }),
  ),

  check(
    "exports are imported while others are, and while they are written to",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
      const { second } = yield* StoreUnderTest;
      const [from, other] = [yield* newChatbot, yield* newChatbot];
      const time = new Date(1_700_000_000_000);
      const many = Array.from({ length: 1_300 }, (_, n) => chatRecord(n + 1, time));
      yield* imported(from, many);
      const { id } = yield* create(other);
      const copy = (n: number) =>
        Effect.gen(function* () {
          const to = yield* newChatbot;
          // Each reads two at once, and erases something else between their records.
          const zipped = Stream.zip(archive.export(from), second.archive.export(from)).pipe(
            Stream.map(([record]) => record),
            Stream.tap((record) =>
              record._tag === "Chat" && record.chat.id === 1_200
                ? archive.erase(other, { _tag: "Chat", id: id + n })
                : Effect.void,
            ),
          );
          yield* archive.import(to, zipped);
          yield* same("a copy", yield* exported(to), many);
        });
      for (const n of [1, 3]) {
        const copies = Effect.as(atOnce(n, copy), "in time");
        yield* same(`${n} copies`, yield* Effect.raceFirst(copies, after(20_000)), "in time");
      }
    }),
  ),

  check(
    "a long chat and many chats are exported whole, and imported as they were",
    Effect.fnUntraced(function* () {
      // Before any time that a store may have now.
      const time = new Date(-1_000_000_000);
      const records = [
        chatRecord(1, time),
        ...Array.from({ length: 1_205 }, (_, n) => entryRecord(1, n + 1, time)),
        ...Array.from({ length: 605 }, (_, n) => chatRecord(n + 2, time, { name: `${n}` })),
        entryRecord(606, 2_000, time),
      ];
      const chatbot = yield* newChatbot;
      yield* same("how many", yield* imported(chatbot, records), 606);
      yield* same("the export", yield* exported(chatbot), records);
      const stored = yield* peek(chatbot);
      yield* same(
        "what lies in the storage",
        stored.map(({ entries, id }) => [id, entries.length]),
        stored.map((_, n) => [n + 1, n === 0 ? 1_205 : n === 605 ? 1 : 0]),
      );
      const store = yield* ChatStore;
      const chats = Effect.map(store.listChats(chatbot, newestChats), ({ total }) => total);
      yield* same("the chats", yield* chats, 606);
      const entries = records.flatMap((record) => entryOf(record) ?? []).slice(0, 1_205);
      for (const field of ["id", "_createTime", "question"] as const) {
        for (const descending of [true, false]) {
          for (const page of [1, 2, 25, 49, 50]) {
            const query = { ...newest, orderBy: [{ field, descending }] as const, page };
            yield* same(
              `the page of ${JSON.stringify(query)}`,
              yield* store.listEntries(chatbot, 1, query),
              entryPage(entries, query),
            );
          }
        }
      }
      // Nothing is remembered for longer than it holds, and none of the entries is left out.
      const later = entry("later", { usage });
      const { createTime } = yield* ask(chatbot, 1, later);
      yield* ask(chatbot, 1, later);
      yield* create(chatbot);
      const { total } = yield* store.listEntries(chatbot, 1, newest);
      yield* same("one chat and two entries more", [yield* chats, total], [607, 1_207]);
      const archive = yield* ChatArchive;
      const [sum] = yield* archive.usage(chatbot, time);
      yield* same("their usage", sum?.answers, 2);
      yield* same(
        "how many are idle",
        yield* erase(chatbot, { _tag: "IdleSince", limit: createTime }),
        605,
      );
      yield* same("what is left of the long one", (yield* peek(chatbot))[0]!.entries.length, 1_207);
    }),
  ),

  check(
    "long texts and many answers are kept whole",
    Effect.fnUntraced(function* () {
      const time = new Date(1_700_000_000_000);
      const chatbot = yield* newChatbot;
      const records = [
        chatRecord(1, time),
        ...Array.from({ length: 250 }, (_, n) => ({
          ...entryRecord(1, n + 1, time, `${n} ${"😀".repeat(5_000)}`),
          usage,
        })),
      ];
      yield* imported(chatbot, records);
      const { items } = yield* ChatStore.use((store) =>
        store.listEntries(chatbot, 1, { ...newest, limit: 100 }),
      );
      const newestOf = records.slice(-100).map((record) => entryOf(record)!);
      yield* same("the longest page", items, newestOf.toReversed());
      const [sum] = yield* ChatArchive.use((archive) => archive.usage(chatbot, time));
      yield* same(
        "the answers",
        [sum?.answers, sum?.promptTokens],
        [250, 250 * usage.promptTokens],
      );
      yield* same("the export", yield* exported(chatbot), records);
    }),
  ),

  check(
    "times are kept to the millisecond, and compared as what they are",
    Effect.fnUntraced(function* () {
      const [archive, store] = [yield* ChatArchive, yield* ChatStore];
      const chatbot = yield* newChatbot;
      const records = awkwardTimes.flatMap((time, n) => [
        chatRecord(n + 1, time),
        { ...entryRecord(n + 1, n + 1, time), usage },
      ]);
      yield* imported(chatbot, records);
      yield* same("the export", yield* exported(chatbot), records);
      const chats = records.flatMap((record) => (record._tag === "Chat" ? [record.chat] : []));
      for (const descending of [true, false]) {
        const orderBy = [{ field: "_createTime", descending }] as const;
        const query = { ...newestChats, orderBy };
        const page = yield* store.listChats(chatbot, query);
        yield* same("in the order of times", page, chatPage(chats, query));
      }
      for (const [n, time] of awkwardTimes.entries()) {
        const { items } = yield* store.listEntries(chatbot, n + 1, newest);
        yield* same("an entry's time", items[0]?.createTime, time);
        const [sum] = yield* archive.usage(chatbot, time);
        yield* same("how many since", sum?.answers, awkwardTimes.length - n);
      }
      for (const [n, limit] of awkwardTimes.entries()) {
        const idle = yield* erase(chatbot, { _tag: "IdleSince", limit });
        yield* same("how many before", idle, n === 0 ? 0 : 1);
      }
    }),
  ),

  check(
    "after an import, ids go on past the imported ones",
    Effect.fnUntraced(function* () {
      const from = yield* newChatbot;
      yield* conversation(from, [entry("a"), entry("b")]);
      const far = 1_000_000_000;
      const records = (yield* exported(from)).map((record): ArchiveRecord => {
        if (record._tag === "Chat") {
          return { _tag: "Chat", chat: { ...record.chat, id: record.chat.id + far } };
        }
        const { chatId, id, ...rest } = record.entry;
        return { ...record, entry: { ...rest, id: id + far, chatId: chatId + far } };
      });
      const to = yield* newChatbot;
      yield* imported(to, records);
      const [chat] = yield* peek(to);
      const made = yield* ask(to, chat!.id, entry("c"));
      yield* same("a later entry's id", made.id > chat!.entries.at(-1)!.id, true);
      const later = yield* create(to, { helloMessage: "Hello" });
      yield* same("a later chat's id", later.id > chat!.id, true);

      // The highest entry need not be in the last chat.
      const { createTime } = made;
      const third = yield* newChatbot;
      yield* imported(third, [
        chatRecord(2 * far + 1, createTime),
        entryRecord(2 * far + 1, 2 * far + 90_000, createTime),
        chatRecord(2 * far + 2, createTime),
        entryRecord(2 * far + 2, 2 * far + 7, createTime),
      ]);
      const appended = yield* ask(third, 2 * far + 1, entry("d"));
      yield* same("an entry's id after the highest", appended.id > 2 * far + 90_000, true);
    }),
  ),

  check(
    "after an import, times go on from the imported ones, whether of long ago or of the future",
    Effect.fnUntraced(function* () {
      const { second } = yield* StoreUnderTest;
      const now = (yield* create(yield* newChatbot)).createTime;
      const future = new Date(now.getTime() + 3_600_000);
      for (const chats of [yield* ChatStore, second.chats]) {
        const chatbot = yield* newChatbot;
        const old = new Date(-1_000);
        const last = new Date(future.getTime() + 5_000);
        yield* imported(chatbot, [
          chatRecord(1, old),
          chatRecord(2, future),
          entryRecord(2, 1, future),
          entryRecord(2, 2, future),
          entryRecord(2, 3, last),
          chatRecord(3, last),
        ]);
        const wanted = { ...bare, helloMessage: "Hello" };
        const { chat } = yield* chats.createChat(chatbot, wanted, null);
        yield* same("a chat's time not before", chat.createTime >= last, true);
        const hello = yield* chats.listEntries(chatbot, chat.id, newest);
        const itsTime = hello.items[0]?.createTime ?? old;
        yield* same("its entry's time not before", itsTime >= chat.createTime, true);
        for (const id of [2, 3]) {
          const made = yield* ask(chatbot, id, entry("later"));
          yield* same("an entry's time not before", made.createTime >= last, true);
        }
        const { chatId } = yield* ask(chatbot, null, entry("in a new chat"));
        const oldest = [{ field: "_createTime", descending: false }] as const;
        const { items } = yield* chats.listChats(chatbot, { ...newestChats, orderBy: oldest });
        yield* same(
          "by time",
          items.map(({ id }) => id),
          [1, 2, 3, chat.id, chatId],
        );
        const later = items.slice(3).map(({ createTime }) => createTime >= last);
        yield* same("whether their times are not before", later, [true, true]);
        // Also when nothing is left that is of the future.
        for (const { id } of items) yield* erase(chatbot, { _tag: "Chat", id });
        yield* imported(chatbot, [chatRecord(1, old)]);
        const next = yield* create(chatbot);
        yield* same("a time not before an erased one's", next.createTime >= last, true);
      }
    }),
  ),

  check(
    "imported chats are found, filtered and sorted as those that were created",
    Effect.fnUntraced(function* () {
      const store = yield* ChatStore;
      const from = yield* newChatbot;
      const chats = yield* createAll(from, [
        {},
        ...awkwardTexts.map((text) => ({ name: text, userRef: text })),
        ...awkwardTexts.map((text) => ({ name: `before ${text} after` })),
      ]);
      const to = yield* newChatbot;
      yield* imported(to, yield* exported(from));
      for (const text of awkwardTexts) {
        for (const more of [{ search: text }, { search: text.toUpperCase() }, { userRef: text }]) {
          const query = { ...newestChats, limit: 100, ...more };
          yield* same(
            `the page of ${JSON.stringify(query)}`,
            yield* store.listChats(to, query),
            chatPage(chats, query),
          );
        }
      }
      for (const descending of [true, false]) {
        const orderBy = [{ field: "name", descending }] as const;
        const query = { ...newestChats, limit: 100, orderBy };
        const page = yield* store.listChats(to, query);
        yield* same("in the order of names", page, chatPage(chats, query));
      }
    }),
  ),

  check(
    "chats that were erased can be imported again",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const chats = yield* filled(chatbot);
      const [records, stored] = [yield* exported(chatbot), yield* peek(chatbot)];
      const late = yield* taken(chatbot, chats[0]!.id, { key: "key", fingerprint: "f" });
      const limit = new Date(8_000_000_000_000);
      yield* same("how many", yield* erase(chatbot, { _tag: "IdleSince", limit }), chats.length);
      yield* listsAre(chatbot, []);
      yield* same("how many", yield* imported(chatbot, records), chats.length);
      yield* same("what lies in the storage", yield* peek(chatbot), stored);
      yield* same("the export", yield* exported(chatbot), records);
      yield* listsAre(chatbot, chats);
      const later = yield* create(chatbot, { name: "chat 1" });
      yield* listsAre(chatbot, [...chats, later]);
      // Of the erased chat's texts nothing comes back.
      const { second } = yield* StoreUnderTest;
      const turns = yield* TurnStore;
      const other = yield* newChatbot;
      const first = [
        chatRecord(1, chats[0]!.createTime),
        entryRecord(1, 1, chats[0]!.createTime, "old"),
      ];
      yield* imported(other, first);
      for (const { release, take } of [turns, second.turns]) {
        const outcome = yield* take(other, 1, null);
        if (outcome._tag === "Turn") yield* release(outcome.turn);
      }
      yield* erase(other, { _tag: "Chat", id: 1 });
      yield* imported(other, [first[0]!, entryRecord(1, 1, chats[0]!.createTime, "new")]);
      for (const { release, take } of [turns, second.turns]) {
        const outcome = yield* take(other, 1, null);
        if (outcome._tag !== "Turn") return yield* same("a turn", outcome._tag, "Turn");
        const questions = outcome.turn.newest.map(({ question }) => question);
        yield* same("what a turn brings", questions, ["new"]);
        yield* release(outcome.turn);
      }
      // A turn of the erased chat is none of the imported one.
      yield* failsWith("a late append", new TurnLost(), append(late, entry("late")));
      yield* ask(chatbot, chats[0]!.id, entry("again"));
    }),
  ),

  check(
    "chatbots whose chats and entries have the same ids never meet",
    Effect.fnUntraced(function* () {
      const [store, turns] = [yield* ChatStore, yield* TurnStore];
      const from = yield* newChatbot;
      const { chat, entries } = yield* conversation(from, [entry("a"), entry("b")]);
      const twins = [from, yield* newChatbot, yield* newChatbot];
      for (const twin of twins.slice(1)) yield* imported(twin, yield* exported(from));
      const held = yield* Effect.forEach(twins, (twin) =>
        taken(twin, chat.id, { key: "key", fingerprint: `${twin}` }),
      );
      for (const turn of held) {
        yield* same("what it brings", turn.newest, entries.toReversed());
        yield* same("still ours", yield* turns.renew(turn), true);
        const older = yield* turns.earlier(turn, entries[1]!.id);
        yield* same("what was before", older, [entries[0]]);
      }
      yield* turns.release(held[2]!);
      const [first, second] = [
        yield* append(held[0]!, entry("first", { usage })),
        yield* append(held[1]!, entry("second")),
      ];
      for (const [n, made] of [[first], [second], []].entries()) {
        const kept = [...entries, ...made];
        const history = yield* store.listEntries(twins[n]!, chat.id, newest);
        yield* same("its history", history, { items: kept.toReversed(), total: kept.length });
        const sums = yield* ChatArchive.use((archive) => archive.usage(twins[n]!, new Date(0)));
        yield* same("its usage", sums.length, n === 0 ? 1 : 0);
      }
      yield* erase(twins[1]!, { _tag: "Chat", id: chat.id });
      for (const [n, total] of [3, null, 2].entries()) {
        const query = { ...newestChats, id: chat.id };
        const page = yield* store.listChats(twins[n]!, query);
        yield* same("the chat", page.total, total === null ? 0 : 1);
        const read = store.listEntries(twins[n]!, chat.id, newest);
        if (total === null)
          yield* failsWith("its history", new ChatNotFound({ chatId: chat.id }), read);
        else yield* same("its history", (yield* read).total, total);
      }
    }),
  ),

  check(
    "an import into a chatbot that has chats writes nothing, and neither does one that is out of order or breaks off",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
      const from = yield* newChatbot;
      yield* conversation(from, [entry("a"), entry("b")]);
      yield* create(from, { helloMessage: "Hello" });
      const records = yield* exported(from);
      const before = yield* peek(from);
      yield* failsWith("one that has chats", "ImportRefused", imported(from, records));
      yield* same("what lies in the storage", yield* peek(from), before);
      const to = yield* newChatbot;
      // So many that they do not go in at once.
      const time = new Date(1_700_000_000_000);
      const many = Array.from({ length: 1_050 }, (_, n) => [
        chatRecord(n + 1, time),
        entryRecord(n + 1, n + 1, time),
      ]).flat();
      const future = new Date("2900-01-01T00:00:00Z");
      for (const wrong of [
        [...many, chatRecord(1_000, time)],
        [...many, ...many.slice(-1)],
        // An entry's id that came long before.
        [...many, chatRecord(2_000, time), entryRecord(2_000, 1, time)],
        records.toReversed(),
        [...records, records[0]!],
        [...records, records[1]!],
        records.slice(1),
        [entryRecord(0, 1, time)],
        ...[Number.NaN, -8_000_000_000_000_000, 8_000_000_000_000_000].map((millis) => [
          chatRecord(1, new Date(millis)),
        ]),
        ...[2 ** 53 - 2 ** 40 + 1, Number.MAX_SAFE_INTEGER].map((id) => [withId(records[0]!, id)]),
        // Times that go back.
        [chatRecord(1, time), chatRecord(2, new Date(time.getTime() - 1))],
        [chatRecord(1, time), entryRecord(1, 1, new Date(time.getTime() - 1))],
        [
          chatRecord(1, time),
          entryRecord(1, 1, new Date(time.getTime() + 1)),
          entryRecord(1, 2, time),
        ],
        ...[0, -1, 1.5, 2 ** 53].map((id) => records.map((record) => withId(record, id))),
        [chatRecord(1, future), chatRecord(1, future)],
        [
          ...records,
          { ...records[1]!, entry: { ...entryOf(records[1]!), chatId: lastChat(records) } },
        ],
      ] as ReadonlyArray<ReadonlyArray<ArchiveRecord>>) {
        yield* failsWith("out of order", "ImportRefused", imported(to, wrong));
      }
      const later = yield* create(to);
      yield* same("whether the time is as it was", later.createTime < future, true);
      yield* erase(to, { _tag: "Chat", id: later.id });
      // It takes along nothing that others do meanwhile.
      const key = { key: "key", fingerprint: "f" };
      const turn = yield* taken(to, null, key);
      for (const some of [records, many]) {
        const broken = Stream.unwrap(
          Effect.as(
            ask(from, before[0]!.id, entry("meanwhile")),
            Stream.fail({ _tag: "Broken" as const }),
          ),
        );
        yield* failsWith(
          "one that breaks off",
          "Broken",
          archive.import(to, Stream.concat(Stream.fromIterable(some), broken)),
        );
      }
      const [asked] = yield* peek(from);
      yield* same("entries meanwhile", asked!.entries.length, before[0]!.entries.length + 2);
      yield* same("a turn meanwhile", yield* TurnStore.use((turns) => turns.renew(turn)), true);
      yield* TurnStore.use((turns) => turns.release(turn));
      yield* same("what lies in the storage", yield* peek(to), []);
      const asking = yield* taken(to, null, key);
      yield* same("a whole one", yield* imported(to, records), 2);
      yield* append(asking, entry("an ask under way"));
      // Others may have the same ids, and be imported at once.
      const others = [yield* newChatbot, yield* newChatbot, yield* newChatbot];
      const counts = yield* Effect.forEach(others, (other) => imported(other, many), {
        concurrency: 3,
      });
      yield* same("several at once", counts, [1_050, 1_050, 1_050]);
      for (const other of others) yield* same("an export", yield* exported(other), many);
    }),
  ),
];
