/**
 * The promises of `TurnStore`, except those about idempotency keys and visitors.
 */
import { Effect } from "effect";
import { ChatStore } from "../ports/ChatStore.ts";
import type { Entry } from "../model/Entry.ts";
import { ChatNotFound, TurnLost } from "../model/Errors.ts";
import type { IdempotencyKey } from "../model/IdempotencyKey.ts";
import { type ChatbotId, ChatId } from "../model/Ids.ts";
import { TurnStore, turnEntries, turnLease, turnPrecedence } from "../ports/TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
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
  history,
  keyOf,
  list,
  newChatbot,
  pass,
  questions,
  storedChats,
  tagOf,
  takeTurn,
  type StoredChat,
  usage,
} from "./Fixtures.ts";
import type { StoreUnderTest } from "./StoreUnderTest.ts";

const key = keyOf("key");

/** Tries to take a turn. Returns the `forMillis` of a `Held` result with the given `by`, or else 0. */
const heldFor = (
  by: "chat" | "key",
  turns: TurnStore["Service"],
  chatbot: ChatbotId,
  chat: ChatId | null,
  idempotencyKey: IdempotencyKey | null = null,
) =>
  Effect.map(turns.take(chatbot, chat, idempotencyKey), (outcome) =>
    outcome._tag === "Held" && outcome.by === by ? outcome.forMillis : 0,
  );

const isHeld = (...request: Parameters<typeof heldFor>) =>
  Effect.flatMap(heldFor(...request), (millis) =>
    same(`the take returns Held by ${request[0]}`, millis > 0, true),
  );

/** The promises of `TurnStore` about turns, entries and the queue of a chat. */
export const turnStoreChecks: ReadonlyArray<Check<ChatStore | TurnStore | StoreUnderTest>> = [
  check("an entry is listed and stored as it was returned", function* () {
    const chatbot = yield* newChatbot;
    const entriesToAppend = [
      entry("plain"),
      entry("with usage", { usage }),
      entry("flagged", { flagged: true, moderation: "self-harm/instructions, and others" }),
      entry("'; --", { answer: "\\ \n 😀 ".repeat(1000) }),
      entry("😀".repeat(10_000), { answer: "😀".repeat(100_000) }),
    ];
    const { chat, entries } = yield* conversation(chatbot, entriesToAppend);
    const rows = entries.map((storedEntry, n) => ({
      ...storedEntry,
      usage: entriesToAppend[n]!.usage,
    }));
    const texts = rows.map(({ chatId: _, createTime: __, id: ___, ...rest }) => rest);
    yield* same("the appended entries", texts, entriesToAppend);
    const page = yield* history(chatbot, chat.id);
    yield* same("the history", page, { items: entries.toReversed(), total: entries.length });
    yield* same("the stored entries", (yield* storedChats(chatbot))[0]!.entries, rows);
  }),

  check("a turn contains the newest entries, and older ones are read on demand", function* () {
    const chatbot = yield* newChatbot;
    const turns = yield* TurnStore;
    const [chat, another] = yield* createAll(chatbot, [{}, {}]);
    const entries: Array<Entry> = [];
    let between = 0;
    // In between, another chat gets some entries, and once very many.
    for (let n = 0; n < 2 * turnEntries + 3; n++) {
      entries.push(yield* ask(chatbot, chat!.id, entry(`q${n}`, { flagged: n % 3 === 0 })));
      for (let m = 0; m < (n === 5 ? 2 * turnEntries : n % 2); m++) {
        const { id } = yield* ask(chatbot, another!.id, entry("in another chat"));
        if (n === 5) between = id;
      }
    }
    const turn = yield* takeTurn(chatbot, chat!.id);
    const entriesRead: Array<Entry> = [...turn.newest];
    yield* same("the number of newest entries", entriesRead.length, turnEntries);
    for (let older = entriesRead.slice(-1); older.length > 0; entriesRead.push(...older)) {
      older = [...(yield* turns.earlier(turn, entriesRead.at(-1)!.id))];
      yield* same("at most one page", older.length <= turnEntries, true);
    }
    yield* same("all entries, newest first", entriesRead, entries.toReversed());
    const all = yield* turns.earlier(turn, Number.MAX_SAFE_INTEGER);
    yield* same("before the highest possible id", all, turn.newest);
    yield* same("before the first entry", yield* turns.earlier(turn, 1), []);
    const few = yield* turns.earlier(turn, between);
    yield* same("before another chat's entry", few, entries.slice(0, 6).toReversed());
  }),

  check("a chat has one turn at a time, which lasts for one lease", function* () {
    const chatbot = yield* newChatbot;
    const { id } = yield* create(chatbot);
    const [store, second] = yield* bothTurns;
    // Three times, because a store that counts in whole seconds may be right by chance.
    for (let n = 0; n < 3; n++) {
      yield* pass(337);
      const began = Date.now();
      const turn = yield* takeTurn(chatbot, id, key);
      for (const turns of [store, second]) {
        for (const millis of [
          yield* heldFor("chat", turns, chatbot, id),
          yield* heldFor("key", turns, chatbot, null, key),
        ]) {
          const isLease = millis + (Date.now() - began) > turnLease - 100 && millis <= turnLease;
          yield* same("held for a lease", isLease, true);
        }
      }
      yield* store.release(turn);
      const next = yield* takeTurn(chatbot, id);
      yield* store.release(turn);
      yield* isHeld("chat", store, chatbot, id);
      yield* append(next, entry("q"));
      // The second instance has waited longer than the first, which has just had its turn.
      yield* second.release(yield* takeTurn(chatbot, id, null, second));
      yield* store.release(yield* takeTurn(chatbot, id));
    }
  }),

  check("of several instances, the one that has waited longest goes next", function* () {
    const chatbot = yield* newChatbot;
    const [store, second] = yield* bothTurns;
    for (const idempotencyKey of [null, key]) {
      const { id } = yield* create(chatbot);
      const turn = yield* takeTurn(chatbot, id);
      yield* isHeld("chat", second, chatbot, id, idempotencyKey);
      yield* isHeld("chat", store, chatbot, id);
      yield* isHeld("chat", second, chatbot, id);
      yield* same("a renewal meanwhile", yield* store.renew(turn), true);
      yield* append(turn, entry("q"));
      const early = yield* heldFor("chat", store, chatbot, id);
      yield* same("the first waits for the second", early > 0 && early <= turnPrecedence, true);
      yield* second.append(yield* takeTurn(chatbot, id, idempotencyKey, second), entry("r"));
      yield* store.release(yield* takeTurn(chatbot, id));
    }
  }),

  check("an instance that does not return in time loses its place in the queue", function* () {
    const chatbot = yield* newChatbot;
    const [store, second] = yield* bothTurns;
    const { id } = yield* create(chatbot);
    for (const isReleased of [true, false]) {
      const turn = yield* takeTurn(chatbot, id);
      yield* isHeld("chat", second, chatbot, id);
      yield* isReleased ? store.release(turn) : pass(turnLease + 1);
      yield* pass(1_100);
      yield* isHeld("chat", store, chatbot, id);
      yield* pass(turnPrecedence - 1_099);
      // By now the chat is reserved for neither instance: not for the second, nor for the first, which queued after it.
      const next = isReleased ? store : second;
      yield* store.release(yield* takeTurn(chatbot, id));
      yield* next.release(yield* takeTurn(chatbot, id, null, next));
    }
  }),

  check("an instance that repeats an answered request keeps its place in the queue", function* () {
    const chatbot = yield* newChatbot;
    const [store, second] = yield* bothTurns;
    const { id } = yield* create(chatbot);
    yield* append(yield* takeTurn(chatbot, id, key), entry("q"));
    const turn = yield* takeTurn(chatbot, id);
    yield* isHeld("chat", second, chatbot, id);
    yield* isHeld("chat", store, chatbot, id);
    const { _tag } = yield* second.take(chatbot, id, key);
    yield* same("the repeated request", _tag, "AlreadyAnswered");
    yield* store.release(turn);
    yield* second.release(yield* takeTurn(chatbot, id, null, second));
  }),

  check(
    "a chat stays reserved when another request takes the key of its expired turn",
    function* () {
      const chatbot = yield* newChatbot;
      const [store, second] = yield* bothTurns;
      const chats = yield* ChatStore;
      for (const isAsk of [true, false]) {
        const idempotencyKey = keyOf(`key of an ask: ${isAsk}`);
        const { id } = yield* create(chatbot);
        yield* takeTurn(chatbot, id, idempotencyKey);
        yield* isHeld("chat", second, chatbot, id);
        yield* pass(turnLease + 1);
        if (isAsk) yield* takeTurn(chatbot, null, idempotencyKey);
        else yield* chats.createChat(chatbot, bare, idempotencyKey);
        yield* isHeld("chat", store, chatbot, id);
        yield* second.release(yield* takeTurn(chatbot, id, null, second));
      }
    },
  ),

  check("an instance that waits for a key has no place in the chat's queue", function* () {
    const chatbot = yield* newChatbot;
    const [store, second] = yield* bothTurns;
    const [chat, elsewhere] = yield* createAll(chatbot, [{}, {}]);
    const turn = yield* takeTurn(chatbot, chat!.id);
    yield* takeTurn(chatbot, elsewhere!.id, key);
    yield* isHeld("key", second, chatbot, chat!.id, key);
    yield* store.release(turn);
    yield* takeTurn(chatbot, chat!.id);
  }),

  check(
    "an API key's daily spending is the total from its appends and releases in all instances",
    function* () {
      const [chatbot, another] = [yield* newChatbot, yield* newChatbot];
      const both = yield* bothTurns;
      const tokensOf = (apiKeyId: string, of = chatbot) =>
        Effect.forEach(both, (turns) =>
          Effect.map(turns.spending(of, apiKeyId), ({ tokens }) => tokens),
        );
      yield* same("at first", yield* tokensOf("a"), [0, 0]);
      const { id } = yield* create(chatbot);
      yield* atOnce(60, (n) =>
        Effect.gen(function* () {
          const turns = both[n % 2]!;
          const apiKeyId = n % 3 === 0 ? "a" : "b";
          const idempotencyKey = n % 4 === 0 ? keyOf(`key ${n}`) : null;
          const turn = yield* takeTurn(chatbot, null, idempotencyKey, turns);
          if (n % 5 === 0) return yield* turns.release(turn, { apiKeyId, tokens: 1000 });
          const more = n % 7 === 0 ? { apiKeyId } : { apiKeyId, spentTokens: n };
          return yield* turns.append(turn, entry("q", more));
        }),
      );
      const sums = { a: 0, b: 0 };
      for (let n = 0; n < 60; n++)
        sums[n % 3 === 0 ? "a" : "b"] += n % 5 === 0 ? 1000 : n % 7 === 0 ? 0 : n;
      yield* same("the first key", yield* tokensOf("a"), [sums.a, sums.a]);
      yield* same("the second key", yield* tokensOf("b"), [sums.b, sums.b]);
      yield* same("another chatbot", yield* tokensOf("a", another), [0, 0]);
      // Tokens also count in an existing chat, and when a lost turn is released.
      yield* append(yield* takeTurn(chatbot, id), entry("q", { apiKeyId: "a", spentTokens: 5 }));
      const formerTurn = yield* takeTurn(chatbot, id);
      yield* pass(turnLease + 1);
      const next = yield* takeTurn(chatbot, id, null, both[1]);
      const late = entry("late", { apiKeyId: "a", spentTokens: 5 });
      yield* failsWith("a late append", new TurnLost(), append(formerTurn, late));
      yield* both[0].release(formerTurn, { apiKeyId: "a", tokens: 7 });
      yield* both[1].release(next);
      const total = sums.a + 12;
      yield* same("afterwards", yield* tokensOf("a"), [total, total]);
      const { endsInMillis } = yield* both[0].spending(chatbot, "a");
      yield* same("within a day", endsInMillis > 0 && endsInMillis <= 86_400_000, true);
      yield* pass(86_400_000);
      yield* same("on the next day", yield* tokensOf("a"), [0, 0]);
    },
  ),

  check("turns of different chats and chatbots do not wait for each other", function* () {
    const [ours, theirs] = [yield* newChatbot, yield* newChatbot];
    const chats = yield* createAll(ours, [{}, {}]);
    const both = yield* bothTurns;
    const turns = yield* Effect.forEach([chats[0]!.id, chats[1]!.id, null, null], (chat, n) =>
      takeTurn(ours, chat, null, both[n % 2]!),
    );
    yield* same("different ids", new Set(turns.map(({ id }) => id)).size, 4);
    yield* takeTurn(theirs, (yield* create(theirs)).id, key);
    yield* takeTurn(ours, null, key);
    const newEntries = yield* Effect.forEach(turns, (turn, n) => append(turn, entry(`q${n}`)));
    yield* same("different chats", new Set(newEntries.map(({ chatId }) => chatId)).size, 4);
    yield* same("the other chatbot", yield* questions(theirs), [[]]);
  }),

  check("a take in an unknown chat, or another chatbot's, fails with ChatNotFound", function* () {
    const chatbot = yield* newChatbot;
    const turns = yield* TurnStore;
    const { id } = yield* create(yield* newChatbot);
    for (const chatId of [id, ChatId.make(0), ChatId.make(Number.MAX_SAFE_INTEGER)]) {
      const notFound = new ChatNotFound({ chatId });
      yield* failsWith("without a key", notFound, turns.take(chatbot, chatId, null));
      yield* failsWith("with a key", notFound, turns.take(chatbot, chatId, key));
    }
    // The failed takes left no trace of the key.
    yield* takeTurn(chatbot, null, keyOf("key", 1));
  }),

  check("a turn without a chat stores nothing until its append creates the chat", function* () {
    const chatbot = yield* newChatbot;
    const turns = yield* TurnStore;
    const turn = yield* takeTurn(chatbot, null);
    yield* same("the newest entries", turn.newest, []);
    yield* same("earlier entries", yield* turns.earlier(turn, Number.MAX_SAFE_INTEGER), []);
    for (const idempotencyKey of [null, key])
      yield* turns.release(yield* takeTurn(chatbot, null, idempotencyKey));
    yield* same("no chat yet", (yield* list(chatbot)).total, 0);
    const newEntry = yield* append(turn, entry("q", { usage }));
    const [{ chat, entries }, ...others] = (yield* storedChats(chatbot)) as [StoredChat];
    yield* same("its chat", [chat.id, chat.name, chat.userRef], [newEntry.chatId, null, null]);
    yield* same("its entries", entries, [{ ...newEntry, usage }]);
    yield* same("other chats", others, []);
  }),

  check("a chat created by an append comes after all chats created during the turn", function* () {
    const chatbot = yield* newChatbot;
    const first = yield* create(chatbot);
    for (const idempotencyKey of [null, key]) {
      const turn = yield* takeTurn(chatbot, null, idempotencyKey);
      yield* askLater(chatbot, first.id, first.createTime);
      const between = yield* create(chatbot);
      const newEntry = yield* append(turn, entry("q"));
      const [chat] = (yield* list(chatbot, { id: newEntry.chatId })).items;
      yield* same("the id is higher", chat!.id > between.id, true);
      yield* same("the time is not earlier", chat!.createTime >= between.createTime, true);
      yield* same("not after its entry", chat!.createTime <= newEntry.createTime, true);
    }
  }),

  check("an expired turn is lost for good once another ask takes the chat", function* () {
    const chatbot = yield* newChatbot;
    const [store, second] = yield* bothTurns;
    const { id } = yield* create(chatbot);
    for (const end of ["append", "release", "lease"] as const) {
      const late = yield* takeTurn(chatbot, id);
      yield* pass(turnLease - 2_000);
      yield* isHeld("chat", store, chatbot, id);
      yield* pass(2_001);
      const next = yield* takeTurn(chatbot, id);
      const isLost = Effect.gen(function* () {
        yield* same("the renewal", yield* store.renew(late), false);
        yield* failsWith("the append", new TurnLost(), append(late, entry("late")));
        yield* store.release(late);
      });
      yield* isLost;
      yield* isHeld("chat", store, chatbot, id);
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

  check("a renewed turn holds its chat and its key for another lease", function* () {
    const chatbot = yield* newChatbot;
    const { id } = yield* create(chatbot);
    const turns = yield* TurnStore;
    for (const [chat, idempotencyKey] of [
      [id, null],
      [id, key],
      [null, keyOf("another")],
    ] as const) {
      const turn = yield* takeTurn(chatbot, chat, idempotencyKey);
      for (let n = 0; n < 3; n++) {
        yield* pass(turnLease - 2_000);
        yield* same("the renewal", yield* turns.renew(turn), true);
      }
      yield* pass(turnLease - 2_000);
      yield* isHeld(idempotencyKey === null ? "chat" : "key", turns, chatbot, chat, idempotencyKey);
      if (chat !== null) yield* isHeld("chat", turns, chatbot, chat);
      if (idempotencyKey !== null) yield* isHeld("key", turns, chatbot, null, idempotencyKey);
      yield* append(turn, entry("q"));
      yield* same("a renewal after the end", yield* turns.renew(turn), false);
      yield* turns.release(yield* takeTurn(chatbot, id));
    }
  }),

  check("concurrent asks in a chat take turns, and each sees the entries before it", function* () {
    const chatbot = yield* newChatbot;
    const both = yield* bothTurns;
    const { id } = yield* create(chatbot);
    yield* atOnce(64, (n) =>
      Effect.gen(function* () {
        const turns = both[n % 2]!;
        while (true) {
          const outcome = yield* turns.take(chatbot, id, null);
          yield* Effect.yieldNow;
          if (outcome._tag !== "TurnTaken") continue;
          const before: Array<Entry> = [...outcome.turn.newest];
          while (before.length > 0 && before.length % turnEntries === 0) {
            const older = yield* turns.earlier(outcome.turn, before.at(-1)!.id);
            if (older.length === 0) break;
            before.push(...older);
          }
          // Each answer lists the ids of the entries that its turn saw.
          const answer = before.map(({ id }) => id).join();
          return yield* turns.append(outcome.turn, entry(`q${n}`, { answer }));
        }
      }),
    );
    const { entries } = (yield* storedChats(chatbot))[0]!;
    const ids = entries.map((storedEntry) => storedEntry.id);
    yield* same("the number of entries", new Set(ids).size, 64);
    for (const [at, storedEntry] of entries.entries()) {
      yield* same("the entries before", storedEntry.answer, ids.slice(0, at).toReversed().join());
      yield* same("its id is higher", storedEntry.id > (ids[at - 1] ?? 0), true);
    }
  }),

  check("a take during a late append sees the entry, or makes the append fail", function* () {
    const both = yield* bothTurns;
    const chatbot = yield* newChatbot;
    for (let n = 0; n < 4; n++) {
      const { id } = yield* create(chatbot);
      const turn = yield* takeTurn(chatbot, id);
      yield* pass(turnLease + 1);
      const appendLate = Effect.map(tagOf(append(turn, entry("late"))), (tag) =>
        tag === "success" ? 1 : 0,
      );
      const takeAgain = Effect.map(both[n < 2 ? 0 : 1].take(chatbot, id, null), (outcome) =>
        outcome._tag === "TurnTaken" ? outcome.turn.newest.length : null,
      );
      const results = yield* atOnce(2, (at) => (at === n % 2 ? appendLate : takeAgain));
      const [newEntries, seenEntries] = n % 2 === 0 ? results : results.toReversed();
      // If the append has locked the chat, the take returns `Held`, and there is nothing to compare.
      yield* same("the entries that the taker sees", seenEntries ?? newEntries, newEntries);
      yield* same("the stored entries", (yield* history(chatbot, id)).total, newEntries);
    }
  }),

  check("only one of several concurrent takes, or appends in a turn, succeeds", function* () {
    const both = yield* bothTurns;
    const chatbot = yield* newChatbot;
    const { id } = yield* create(chatbot);
    const outcomes = yield* atOnce(8, (n) => both[n % 2]!.take(chatbot, id, null));
    const [turn, ...others] = outcomes.flatMap((outcome) =>
      outcome._tag === "TurnTaken" ? [outcome.turn] : [],
    );
    yield* same("other turns", others, []);
    for (const newTurn of [turn!, yield* takeTurn(chatbot, null, key)]) {
      const tags = yield* atOnce(4, (n) => tagOf(both[n % 2]!.append(newTurn, entry(`q${n}`))));
      const expected = ["TurnLost", "TurnLost", "TurnLost", "success"];
      yield* same("the appends", tags.toSorted(), expected);
    }
    const lengths = (yield* questions(chatbot)).map(({ length }) => length);
    yield* same("the entries of each chat", lengths, [1, 1]);
  }),
];
