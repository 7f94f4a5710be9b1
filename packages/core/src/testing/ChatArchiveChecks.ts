/**
 * What `ChatArchive` promises.
 */
import { Effect, Stream } from "effect";
import { ChatArchive, type ArchiveRecord, type Erasable } from "../ChatArchive.ts";
import { ChatStore } from "../ChatStore.ts";
import { newest, newestChats } from "../ListQuery.ts";
import { TurnStore } from "../TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import { append, ask, conversation, create, createAll, entry, taken } from "./Fixtures.ts";
import { chatPage } from "./Model.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

const newChatbot = StoreUnderTest.use((store) => store.newChatbot);
const peek = (chatbot: number) => StoreUnderTest.use((store) => store.peek(chatbot));
const erase = (chatbot: number, which: Erasable) =>
  ChatArchive.use((archive) => archive.erase(chatbot, which));
const exported = (chatbot: number) =>
  ChatArchive.use((archive) => Stream.runCollect(archive.export(chatbot)));

const usage = {
  provider: "provider",
  model: "model",
  promptTokens: 3,
  completionTokens: 5,
  attempts: 2,
  latencyMillis: 7,
};

/** Chats of two users and of none, some with entries. */
const filled = Effect.fnUntraced(function* (chatbot: number) {
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
const listsAre = Effect.fnUntraced(function* (
  chatbot: number,
  chats: Parameters<typeof chatPage>[0],
) {
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

/** The record with another id; entries keep following their chat. */
const withId = (record: ArchiveRecord, id: number): ArchiveRecord =>
  record._tag === "Chat" ? { ...record, chat: { ...record.chat, id } } : record;

const entryOf = (record: ArchiveRecord) => (record._tag === "Entry" ? record.entry : undefined);

const lastChat = (records: ReadonlyArray<ArchiveRecord>) =>
  records.findLast((record) => record._tag === "Chat")!.chat.id;

export const chatArchiveChecks: ReadonlyArray<
  Check<ChatStore | TurnStore | ChatArchive | StoreUnderTest>
> = [
  check(
    "erased chats are gone with all that belonged to them, and the lists stay exact",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const others = yield* newChatbot;
      const first = yield* filled(others);
      // Ids are a chatbot's own: the last of these is one that the chatbot never has.
      const foreign = [
        ...first,
        ...(yield* createAll(
          others,
          Array.from({ length: 20 }, () => ({})),
        )),
      ];
      let chats: Parameters<typeof chatPage>[0] = yield* filled(chatbot);
      yield* listsAre(chatbot, chats);
      const [second, last] = [chats[1]!.id, chats.at(-1)!.id];
      for (const { kept, which } of [
        {
          which: { _tag: "Chat", id: second },
          kept: (id: number) => id !== second,
        },
        {
          which: { _tag: "Chat", id: last },
          kept: (id: number) => id !== last,
        },
        {
          which: { _tag: "UserRef", userRef: "x" },
          kept: (id: number) => chats.find((chat) => chat.id === id)!.userRef !== "x",
        },
        { which: { _tag: "UserRef", userRef: "nobody" }, kept: () => true },
        { which: { _tag: "Chat", id: foreign.at(-1)!.id }, kept: () => true },
      ] as ReadonlyArray<{ which: Erasable; kept: (id: number) => boolean }>) {
        const left = chats.filter(({ id }) => kept(id));
        yield* same("how many", yield* erase(chatbot, which), chats.length - left.length);
        yield* ChatArchive.use((archive) => archive.compact);
        chats = left;
        yield* listsAre(chatbot, chats);
        const later = yield* create(chatbot, { name: "chat 1", userRef: "y" });
        chats = [...chats, later];
        yield* listsAre(chatbot, chats);
        const stored = (yield* peek(chatbot)).map(({ entries: _, ...chat }) => chat);
        yield* same("what lies in the storage", stored, chats);
      }
      yield* listsAre(others, foreign);
    }),
  ),

  check(
    "an erasure takes a userRef as it is",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      let references = ["u_1", "uX1", "U_1", "u_1 ", "%", "", "\\", null];
      yield* createAll(
        chatbot,
        references.map((userRef) => ({ userRef })),
      );
      for (const gone of ["u_1", "%", "", "\\"]) {
        const which: Erasable = { _tag: "UserRef", userRef: gone };
        yield* same("how many", yield* erase(chatbot, which), 1);
        references = references.filter((userRef) => userRef !== gone);
        const left = (yield* peek(chatbot)).map(({ userRef }) => userRef);
        yield* same("which are left", left, references);
      }
    }),
  ),

  check(
    "what one instance erased is gone at another that had read it",
    Effect.fnUntraced(function* () {
      const { second } = yield* StoreUnderTest;
      const [chats, archive] = [yield* ChatStore, yield* ChatArchive];
      const query = { ...newestChats, search: "secret" };
      for (const [here, there] of [
        [{ chats, archive }, second],
        [second, { chats, archive }],
      ] as const) {
        const chatbot = yield* newChatbot;
        const { id } = yield* create(chatbot, { name: "secret", helloMessage: "secret" });
        const read = here.chats.listEntries(chatbot, id, newest);
        yield* same("its entries", (yield* read).total, 1);
        for (const list of [newestChats, query]) {
          yield* same("the chats", (yield* here.chats.listChats(chatbot, list)).total, 1);
        }
        yield* there.archive.erase(chatbot, { _tag: "Chat", id });
        yield* failsWith("its entries", "ChatNotFound", read);
        for (const list of [newestChats, query]) {
          const none = yield* here.chats.listChats(chatbot, list);
          yield* same("the chats", none, { total: 0, items: [] });
        }
      }
    }),
  ),

  check(
    "chats idle since a limit are erased, by their last entry or else their creation",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { pass } = yield* StoreUnderTest;
      const [idle, used] = yield* createAll(chatbot, [{ helloMessage: "Hello" }, {}]);
      yield* pass(10);
      let limit = idle!.createTime;
      while (limit.getTime() === idle!.createTime.getTime()) {
        limit = (yield* ask(chatbot, used!.id, entry("q"))).createTime;
      }
      yield* same("how many", yield* erase(chatbot, { _tag: "IdleSince", limit }), 1);
      yield* same(
        "which is left",
        (yield* peek(chatbot)).map(({ id }) => id),
        [used!.id],
      );
      const later = new Date(limit.getTime() + 1);
      yield* same("the other", yield* erase(chatbot, { _tag: "IdleSince", limit: later }), 1);
      yield* same("none is left", yield* peek(chatbot), []);
      const empty = yield* create(chatbot);
      const soon = { _tag: "IdleSince", limit: empty.createTime } as const;
      yield* same("one without entries", yield* erase(chatbot, soon), 0);
      const after = new Date(empty.createTime.getTime() + 1);
      yield* same("a bit later", yield* erase(chatbot, { _tag: "IdleSince", limit: after }), 1);
    }),
  ),

  check(
    "an ask in flight in a chat that is erased stores nothing",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      const key = { key: "key", fingerprint: "f" };
      for (const retryKey of [null, key]) {
        const chat = retryKey === null ? id : (yield* create(chatbot)).id;
        const turn = yield* taken(chatbot, chat, retryKey);
        yield* same("how many", yield* erase(chatbot, { _tag: "Chat", id: chat }), 1);
        yield* same("still ours", yield* store.renew(turn), false);
        yield* failsWith("its append", "ChatNotFound", append(turn, entry("q")));
        yield* store.release(turn);
        yield* failsWith("another take", "ChatNotFound", store.take(chatbot, chat, retryKey));
      }
      yield* same("what lies in the storage", yield* peek(chatbot), []);
    }),
  ),

  check(
    "the retry keys of an erased chat are forgotten, and no others",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const key = { key: "key", fingerprint: "f" };
      const turn = yield* taken(chatbot, null, key);
      const made = yield* append(turn, entry("q"));
      // Chats of different chatbots may have one id.
      const another = yield* newChatbot;
      yield* ChatArchive.use((archive) => archive.import(another, archive.export(chatbot)));
      const which: Erasable = { _tag: "Chat", id: made.chatId };
      yield* same("how many", yield* erase(another, which), 1);
      const done = yield* TurnStore.use((store) => store.take(chatbot, null, key));
      yield* same("the key", done, { _tag: "Done", entry: made, turn: turn.id });
      yield* erase(chatbot, which);
      yield* taken(chatbot, null, { ...key, fingerprint: "another" });
    }),
  ),

  check(
    "an export holds every chat and entry in order, and imports as it was",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
      const from = yield* newChatbot;
      const chats = yield* filled(from);
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
      const chatbot = yield* newChatbot;
      const chats = yield* filled(chatbot);
      const before = yield* exported(chatbot);
      let written = false;
      const read = yield* archive.export(chatbot).pipe(
        Stream.tap(() => {
          if (written) return Effect.void;
          written = true;
          return Effect.andThen(
            ask(chatbot, chats.at(-1)!.id, entry("meanwhile")),
            create(chatbot, { name: "meanwhile" }),
          );
        }),
        Stream.runCollect,
      );
      yield* same("the records", read, before);
    }),
  ),

  check(
    "after an import, ids go on past the imported ones",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
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
      yield* archive.import(to, Stream.fromIterable(records));
      const [chat] = yield* peek(to);
      const made = yield* ask(to, chat!.id, entry("c"));
      yield* same("a later entry's id", made.id > chat!.entries.at(-1)!.id, true);
      const later = yield* create(to, { helloMessage: "Hello" });
      yield* same("a later chat's id", later.id > chat!.id, true);

      // The highest entry need not be in the last chat.
      const [createTime, farther] = [made.createTime, 2 * far];
      const third = yield* newChatbot;
      const chatOf = (id: number): ArchiveRecord => ({
        _tag: "Chat",
        chat: { id: farther + id, name: null, userRef: null, createTime },
      });
      const { usage: none, ...texts } = entry("q");
      const entryIn = (chat: number, id: number): ArchiveRecord => ({
        _tag: "Entry",
        entry: { ...texts, id: farther + id, chatId: farther + chat, createTime },
        usage: none,
      });
      const mixed = [chatOf(1), entryIn(1, 90_000), chatOf(2), entryIn(2, 7)];
      yield* archive.import(third, Stream.fromIterable(mixed));
      const appended = yield* ask(third, farther + 1, entry("d"));
      yield* same("an entry's id after the highest", appended.id > farther + 90_000, true);
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
      yield* failsWith(
        "one that has chats",
        "ImportRefused",
        archive.import(from, Stream.fromIterable(records)),
      );
      yield* same("what lies in the storage", yield* peek(from), before);
      const to = yield* newChatbot;
      for (const wrong of [
        records.toReversed(),
        [...records, records[0]!],
        [...records, records[1]!],
        records.slice(1),
        [withId(records[0]!, Number.MAX_SAFE_INTEGER)],
        ...[0, -1, 1.5, 2 ** 53].map((id) => records.map((record) => withId(record, id))),
        [
          ...records,
          { ...records[1]!, entry: { ...entryOf(records[1]!), chatId: lastChat(records) } },
        ],
      ] as ReadonlyArray<ReadonlyArray<ArchiveRecord>>) {
        yield* failsWith(
          "out of order",
          "ImportRefused",
          archive.import(to, Stream.fromIterable(wrong)),
        );
      }
      yield* failsWith(
        "one that breaks off",
        "Broken",
        archive.import(
          to,
          Stream.concat(Stream.fromIterable(records), Stream.fail({ _tag: "Broken" as const })),
        ),
      );
      yield* same("what lies in the storage", yield* peek(to), []);
      yield* same("a whole one", yield* archive.import(to, Stream.fromIterable(records)), 2);
    }),
  ),

  check(
    "usage is summed by provider and model since a time",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
      const chatbot = yield* newChatbot;
      yield* conversation(chatbot, [
        entry("a", { usage }),
        entry("b", { usage: { ...usage, model: "another" } }),
        entry("c", { usage }),
        entry("d"),
        ...["e", "f", "g"].map((question) =>
          entry(question, { usage: { ...usage, provider: "another" } }),
        ),
      ]);
      yield* conversation(yield* newChatbot, [entry("a", { usage })]);
      const { latencyMillis: _, ...one } = usage;
      // Pairs that are the same when they are put together.
      const mixed = yield* newChatbot;
      const pairs = ["/", ":", " ", ",", "-"].flatMap((sign) => [
        { provider: "a", model: `b${sign}c` },
        { provider: `a${sign}b`, model: "c" },
      ]);
      yield* conversation(
        mixed,
        pairs.map((pair) => entry("q", { usage: { ...usage, ...pair } })),
      );
      const apart = yield* archive.usage(mixed, new Date(0));
      yield* same("how many sums", apart.length, pairs.length);
      const sums = yield* archive.usage(chatbot, new Date(0));
      yield* same(
        "the sums",
        sums.toSorted((a, b) => a.answers - b.answers),
        [
          { ...one, model: "another", answers: 1 },
          { ...one, answers: 2, attempts: 4, promptTokens: 6, completionTokens: 10 },
          {
            ...one,
            provider: "another",
            answers: 3,
            attempts: 6,
            promptTokens: 9,
            completionTokens: 15,
          },
        ],
      );
      const never = new Date(8_000_000_000_000);
      yield* same("since never", yield* archive.usage(chatbot, never), []);
    }),
  ),
];
