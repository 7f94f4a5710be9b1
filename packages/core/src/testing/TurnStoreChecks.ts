/**
 * What `TurnStore` promises.
 */
import { Effect, Exit, Fiber, Stream } from "effect";
import { ChatStore } from "../ChatStore.ts";
import type { Entry } from "../Entry.ts";
import { ChatNotFound, TurnLost } from "../Errors.ts";
import { newest, newestChats } from "../ListQuery.ts";
import { retryKeyLifetime, type RetryKey } from "../RetryKey.ts";
import { TurnStore, turnEntries, turnLease, turnPrecedence } from "../TurnStore.ts";
import { askKeyChecks } from "./AskKeyChecks.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  after,
  append,
  ask,
  askLater,
  atOnce,
  bare,
  bothTurns,
  conversation,
  create,
  createAll,
  entry,
  newChatbot,
  pass,
  peek,
  taken,
  usage,
} from "./Fixtures.ts";
import { lineChecks } from "./LineChecks.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";
import { watchedCheck } from "./Watched.ts";

const key = { key: "key", fingerprint: "f" };

/** Reads the hints of both instances in fibers of their own. */
const readHints = Effect.fnUntraced(function* (
  read: (hint: { readonly chatbot: number; readonly chat: number } | null) => Effect.Effect<void>,
) {
  const { second } = yield* StoreUnderTest;
  return yield* Effect.forEach([yield* TurnStore, second.turns], ({ freed }) =>
    Effect.forkChild(Stream.runForEach(freed, read), { startImmediately: true }),
  );
});

export const turnStoreChecks: ReadonlyArray<Check<ChatStore | TurnStore | StoreUnderTest>> = [
  check(
    "an entry is listed and stored as it was returned",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const wanted = [
        entry("plain"),
        entry("with usage", { usage }),
        entry("flagged", { flagged: true, moderation: "self-harm/instructions, and others" }),
        entry("'; --", { answer: "\\ \n 😀 ".repeat(1000) }),
        entry("😀".repeat(10_000), { answer: "😀".repeat(100_000) }),
      ];
      const { chat, entries } = yield* conversation(chatbot, wanted);
      yield* same(
        "what was appended",
        entries.map(({ chatId: _, createTime: __, id: ___, ...rest }) => rest),
        wanted.map(({ usage: _, ...rest }) => rest),
      );
      const { items, total } = yield* ChatStore.use((store) =>
        store.listEntries(chatbot, chat.id, newest),
      );
      yield* same("the history", { items, total }, { items: entries.toReversed(), total: 5 });
      const [stored] = yield* peek(chatbot);
      yield* same(
        "what lies in the storage",
        stored!.entries.map(({ usage: _, ...rest }) => ({ ...rest, chatId: chat.id })),
        entries,
      );
      yield* same(
        "the usage in the storage",
        stored!.entries.map((one) => one.usage),
        [null, usage, null, null, null],
      );
    }),
  ),

  check(
    "a turn brings the newest entries, and the older ones on demand",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [chat, another] = yield* createAll(chatbot, [{}, {}]);
      const entries: Array<Entry> = [];
      // Between their ids are those of another chat's, once very many.
      for (let n = 0; n < 2 * turnEntries + 3; n++) {
        for (let m = 0; m < (n === 5 ? 2 * turnEntries : n % 2); m++)
          yield* ask(chatbot, another!.id, entry("in another chat"));
        const way = n % 3 === 0 ? { flagged: true, moderation: "hate", answer: "" } : {};
        entries.push(yield* ask(chatbot, chat!.id, entry(`q${n}`, way)));
      }
      const store = yield* TurnStore;
      const turn = yield* taken(chatbot, chat!.id);
      const seen: Array<Entry> = [...turn.newest];
      yield* same("how many it brings", seen.length, turnEntries);
      while (true) {
        const older = yield* store.earlier(turn, seen.at(-1)!.id);
        if (older.length === 0) break;
        yield* same("at most so many", older.length <= turnEntries, true);
        seen.push(...older);
      }
      yield* same("all entries, newest first", seen, entries.toReversed());
      // Also before what is no entry of the chat's.
      const newestOnes = entries.slice(-turnEntries).toReversed();
      const all = yield* store.earlier(turn, Number.MAX_SAFE_INTEGER);
      yield* same("before none of them", all, newestOnes);
      yield* same("before the newest and more", yield* store.earlier(turn, seen[0]!.id + 1), all);
      yield* same("before all of them", yield* store.earlier(turn, 1), []);
      // Of an id that is another chat's.
      const between = entries.findIndex(({ id }, n) => n > 0 && id > entries[n - 1]!.id + 1);
      if (between > 0) {
        const few = yield* store.earlier(turn, entries[between]!.id - 1);
        const older = entries.slice(0, between).toReversed().slice(0, turnEntries);
        yield* same("before an entry of another chat", few, older);
      }
    }),
  ),

  check(
    "a turn is held by one at a time",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      const { second } = yield* StoreUnderTest;
      const store = yield* TurnStore;
      const turn = yield* taken(chatbot, id);
      for (const other of [store, second.turns]) {
        const held = yield* other.take(chatbot, id, null);
        yield* same("what another gets", held._tag, "Held");
        if (held._tag !== "Held") return;
        const within = held.forMillis > 0 && held.forMillis <= turnLease;
        yield* same("for a lease at most", within, true);
      }
      yield* store.release(turn);
      const next = yield* taken(chatbot, id);
      yield* same("another turn's name", next.id === turn.id, false);
      yield* store.release(turn);
      yield* same("still held", (yield* store.take(chatbot, id, null))._tag, "Held");
      yield* append(next, entry("q"));
      // It waited longer than the first instance, which had its turn meanwhile.
      yield* same("the second's", (yield* second.turns.take(chatbot, id, null))._tag, "Turn");
    }),
  ),

  check(
    "a turn is held for a whole lease, not for whole seconds",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      for (const chat of [id, null]) {
        // Three times, or it may be right by accident.
        for (let n = 0; n < 3; n++) {
          yield* pass(337);
          const began = Date.now();
          const turn = yield* taken(chatbot, chat, key);
          for (const renewed of [false, true]) {
            if (renewed) yield* store.renew(turn);
            const outcomes = [yield* store.take(chatbot, chat, key)];
            if (chat !== null) outcomes.push(yield* store.take(chatbot, chat, null));
            for (const held of outcomes) {
              const lasts = held._tag === "Held" ? held.forMillis : 0;
              const enough = lasts + (Date.now() - began) > turnLease - 100;
              yield* same("for a lease", enough && lasts <= turnLease, true);
            }
          }
          yield* store.release(turn);
        }
      }
    }),
  ),

  check(
    "of several instances the one that waited longest goes next, with a retry key or without",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [store, second] = yield* bothTurns;
      for (const retryKey of [null, key]) {
        const { id } = yield* create(chatbot);
        const turn = yield* taken(chatbot, id);
        yield* same("it waits", (yield* second.take(chatbot, id, retryKey))._tag, "Held");
        yield* pass(1);
        // Who waited first is first, however often it asks.
        yield* same("another, too", (yield* store.take(chatbot, id, null))._tag, "Held");
        yield* same("it still waits", (yield* second.take(chatbot, id, null))._tag, "Held");
        yield* same("renewed meanwhile", yield* store.renew(turn), true);
        yield* append(turn, entry("q"));
        const held = yield* store.take(chatbot, id, null);
        yield* same("who comes later", held._tag, "Held");
        const forMillis = held._tag === "Held" ? held.forMillis : 0;
        yield* same(
          "for no longer than it has",
          forMillis > 0 && forMillis <= turnPrecedence,
          true,
        );
        const next = yield* second.take(chatbot, id, retryKey);
        yield* same("who waited", next._tag, "Turn");
        if (next._tag !== "Turn") return;
        yield* second.append(next.turn, entry("r"));
        const last = yield* store.take(chatbot, id, null);
        yield* same("and then the other", last._tag, "Turn");
        if (last._tag === "Turn") yield* store.release(last.turn);
        // Who does not come again does not hold the others up for long.
        const again = yield* taken(chatbot, id);
        yield* second.take(chatbot, id, null);
        yield* store.release(again);
        yield* pass(1_100);
        yield* same("within the time", (yield* store.take(chatbot, id, null))._tag, "Held");
        yield* pass(turnPrecedence + 1);
        const after = yield* store.take(chatbot, id, null);
        yield* same("after it", after._tag, "Turn");
        if (after._tag === "Turn") yield* store.release(after.turn);
        const lost = yield* store.take(chatbot, id, null);
        yield* same("and its place is lost", lost._tag, "Turn");
      }
    }),
  ),

  check(
    "who waits for a retry key has no place among those that wait for a chat",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { second } = yield* StoreUnderTest;
      const store = yield* TurnStore;
      const [chat, elsewhere] = yield* createAll(chatbot, [{}, {}]);
      const turn = yield* taken(chatbot, chat!.id);
      yield* taken(chatbot, elsewhere!.id, key);
      const held = yield* second.turns.take(chatbot, chat!.id, key);
      yield* same("held by", held._tag === "Held" && held.by, "key");
      yield* store.release(turn);
      yield* same("the chat", (yield* store.take(chatbot, chat!.id, null))._tag, "Turn");
    }),
  ),

  check(
    "who leaves the line without a place does no harm",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { second } = yield* StoreUnderTest;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      const turn = yield* taken(chatbot, id, key);
      for (const turns of [store, second.turns]) {
        for (const chat of [id, 0, Number.MAX_SAFE_INTEGER]) {
          yield* turns.leave(chatbot, chat);
          yield* turns.leave(yield* newChatbot, chat);
        }
        yield* same("still held", (yield* turns.take(chatbot, id, null))._tag, "Held");
        yield* turns.leave(chatbot, id);
      }
      yield* same("still ours", yield* store.renew(turn), true);
      yield* append(turn, entry("q"));
    }),
  ),

  check(
    "who leaves the line holds nobody up",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [store, second] = yield* bothTurns;
      const { id } = yield* create(chatbot);
      const turn = yield* taken(chatbot, id);
      yield* same("it waits", (yield* second.take(chatbot, id, null))._tag, "Held");
      yield* store.leave(chatbot, id);
      yield* store.release(turn);
      const held = yield* store.take(chatbot, id, null);
      yield* same("another's place is left alone", held._tag, "Held");
      yield* second.leave(chatbot, id);
      const next = yield* store.take(chatbot, id, null);
      yield* same("nobody is waited for", next._tag, "Turn");
      if (next._tag === "Turn") yield* store.release(next.turn);
    }),
  ),

  check(
    "hints hold nobody up where nobody reads them, and do not fail where somebody does",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      const store = yield* TurnStore;
      const asks = Effect.gen(function* () {
        yield* store.release(yield* taken(chatbot, null, key));
        yield* ask(chatbot, null, entry("q"));
        for (let n = 0; n < 100; n++) yield* ask(chatbot, id, entry("q"));
        return "in time";
      });
      const began = Date.now();
      yield* asks;
      const enough = 2_000 + 20 * (Date.now() - began);
      const stalled = yield* readHints(() => Effect.never);
      const awake = yield* readHints(() => Effect.void);
      yield* same("100 asks", yield* Effect.raceFirst(asks, after(enough)), "in time");
      yield* after(50);
      for (const reader of awake) {
        const exit = reader.pollUnsafe();
        yield* same("whether a reader failed", exit !== undefined && Exit.isFailure(exit), false);
      }
      yield* Fiber.interruptAll([...stalled, ...awake]);
    }),
  ),

  check(
    "hints tell of the end of turns only",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { second } = yield* StoreUnderTest;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      const hinted: Array<number> = [];
      const readers = yield* readHints((hint) =>
        Effect.sync(() => {
          if (hint?.chatbot === chatbot) hinted.push(hint.chat);
        }),
      );
      // A reader may need a while until it hears anything.
      yield* after(50);
      const turn = yield* taken(chatbot, id, key);
      yield* store.renew(turn);
      yield* second.turns.take(chatbot, id, null);
      yield* create(chatbot);
      yield* after(50);
      yield* same("hints while it is held", hinted, []);
      yield* append(turn, entry("q"));
      yield* second.turns.leave(chatbot, id);
      yield* Fiber.interruptAll(readers);
    }),
  ),

  check(
    "turns of different chats do not meet",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [a, b] = [yield* create(chatbot), yield* create(chatbot)];
      const turns = [
        yield* taken(chatbot, a.id),
        yield* taken(chatbot, b.id),
        yield* taken(chatbot, null),
        yield* taken(chatbot, null),
      ];
      const entries = yield* Effect.forEach(turns, (turn, n) => append(turn, entry(`q${n}`)));
      yield* same("their chats", new Set(entries.map(({ chatId }) => chatId)).size, 4);
    }),
  ),

  check(
    "very many turns can be held at once",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      const chats = yield* Effect.forEach(Array.from({ length: 220 }), () => create(chatbot), {
        concurrency: 20,
      });
      const turns = yield* Effect.forEach(chats, ({ id }) => taken(chatbot, id), {
        concurrency: 20,
      });
      const ours = yield* Effect.forEach(turns, store.renew, { concurrency: 20 });
      yield* same("how many are ours", ours.filter((one) => one).length, turns.length);
    }),
  ),

  check(
    "a turn of an unknown or foreign chat is not found",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(yield* newChatbot);
      const store = yield* TurnStore;
      for (const chat of [id, 0, Number.MAX_SAFE_INTEGER]) {
        const notFound = new ChatNotFound({ chatId: chat });
        yield* failsWith("without a key", notFound, store.take(chatbot, chat, null));
        yield* failsWith("with a key", notFound, store.take(chatbot, chat, key));
      }
      // The failures left no trace of the key.
      yield* taken(chatbot, null, { ...key, fingerprint: "another" });
    }),
  ),

  check(
    "a turn without a chat makes one with the first entry alone",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* ChatStore;
      const turn = yield* taken(chatbot, null);
      yield* same("nothing before", turn.newest, []);
      const earlier = TurnStore.use((turns) => turns.earlier(turn, Number.MAX_SAFE_INTEGER));
      yield* same("nor earlier", yield* earlier, []);
      yield* same("no chat yet", (yield* store.listChats(chatbot, newestChats)).total, 0);
      const made = yield* append(turn, entry("q", { usage }));
      const { items, total } = yield* store.listChats(chatbot, newestChats);
      const [chat] = items;
      yield* same(
        "the chat",
        [total, chat!.id, chat!.name, chat!.userRef],
        [1, made.chatId, null, null],
      );
      yield* same("its history", yield* store.listEntries(chatbot, made.chatId, newest), {
        items: [made],
        total: 1,
      });
      const [stored] = yield* peek(chatbot);
      yield* same("the usage in the storage", stored!.entries[0]!.usage, usage);
      const later = yield* create(chatbot);
      yield* same("ids still ascend", later.id > made.chatId, true);
    }),
  ),

  check(
    "a turn that is released makes nothing",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      yield* store.release(yield* taken(chatbot, null));
      yield* store.release(yield* taken(chatbot, null, key));
      yield* same("what lies in the storage", yield* peek(chatbot), []);
      yield* taken(chatbot, null, { ...key, fingerprint: "another" });
    }),
  ),

  check(
    "a lease that ran out is taken over, and the late one stores nothing",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      const store = yield* TurnStore;
      const late = yield* taken(chatbot, id);
      yield* pass(turnLease - 2_000);
      yield* same("before", (yield* store.take(chatbot, id, null))._tag, "Held");
      yield* pass(2_001);
      const next = yield* taken(chatbot, id);
      yield* same("the late one's renewal", yield* store.renew(late), false);
      yield* failsWith("the late one's append", new TurnLost(), append(late, entry("late")));
      yield* store.release(late);
      yield* same("still held", (yield* store.take(chatbot, id, null))._tag, "Held");
      const made = yield* append(next, entry("q"));
      const [stored] = yield* peek(chatbot);
      yield* same(
        "what lies in the storage",
        stored!.entries.map((one) => one.id),
        [made.id],
      );
      yield* failsWith("an append again", new TurnLost(), append(next, entry("twice")));
    }),
  ),

  check(
    "a turn that another took is lost for ever, also when the other has ended",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { second } = yield* StoreUnderTest;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      let keys = 0;
      for (const chat of [id, null]) {
        for (const isKeyed of chat === null ? [true] : [false, true]) {
          for (const end of ["append", "release", "lease"]) {
            const retryKey = isKeyed ? { ...key, key: `key ${++keys}` } : null;
            const lost = yield* taken(chatbot, chat, retryKey);
            yield* pass(turnLease + 1);
            const outcome = yield* second.turns.take(chatbot, chat, retryKey);
            if (outcome._tag !== "Turn") return yield* same("a turn", outcome._tag, "Turn");
            if (end === "append") yield* second.turns.append(outcome.turn, entry("q"));
            else if (end === "release") yield* second.turns.release(outcome.turn);
            else yield* pass(turnLease + 1);
            yield* same("whether it is ours again", yield* store.renew(lost), false);
            yield* failsWith("its append", new TurnLost(), append(lost, entry("late")));
            yield* store.release(lost);
            if (end === "lease") yield* second.turns.append(outcome.turn, entry("q"));
          }
        }
      }
      const stored = yield* peek(chatbot);
      const questions = stored.flatMap(({ entries }) => entries.map(({ question }) => question));
      yield* same("what was stored", questions, ["q", "q", "q", "q", "q", "q"]);
    }),
  ),

  check(
    "a turn without a key stays its owner's for days, when nobody takes it",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      const store = yield* TurnStore;
      const turns = [yield* taken(chatbot, id), yield* taken(chatbot, null)];
      yield* pass(2 * retryKeyLifetime);
      // What others take may sweep away what is old.
      yield* ask(chatbot, null, entry("q"));
      yield* store.release(yield* taken(chatbot, null, key));
      for (const turn of turns) {
        yield* same("still ours", yield* store.renew(turn), true);
        yield* append(turn, entry("late"));
      }
    }),
  ),

  check(
    "a turn with a key stays its owner's for a day, whatever others take meanwhile",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [chats, store] = [yield* ChatStore, yield* TurnStore];
      const { id } = yield* create(chatbot);
      const turns = [
        yield* taken(chatbot, id, key),
        yield* taken(chatbot, null, { ...key, key: "another" }),
      ];
      for (const millis of [turnLease + 1, retryKeyLifetime / 2, retryKeyLifetime / 2 - 60_000]) {
        yield* pass(millis);
        const other = { ...key, key: `other ${millis}` };
        yield* chats.createChat(chatbot, bare, { ...other, key: `${other.key} chat` });
        yield* append(yield* taken(chatbot, null, other), entry("q"));
        yield* store.release(yield* taken(chatbot, null, { ...other, key: `${other.key} again` }));
      }
      for (const turn of turns) yield* append(turn, entry("late"));
    }),
  ),

  check(
    "who takes over the chat or the key alone takes both",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { second } = yield* StoreUnderTest;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      const over: ReadonlyArray<readonly [number | null, RetryKey | null]> = [
        [id, null],
        [null, key],
        [id, key],
        [id, { ...key, key: "another" }],
        [null, { ...key, fingerprint: "another" }],
      ];
      for (const [chat, retryKey] of over) {
        const late = yield* taken(chatbot, id, key);
        yield* pass(turnLease + 1);
        const outcome = yield* second.turns.take(chatbot, chat, retryKey);
        yield* same("another instance's", outcome._tag, "Turn");
        if (outcome._tag !== "Turn") return;
        yield* same("the late one's renewal", yield* store.renew(late), false);
        yield* failsWith("the late one's append", new TurnLost(), append(late, entry("late")));
        // Nobody holds what it held, unless the other does.
        if (chat === null) yield* store.release(yield* taken(chatbot, id));
        if (retryKey === null) yield* store.release(yield* taken(chatbot, null, key));
        yield* store.release(late);
        yield* same("still held", yield* second.turns.renew(outcome.turn), true);
        const made = yield* second.turns.append(outcome.turn, entry("q"));
        yield* store.release(late);
        if (retryKey !== null) {
          const done = { _tag: "Done" as const, entry: made, turn: outcome.turn.id };
          yield* same("afterwards", yield* store.take(chatbot, chat, retryKey), done);
          yield* pass(retryKeyLifetime + 1);
        }
      }
      const [stored] = yield* peek(chatbot);
      const late = stored!.entries.filter(({ question }) => question === "late");
      yield* same("what the late ones stored", late, []);
    }),
  ),

  check(
    "no two turns have one name, whichever instances gave them",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { second } = yield* StoreUnderTest;
      const store = yield* TurnStore;
      const turns = yield* Effect.forEach(Array.from({ length: 2_000 }), (_, n) =>
        (n % 2 === 0 ? store : second.turns).take(chatbot, null, null),
      );
      const names = turns.map((taken) => taken._tag === "Turn" && taken.turn.id);
      yield* same("how many names", new Set(names).size, turns.length);
    }),
  ),

  check(
    "a chat made by an append comes after those made while its turn lasted",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const first = yield* create(chatbot);
      for (const retryKey of [null, key]) {
        const turn = yield* taken(chatbot, null, retryKey);
        yield* pass(10);
        const { createTime } = yield* askLater(chatbot, first.id, first.createTime);
        const between = yield* create(chatbot);
        const made = yield* append(turn, entry("q"));
        const query = { ...newestChats, id: made.chatId };
        const { items } = yield* ChatStore.use((store) => store.listChats(chatbot, query));
        const [chat] = items;
        yield* same("its id is greater", chat!.id > between.id, true);
        yield* same("its time is not before", chat!.createTime >= between.createTime, true);
        yield* same("nor before the asking", chat!.createTime >= createTime, true);
        yield* same("nor after its entry", chat!.createTime <= made.createTime, true);
      }
    }),
  ),

  check(
    "a renewed turn is held for another lease",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      const store = yield* TurnStore;
      for (const [chat, retryKey] of [
        [id, null],
        [id, key],
        [null, { key: "another key", fingerprint: "f" }],
      ] as const) {
        const turn = yield* taken(chatbot, chat, retryKey);
        for (let n = 0; n < 3; n++) {
          yield* pass(turnLease - 2_000);
          yield* same("ours", yield* store.renew(turn), true);
        }
        yield* pass(turnLease - 2_000);
        yield* same("held", (yield* store.take(chatbot, chat, retryKey))._tag, "Held");
        // The chat and the key, each by itself.
        if (chat !== null)
          yield* same("the chat", (yield* store.take(chatbot, chat, null))._tag, "Held");
        if (retryKey !== null)
          yield* same("the key", (yield* store.take(chatbot, null, retryKey))._tag, "Held");
        yield* append(turn, entry("q"));
        yield* same("after its end", yield* store.renew(turn), false);
        yield* same("ended once and for all", (yield* store.take(chatbot, id, null))._tag, "Turn");
        yield* pass(turnLease + 1);
      }
    }),
  ),

  check(
    "64 appends at once to one chat are kept one after the other, each seeing all before it",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { second } = yield* StoreUnderTest;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      const one = (n: number) =>
        Effect.gen(function* () {
          const turns = n % 2 === 0 ? store : second.turns;
          while (true) {
            const outcome = yield* turns.take(chatbot, id, null);
            if (outcome._tag === "Held") {
              yield* Effect.yieldNow;
              continue;
            }
            if (outcome._tag !== "Turn") return yield* same("a turn", outcome._tag, "Turn");
            const before: Array<Entry> = [...outcome.turn.newest];
            while (before.length > 0 && before.length % turnEntries === 0) {
              const older = yield* turns.earlier(outcome.turn, before.at(-1)!.id);
              if (older.length === 0) break;
              before.push(...older);
            }
            // Each stores what it saw, so that the order can be judged afterwards.
            const answer = before.map((other) => other.id).join();
            yield* turns.append(outcome.turn, entry(`q${n}`, { answer }));
            return;
          }
        });
      yield* atOnce(64, one);
      const [stored] = yield* peek(chatbot);
      const ids = stored!.entries.map((made) => made.id);
      yield* same("how many", ids.length, 64);
      yield* same(
        "ids in order of position",
        ids,
        ids.toSorted((a, b) => a - b),
      );
      for (const [at, made] of stored!.entries.entries()) {
        yield* same("what it saw", made.answer, ids.slice(0, at).toReversed().join());
      }
      const { items, total } = yield* ChatStore.use((chats) =>
        chats.listEntries(chatbot, id, { ...newest, limit: 100 }),
      );
      yield* same("the history", [total, items.map((made) => made.id)], [64, ids.toReversed()]);
    }),
  ),

  check(
    "one chatbot never waits for another's turns or keys",
    Effect.fnUntraced(function* () {
      const [ours, theirs] = [yield* newChatbot, yield* newChatbot];
      yield* taken(theirs, (yield* create(theirs)).id, key);
      const { id } = yield* create(ours);
      const turn = yield* taken(ours, id, key);
      const made = yield* append(turn, entry("q"));
      const store = yield* TurnStore;
      yield* same("ours", yield* store.take(ours, id, key), {
        _tag: "Done",
        entry: made,
        turn: turn.id,
      });
      yield* same("theirs", (yield* peek(theirs))[0]!.entries, []);
      yield* ask(ours, id, entry("again"));
    }),
  ),

  ...askKeyChecks,
  ...lineChecks,
].map(watchedCheck);
