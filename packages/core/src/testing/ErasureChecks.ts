/**
 * What `ChatArchive` promises of erasures.
 */
import { Effect } from "effect";
import type { Chat } from "../Chat.ts";
import { ChatArchive, type Erasable } from "../ChatArchive.ts";
import { ChatStore } from "../ChatStore.ts";
import { ChatNotFound } from "../Errors.ts";
import { newest, newestChats } from "../ListQuery.ts";
import { turnLease, TurnStore } from "../TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  append,
  ask,
  askLater,
  bare,
  bothTurns,
  chatRecord,
  create,
  createAll,
  entry,
  entryRecord,
  erase,
  exported,
  filled,
  imported,
  instances,
  listsAre,
  newChatbot,
  pass,
  peek,
  taken,
} from "./Fixtures.ts";
import { chatPage } from "./Model.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

export const erasureChecks: ReadonlyArray<
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
      let chats: ReadonlyArray<Chat> = yield* filled(chatbot);
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
        yield* ChatArchive.use((archive) => archive.compact("quick"));
        chats = left;
        yield* listsAre(chatbot, chats);
        const later = yield* create(chatbot, { name: "chat 1", userRef: "y" });
        chats = [...chats, later];
        yield* listsAre(chatbot, chats);
        const stored = (yield* peek(chatbot)).map(({ entries: _, ...chat }) => chat);
        yield* same("what lies in the storage", stored, chats);
      }
      for (const pace of ["quick", "thorough", "full"] as const) {
        const done = yield* ChatArchive.use((archive) => archive.compact(pace)).pipe(
          // The storage's own maintenance may be in the way for a while.
          Effect.repeat({ until: (done) => done === true, times: 9 }),
        );
        yield* same("whether a compaction is done some time", done, true);
      }
      yield* listsAre(chatbot, chats);
      yield* listsAre(others, foreign);
    }),
  ),

  check(
    "no id is used again after an erasure, of a chat or of an entry",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const kept = yield* create(chatbot);
      let newestChat = kept.id;
      const used = new Set<number>();
      for (let n = 0; n < 3; n++) {
        const { id } = yield* create(chatbot);
        yield* same("whether a chat's id is greater", id > newestChat, true);
        newestChat = id;
        const asked = [yield* ask(chatbot, id, entry("q"))];
        yield* erase(chatbot, { _tag: "Chat", id });
        if (n === 1) yield* ChatArchive.use((archive) => archive.compact("quick"));
        asked.push(yield* ask(chatbot, kept.id, entry("q")));
        for (const made of asked) {
          yield* same("whether an entry's id was used before", used.has(made.id), false);
          used.add(made.id);
        }
      }
    }),
  ),

  check(
    "an erasure takes a userRef as it is",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      let references = ["u_1", "uX1", "U_1", "u_1 ", "%", "", "\\", "42", "042", "42.0", null];
      yield* createAll(
        chatbot,
        references.map((userRef) => ({ userRef })),
      );
      for (const gone of ["u_1", "%", "", "\\", "42"]) {
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
      const [first, second] = yield* instances;
      const query = { ...newestChats, search: "secret" };
      for (const [here, there] of [
        [first, second],
        [second, first],
      ] as const) {
        const chatbot = yield* newChatbot;
        const wanted = { name: "secret", userRef: null, helloMessage: "secret" };
        const makes = { key: "makes", fingerprint: "f" };
        const asks = { key: "asks", fingerprint: "f" };
        const { chat } = yield* here.chats.createChat(chatbot, wanted, makes);
        const outcome = yield* here.turns.take(chatbot, chat.id, asks);
        if (outcome._tag !== "Turn") return yield* same("a turn", outcome._tag, "Turn");
        const made = yield* here.turns.append(outcome.turn, entry("secret"));
        const read = here.chats.listEntries(chatbot, chat.id, newest);
        yield* same("its entries", (yield* read).total, 2);
        for (const list of [newestChats, query]) {
          yield* same("the chats", (yield* here.chats.listChats(chatbot, list)).total, 1);
        }
        const again = here.chats.createChat(chatbot, wanted, makes);
        yield* same("created again", yield* again, { chat, replayed: true });
        const done = { _tag: "Done" as const, entry: made, turn: outcome.turn.id };
        yield* same("asked again", yield* here.turns.take(chatbot, chat.id, asks), done);
        yield* there.archive.erase(chatbot, { _tag: "Chat", id: chat.id });
        const notFound = new ChatNotFound({ chatId: chat.id });
        yield* failsWith("its entries", notFound, read);
        for (const list of [newestChats, query]) {
          const none = yield* here.chats.listChats(chatbot, list);
          yield* same("the chats", none, { total: 0, items: [] });
        }
        const gone = here.turns.take(chatbot, chat.id, asks);
        yield* failsWith("asked again", notFound, gone);
        yield* same("created again", (yield* again).replayed, false);
      }
    }),
  ),

  check(
    "lists of many chats are exact, and erasures take as many as there are",
    Effect.fnUntraced(function* () {
      const store = yield* ChatStore;
      const chatbot = yield* newChatbot;
      const started = 1_700_000_000_000;
      let chats: ReadonlyArray<Chat> = Array.from({ length: 1_300 }, (_, n) => ({
        id: n + 1,
        name: n % 11 === 0 ? null : `chat ${n % 7}`,
        userRef: n % 5 === 0 ? "y" : "x",
        createTime: new Date(started + Math.floor(n / 3)),
      }));
      yield* imported(
        chatbot,
        chats.flatMap(({ createTime, id, ...rest }) => [
          chatRecord(id, createTime, rest),
          ...(id % 2 === 0 ? [entryRecord(id, id, createTime)] : []),
        ]),
      );
      const erasures: ReadonlyArray<readonly [Erasable, (chat: Chat) => boolean]> = [
        [{ _tag: "UserRef", userRef: "nobody" }, () => true],
        [{ _tag: "Chat", id: 650 }, ({ id }) => id !== 650],
        [
          { _tag: "IdleSince", limit: new Date(started + 120) },
          ({ createTime }) => createTime >= new Date(started + 120),
        ],
        [{ _tag: "UserRef", userRef: "x" }, ({ userRef }) => userRef !== "x"],
      ];
      for (const [which, kept] of erasures) {
        const left = chats.filter(kept);
        yield* same("how many", yield* erase(chatbot, which), chats.length - left.length);
        chats = left;
        for (const more of [{}, { userRef: "x" }, { search: "CHAT 3" }]) {
          for (const field of ["id", "_createTime", "name", "userRef"] as const) {
            for (const page of [2, Math.ceil(chats.length / 100)]) {
              const orderBy = [{ field, descending: page % 2 === 1 }] as const;
              const query = { ...newestChats, ...more, orderBy, limit: 100, page };
              yield* same(
                `the page of ${JSON.stringify(query)}`,
                yield* store.listChats(chatbot, query),
                chatPage(chats, query),
              );
            }
          }
        }
        const stored = (yield* peek(chatbot)).map(({ entries: _, ...chat }) => chat);
        yield* same("what lies in the storage", stored, chats);
      }
    }),
  ),

  check(
    "chats idle since a limit are erased, by their last entry or else their creation",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [idle, used] = yield* createAll(chatbot, [{ helloMessage: "Hello" }, {}]);
      const { createTime: limit } = yield* askLater(chatbot, used!.id, idle!.createTime);
      // To be read or to have a turn without an entry is no use.
      yield* TurnStore.use((turns) => Effect.flatMap(taken(chatbot, idle!.id), turns.release));
      const late = yield* taken(chatbot, idle!.id);
      yield* pass(turnLease + 1);
      yield* TurnStore.use((turns) => turns.renew(late));
      yield* ChatStore.use((store) => store.listEntries(chatbot, idle!.id, newest));
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
      // Imported times are whatever they were elsewhere.
      const old = new Date("1960-01-01T00:00:00Z");
      const asked = new Date("1965-01-01T00:00:00Z");
      yield* imported(chatbot, [chatRecord(1, old), chatRecord(2, old), entryRecord(2, 1, asked)]);
      for (const [limit, expected] of [
        [old, 0],
        [new Date(old.getTime() + 1), 1],
        [asked, 0],
        [new Date(asked.getTime() + 1), 1],
      ] as const) {
        const which = { _tag: "IdleSince", limit } as const;
        yield* same(`before ${limit.toISOString()}`, yield* erase(chatbot, which), expected);
      }
      const ahead = new Date("2900-01-01T00:00:00Z");
      yield* imported(chatbot, [chatRecord(1, old), entryRecord(1, 1, ahead)]);
      yield* ask(chatbot, 1, entry("q"));
      const between = { _tag: "IdleSince", limit: new Date("2500-01-01T00:00:00Z") } as const;
      yield* same("one ahead of the clock", yield* erase(chatbot, between), 0);
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
        const notFound = new ChatNotFound({ chatId: chat });
        yield* failsWith("meanwhile", notFound, store.take(chatbot, chat, retryKey));
        yield* failsWith("its renewal", notFound, store.renew(turn));
        yield* failsWith("its append", notFound, append(turn, entry("q")));
        yield* same("what was before", yield* store.earlier(turn, Number.MAX_SAFE_INTEGER), []);
        yield* store.release(turn);
        yield* failsWith("another take", notFound, store.take(chatbot, chat, retryKey));
      }
      yield* same("what lies in the storage", yield* peek(chatbot), []);
      // Its key is forgotten with it, whether it ends or not, and however long it goes on.
      for (const renewals of [0, 1, 2]) {
        const gone = yield* create(chatbot, { userRef: "u" });
        const turn = yield* taken(chatbot, gone.id, key);
        for (let n = 0; n < renewals; n++) yield* store.renew(turn);
        yield* erase(chatbot, { _tag: "UserRef", userRef: "u" });
        yield* store.release(yield* taken(chatbot, null, { ...key, fingerprint: "another" }));
      }
    }),
  ),

  check(
    "an erasure and its compaction leave alone what runs in other chats",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [gone, other] = yield* createAll(chatbot, [{}, {}]);
      const turns = yield* Effect.forEach([other!.id, null], (chat) =>
        taken(chatbot, chat, { key: `key of ${chat}`, fingerprint: "f" }),
      );
      yield* erase(chatbot, { _tag: "Chat", id: gone!.id });
      yield* ChatArchive.use((archive) => archive.compact("quick"));
      const store = yield* TurnStore;
      for (const turn of turns) {
        yield* same("still ours", yield* store.renew(turn), true);
        const again = store.take(chatbot, turn.chat, turn.retryKey);
        yield* same("still held", (yield* again)._tag, "Held");
        if (turn.chat !== null) {
          const alone = yield* store.take(chatbot, turn.chat, null);
          yield* same("the chat, held by itself", alone._tag, "Held");
          yield* store.leave(chatbot, turn.chat);
        }
        const made = yield* append(turn, entry("q"));
        yield* ChatArchive.use((archive) => archive.compact("quick"));
        yield* same("afterwards", yield* again, { _tag: "Done", entry: made, turn: turn.id });
      }
    }),
  ),

  check(
    "who waits for a turn keeps the place through erasures and their compaction",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [store, second] = yield* bothTurns;
      const [gone, other] = yield* createAll(chatbot, [{}, {}]);
      const turn = yield* taken(chatbot, other!.id);
      const held = yield* second.take(chatbot, other!.id, null);
      yield* same("the chat", held._tag, "Held");
      yield* erase(chatbot, { _tag: "Chat", id: gone!.id });
      yield* ChatArchive.use((archive) => archive.compact("quick"));
      yield* append(turn, entry("q"));
      const next = yield* store.take(chatbot, other!.id, null);
      yield* same("who comes later than one that waited", next._tag, "Held");
    }),
  ),

  check(
    "the retry keys of an erased chat are forgotten, and no others",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [chats, turns] = [yield* ChatStore, yield* TurnStore];
      const keyOf = (name: string) => ({ key: name, fingerprint: "f" });
      const createWith = (name: string, fingerprint = "f") =>
        chats.createChat(chatbot, { ...bare, userRef: "u" }, { key: name, fingerprint });
      for (const kind of ["Chat", "UserRef", "IdleSince"] as const) {
        const before = yield* taken(chatbot, null, keyOf("kept"));
        const kept = yield* append(before, entry("kept"));
        const { chat } = yield* createWith("created");
        const asked = yield* append(yield* taken(chatbot, chat.id, keyOf("asked")), entry("q"));
        // A key may go to another chat when its turn is released.
        const moved = keyOf("moved");
        yield* turns.release(yield* taken(chatbot, chat.id, moved));
        const turn = yield* taken(chatbot, kept.chatId, moved);
        const answered = yield* append(turn, entry("moved"));
        // The first is used later than the other.
        const { createTime: limit } = yield* askLater(chatbot, kept.chatId, asked.createTime);
        const which: Erasable = {
          Chat: { _tag: "Chat", id: chat.id } as const,
          UserRef: { _tag: "UserRef", userRef: "u" } as const,
          IdleSince: { _tag: "IdleSince", limit } as const,
        }[kind];
        // Chats of different chatbots may have one id, and their keys one name.
        const another = yield* newChatbot;
        yield* imported(another, yield* exported(chatbot));
        const theirs = { ...keyOf("created"), fingerprint: "theirs" };
        const known = yield* chats.createChat(another, bare, theirs);
        yield* same("how many", yield* erase(another, which), 1);
        yield* same("another's", yield* chats.createChat(another, bare, theirs), {
          ...known,
          replayed: true,
        });
        const repeated = yield* createWith("created");
        yield* same("still known", repeated, { chat, replayed: true });
        yield* same("how many", yield* erase(chatbot, which), 1);
        const done = yield* turns.take(chatbot, null, keyOf("kept"));
        yield* same("a kept key", done, { _tag: "Done", entry: kept, turn: before.id });
        const gone = yield* turns.take(chatbot, kept.chatId, moved);
        yield* same("one that moved", gone, { _tag: "Done", entry: answered, turn: turn.id });
        const again = yield* createWith("created", "another");
        yield* same("whether it is replayed", again.replayed, false);
        yield* turns.release(
          yield* taken(chatbot, null, { ...keyOf("asked"), fingerprint: "another" }),
        );
        yield* erase(chatbot, { _tag: "Chat", id: again.chat.id });
        yield* erase(chatbot, { _tag: "Chat", id: kept.chatId });
      }
    }),
  ),

  check(
    "the retry keys of very many erased chats are all forgotten",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* ChatStore;
      const createWith = (n: number, fingerprint: string) =>
        store.createChat(chatbot, { ...bare, userRef: "u" }, { key: `key ${n}`, fingerprint });
      const numbers = Array.from({ length: 220 }, (_, n) => n);
      yield* Effect.forEach(numbers, (n) => createWith(n, "f"), { concurrency: 20 });
      yield* same("how many", yield* erase(chatbot, { _tag: "UserRef", userRef: "u" }), 220);
      const again = yield* Effect.forEach(numbers, (n) => createWith(n, "another"), {
        concurrency: 20,
      });
      yield* same("replayed", again.filter(({ replayed }) => replayed).length, 0);
    }),
  ),
];
