/**
 * The promises of `TurnStore`, except those about retry keys.
 */
import { Effect, Exit, Fiber, Result, Stream } from "effect";
import { ChatStore } from "../ChatStore.ts";
import type { Entry } from "../Entry.ts";
import { ChatbotNotFound, ChatNotFound, TurnLost } from "../Errors.ts";
import { newest } from "../ListQuery.ts";
import { TurnStore, turnEntries, turnLease, turnPrecedence } from "../TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  after,
  append,
  ask,
  askLater,
  atOnce,
  bothTurns,
  conversation,
  create,
  createAll,
  entry,
  history,
  keyOf,
  list,
  newChatbot,
  noChatbot,
  pass,
  questions,
  stored,
  taken,
  usage,
} from "./Fixtures.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

const key = keyOf("key");

export const turnStoreChecks: ReadonlyArray<Check<ChatStore | TurnStore | StoreUnderTest>> = [
  check(
    "an entry is listed and stored as it was returned",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const wanted = [
        entry("plain"),
        entry("with usage", { usage }),
        entry("without tokens", { usage: { ...usage, promptTokens: 0, completionTokens: 0 } }),
        entry("flagged", { flagged: true, moderation: "self-harm/instructions, and others" }),
        entry("'; --", { answer: "\\ \n 😀 ".repeat(1000) }),
        entry("😀".repeat(10_000), { answer: "😀".repeat(100_000) }),
      ];
      const { chat, entries } = yield* conversation(chatbot, wanted);
      const rows = entries.map((one, n) => ({ ...one, usage: wanted[n]!.usage }));
      yield* same(
        "the appended entries",
        rows.map(({ chatId: _, createTime: __, id: ___, ...rest }) => rest),
        wanted,
      );
      const page = yield* history(chatbot, chat.id);
      yield* same("the history", page, { items: entries.toReversed(), total: entries.length });
      const [inStore] = yield* stored(chatbot);
      yield* same("the stored entries", inStore!.entries, rows);
    }),
  ),

  check(
    "a turn brings the newest entries, and the older ones on demand",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [chat, another] = yield* createAll(chatbot, [{}, {}]);
      const entries: Array<Entry> = [];
      // Between their ids lie those of another chat, once very many.
      for (let n = 0; n < 2 * turnEntries + 3; n++) {
        for (let m = 0; m < (n === 5 ? 2 * turnEntries : n % 2); m++) {
          yield* ask(chatbot, another!.id, entry("in another chat"));
        }
        const flagged = n % 3 === 0 ? { flagged: true, moderation: "hate", answer: "" } : {};
        entries.push(yield* ask(chatbot, chat!.id, entry(`q${n}`, flagged)));
      }
      const { earlier } = yield* TurnStore;
      const turn = yield* taken(chatbot, chat!.id);
      const seen: Array<Entry> = [...turn.newest];
      yield* same("how many it brings", seen.length, turnEntries);
      for (let older = seen.slice(-1); older.length > 0; seen.push(...older)) {
        older = [...(yield* earlier(turn, seen.at(-1)!.id))];
        yield* same("a page at most", older.length <= turnEntries, true);
      }
      yield* same("all entries, newest first", seen, entries.toReversed());
      const all = yield* earlier(turn, Number.MAX_SAFE_INTEGER);
      yield* same("before no entry", all, turn.newest);
      yield* same("before any entry", yield* earlier(turn, 1), []);
      // Where `before` is no entry of this chat.
      const between = entries.findIndex(({ id }, n) => n > 0 && id > entries[n - 1]!.id + 1);
      if (between > 0) {
        const few = yield* earlier(turn, entries[between]!.id - 1);
        const older = entries.slice(0, between).toReversed().slice(0, turnEntries);
        yield* same("before an entry of another chat", few, older);
      }
    }),
  ),

  check(
    "one turn at a time is held in a chat, for a lease",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      const [store, second] = yield* bothTurns;
      // Three times, because a store that counts in seconds may be right by accident.
      for (let n = 0; n < 3; n++) {
        yield* pass(337);
        const began = Date.now();
        const turn = yield* taken(chatbot, id);
        for (const { take } of [store, second]) {
          const held = yield* take(chatbot, id, null);
          const millis = held._tag === "Held" ? held.forMillis : 0;
          const isLease = millis + (Date.now() - began) > turnLease - 100 && millis <= turnLease;
          yield* same("for a lease", isLease, true);
        }
        yield* store.release(turn);
        const next = yield* taken(chatbot, id);
        yield* store.release(turn);
        yield* same("a late release", (yield* store.take(chatbot, id, null))._tag, "Held");
        yield* append(next, entry("q"));
        const waited = yield* second.take(chatbot, id, null);
        yield* same("the second instance, which waited", waited._tag, "Turn");
        if (waited._tag === "Turn") yield* second.release(waited.turn);
        const last = yield* store.take(chatbot, id, null);
        yield* same("the first instance again", last._tag, "Turn");
        if (last._tag === "Turn") yield* store.release(last.turn);
      }
    }),
  ),

  check(
    "of several instances, the one that has waited longest goes next",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [store, second] = yield* bothTurns;
      for (const retryKey of [null, key]) {
        const { id } = yield* create(chatbot);
        const turn = yield* taken(chatbot, id);
        yield* same("the second", (yield* second.take(chatbot, id, retryKey))._tag, "Held");
        yield* pass(1);
        yield* same("then the first", (yield* store.take(chatbot, id, null))._tag, "Held");
        yield* same("the second again", (yield* second.take(chatbot, id, null))._tag, "Held");
        yield* same("a renewal meanwhile", yield* store.renew(turn), true);
        yield* append(turn, entry("q"));
        const held = yield* store.take(chatbot, id, null);
        yield* same("the first, too early", held._tag === "Held" && held.by, "chat");
        const millis = held._tag === "Held" ? held.forMillis : 0;
        yield* same("no longer than its time", millis > 0 && millis <= turnPrecedence, true);
        const next = yield* taken(chatbot, id, retryKey, second);
        yield* second.append(next, entry("r"));
        yield* store.release(yield* taken(chatbot, id));
      }
    }),
  ),

  check(
    "an instance that does not come in its time loses its place",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [store, second] = yield* bothTurns;
      const { id } = yield* create(chatbot);
      for (const isReleased of [true, false]) {
        const turn = yield* taken(chatbot, id);
        yield* same("the second", (yield* second.take(chatbot, id, null))._tag, "Held");
        yield* isReleased ? store.release(turn) : pass(turnLease + 1);
        yield* pass(1_100);
        yield* same("in its time", (yield* store.take(chatbot, id, null))._tag, "Held");
        yield* pass(turnPrecedence - 1_099);
        // Twice: the second time nobody is waited for.
        for (let n = 0; n < 2; n++) yield* store.release(yield* taken(chatbot, id));
      }
    }),
  ),

  check(
    "an instance that a retry key holds has no place among those that wait for a chat",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [store, second] = yield* bothTurns;
      const [chat, elsewhere] = yield* createAll(chatbot, [{}, {}]);
      const turn = yield* taken(chatbot, chat!.id);
      yield* taken(chatbot, elsewhere!.id, key);
      const held = yield* second.take(chatbot, chat!.id, key);
      yield* same("held by", held._tag === "Held" && held.by, "key");
      yield* store.release(turn);
      yield* taken(chatbot, chat!.id);
    }),
  ),

  check(
    "hints come at the end of turns only, and hold no ask up, whether they are read or not",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [store, second] = yield* bothTurns;
      const { id } = yield* create(chatbot);
      const hinted: Array<number> = [];
      const read = (
        each: (hint: { chatbot: number; chat: number } | null) => Effect.Effect<void>,
      ) =>
        Effect.forEach([store, second], ({ freed }) =>
          Effect.forkChild(Stream.runForEach(freed, each), { startImmediately: true }),
        );
      const stalled = yield* read(() => Effect.never);
      const awake = yield* read((hint) =>
        Effect.sync(() => {
          if (hint?.chatbot === chatbot) hinted.push(hint.chat);
        }),
      );
      // A reader may need a moment before it hears anything.
      yield* after(50);
      const turn = yield* taken(chatbot, id, key);
      yield* store.renew(turn);
      yield* second.take(chatbot, id, null);
      yield* create(chatbot);
      yield* after(50);
      yield* same("hints while it is held", hinted, []);
      yield* append(turn, entry("q"));
      yield* second.release(yield* taken(chatbot, id, null, second));
      const asks = Effect.gen(function* () {
        for (let n = 0; n < 100; n++) yield* ask(chatbot, id, entry("q"));
        return "in time";
      });
      yield* same("100 asks", yield* Effect.raceFirst(asks, after(20_000)), "in time");
      for (const reader of awake) {
        const exit = reader.pollUnsafe();
        yield* same("a reader failed", exit !== undefined && Exit.isFailure(exit), false);
      }
      const others = hinted.filter((chat) => chat !== id);
      yield* same("hints of other chats", others, []);
      yield* Fiber.interruptAll([...stalled, ...awake]);
    }),
  ),

  check(
    "turns of different chats, of new ones and of other chatbots do not wait for each other",
    Effect.fnUntraced(function* () {
      const [ours, theirs] = [yield* newChatbot, yield* newChatbot];
      const chats = yield* createAll(ours, [{}, {}]);
      const both = yield* bothTurns;
      const mine = yield* Effect.forEach([chats[0]!.id, chats[1]!.id, null, null], (chat, n) =>
        taken(ours, chat, null, both[n % 2]!),
      );
      yield* same("different ids", new Set(mine.map(({ id }) => id)).size, 4);
      yield* taken(theirs, (yield* create(theirs)).id, key);
      yield* taken(ours, null, key);
      const made = yield* Effect.forEach(mine, (turn, n) => append(turn, entry(`q${n}`)));
      yield* same("different chats", new Set(made.map(({ chatId }) => chatId)).size, 4);
      yield* same("the other chatbot", yield* questions(theirs), [[]]);
    }),
  ),

  check(
    "a turn of an unknown or foreign chat is not found",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(yield* newChatbot);
      const { take } = yield* TurnStore;
      for (const chatId of [id, 0, Number.MAX_SAFE_INTEGER]) {
        const notFound = new ChatNotFound({ chatId });
        yield* failsWith("without a key", notFound, take(chatbot, chatId, null));
        yield* failsWith("with a key", notFound, take(chatbot, chatId, key));
      }
      // The failures left no trace of the key.
      yield* taken(chatbot, null, keyOf("key", 1));
    }),
  ),

  check(
    "a turn without a chat creates one with the first entry, and nothing before",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      const turn = yield* taken(chatbot, null);
      yield* same("the newest entries", turn.newest, []);
      yield* same("earlier ones", yield* store.earlier(turn, Number.MAX_SAFE_INTEGER), []);
      yield* store.release(yield* taken(chatbot, null));
      yield* store.release(yield* taken(chatbot, null, key));
      yield* same("no chat yet", (yield* list(chatbot)).total, 0);
      const made = yield* append(turn, entry("q", { usage }));
      const { items, total } = yield* list(chatbot);
      const [chat] = items;
      yield* same("how many chats", total, 1);
      yield* same("its chat", [chat!.id, chat!.name, chat!.userRef], [made.chatId, null, null]);
      const { entries } = (yield* stored(chatbot))[0]!;
      yield* same("its entries", entries, [{ ...made, usage }]);
      yield* same("a later chat's id", (yield* create(chatbot)).id > made.chatId, true);
    }),
  ),

  check(
    "a turn whose lease ran out is lost once another takes it, for ever",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [store, second] = yield* bothTurns;
      const { id } = yield* create(chatbot);
      for (const end of ["append", "release", "lease"] as const) {
        const late = yield* taken(chatbot, id);
        yield* pass(turnLease - 2_000);
        yield* same("within its lease", (yield* store.take(chatbot, id, null))._tag, "Held");
        yield* pass(2_001);
        const next = yield* taken(chatbot, id, null, store);
        const isLost = Effect.gen(function* () {
          yield* same("the renewal", yield* store.renew(late), false);
          yield* failsWith("the append", new TurnLost(), append(late, entry("late")));
          yield* store.release(late);
        });
        yield* isLost;
        yield* same("the next turn", (yield* store.take(chatbot, id, null))._tag, "Held");
        if (end === "append") yield* second.append(next, entry("q"));
        else if (end === "release") yield* second.release(next);
        else yield* pass(turnLease + turnPrecedence + 1);
        yield* isLost;
        if (end === "lease") yield* append(next, entry("r"));
        yield* failsWith("a second append", new TurnLost(), append(next, entry("twice")));
        yield* pass(turnPrecedence + 1);
      }
      yield* same("the stored questions", yield* questions(chatbot), [["q", "r"]]);
    }),
  ),

  check(
    "a chat created by an append comes after those created while its turn lasted",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const first = yield* create(chatbot);
      for (const retryKey of [null, key]) {
        const turn = yield* taken(chatbot, null, retryKey);
        yield* askLater(chatbot, first.id, first.createTime);
        const between = yield* create(chatbot);
        const made = yield* append(turn, entry("q"));
        const [chat] = (yield* list(chatbot, { id: made.chatId })).items;
        yield* same("a higher id", chat!.id > between.id, true);
        yield* same("a time not before", chat!.createTime >= between.createTime, true);
        yield* same("not after its entry", chat!.createTime <= made.createTime, true);
      }
    }),
  ),

  check(
    "a renewed turn holds its chat and its key for another lease",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      const { renew, take } = yield* TurnStore;
      for (const [chat, retryKey] of [
        [id, null],
        [id, key],
        [null, keyOf("another")],
      ] as const) {
        const turn = yield* taken(chatbot, chat, retryKey);
        for (let n = 0; n < 3; n++) {
          yield* pass(turnLease - 2_000);
          yield* same("the renewal", yield* renew(turn), true);
        }
        yield* pass(turnLease - 2_000);
        const isHeld = (chat: number | null, retryKey: typeof turn.retryKey) =>
          Effect.flatMap(take(chatbot, chat, retryKey), ({ _tag }) => same("held", _tag, "Held"));
        yield* isHeld(chat, retryKey);
        if (chat !== null) yield* isHeld(chat, null);
        if (retryKey !== null) yield* isHeld(null, retryKey);
        yield* append(turn, entry("q"));
        yield* same("a renewal after the end", yield* renew(turn), false);
        yield* same("the chat after the end", (yield* take(chatbot, id, null))._tag, "Turn");
        yield* pass(turnLease + 1);
      }
    }),
  ),

  check(
    "64 asks at once in one chat are answered one after the other, each seeing all before it",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const both = yield* bothTurns;
      const { id } = yield* create(chatbot);
      yield* atOnce(64, (n) =>
        Effect.gen(function* () {
          const { append, earlier, take } = both[n % 2]!;
          while (true) {
            const outcome = yield* take(chatbot, id, null);
            if (outcome._tag !== "Turn") {
              yield* Effect.yieldNow;
              continue;
            }
            const before: Array<Entry> = [...outcome.turn.newest];
            while (before.length > 0 && before.length % turnEntries === 0) {
              const older = yield* earlier(outcome.turn, before.at(-1)!.id);
              if (older.length === 0) break;
              before.push(...older);
            }
            // Each answer names the entries that its turn saw.
            const answer = before.map((one) => one.id).join();
            return yield* append(outcome.turn, entry(`q${n}`, { answer }));
          }
        }),
      );
      const [inStore] = yield* stored(chatbot);
      const ids = inStore!.entries.map((made) => made.id);
      yield* same("how many", ids.length, 64);
      yield* same(
        "ids ascend",
        ids,
        ids.toSorted((a, b) => a - b),
      );
      for (const [at, made] of inStore!.entries.entries()) {
        yield* same("the entries before", made.answer, ids.slice(0, at).toReversed().join());
      }
    }),
  ),

  check(
    "of an append in a turn that ran out and a take at once, the later sees the earlier",
    Effect.fnUntraced(function* () {
      const both = yield* bothTurns;
      const chatbot = yield* newChatbot;
      for (let n = 0; n < 4; n++) {
        const { id } = yield* create(chatbot);
        const turn = yield* taken(chatbot, id);
        yield* pass(turnLease + 1);
        const appending = Effect.map(Effect.result(append(turn, entry("late"))), (made) =>
          Result.isSuccess(made) ? 1 : 0,
        );
        const taking = Effect.map(both[n < 2 ? 0 : 1].take(chatbot, id, null), (taken) =>
          taken._tag === "Turn" ? taken.turn.newest.length : null,
        );
        const came = yield* atOnce(2, (at) => (at === n % 2 ? appending : taking));
        const [made, seen] = n % 2 === 0 ? came : came.toReversed();
        // The append may hold the chat for the moment.
        yield* same("the entries that the taker sees", seen ?? made, made);
        yield* same("the stored entries", (yield* history(chatbot, id, newest)).total, made);
      }
    }),
  ),

  check(
    "of takes and appends at once, one succeeds",
    Effect.fnUntraced(function* () {
      const both = yield* bothTurns;
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      const outcomes = yield* atOnce(8, (n) => both[n % 2]!.take(chatbot, id, null));
      const [turn, ...others] = outcomes.flatMap((one) => (one._tag === "Turn" ? [one.turn] : []));
      yield* same("other turns", others, []);
      for (const one of [turn!, yield* taken(chatbot, null, key)]) {
        const tags = yield* atOnce(4, (n) =>
          Effect.match(both[n % 2]!.append(one, entry(`q${n}`)), {
            onFailure: ({ _tag }) => _tag,
            onSuccess: () => "stored",
          }),
        );
        const expected = ["TurnLost", "TurnLost", "TurnLost", "stored"];
        yield* same("the appends", tags.toSorted(), expected);
      }
      const lengths = (yield* stored(chatbot)).map(({ entries }) => entries.length);
      yield* same("the entries of each chat", lengths, [1, 1]);
    }),
  ),

  check(
    "an append to a new chat of a chatbot that is not registered fails",
    Effect.fnUntraced(function* () {
      const turn = yield* taken(noChatbot, null);
      const notFound = new ChatbotNotFound({ chatbot: noChatbot });
      yield* failsWith("the append", notFound, append(turn, entry("q")));
    }),
  ),
];
