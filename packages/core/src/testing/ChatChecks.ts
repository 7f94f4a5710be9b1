/**
 * What random comparison seldom or never notices about chats, turns and idempotency keys: concurrent calls, snapshots,
 * leases, and long or awkward strings.
 */
import { Clock, Effect } from "effect";
import type { Chat } from "../model/Chat.ts";
import { dayMillis } from "../model/Day.ts";
import type { Entry } from "../model/Entry.ts";
import { idempotencyKeyLifetime, type IdempotencyKey } from "../model/IdempotencyKey.ts";
import type { ChatbotId, ChatId } from "../model/Ids.ts";
import { chatFields, defaultChatQuery } from "../model/ListQuery.ts";
import type { StorePorts } from "../ports/Store.ts";
import { ChatStore } from "../ports/ChatStore.ts";
import { turnEntries, turnLease, turnPrecedence, TurnStore } from "../ports/TurnStore.ts";
import { check, same, type Check } from "./Check.ts";
import {
  alikeUpTo,
  append,
  ask,
  atOnce,
  awkwardTexts,
  bare,
  bothTurns,
  chatPage,
  create,
  entry,
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
} from "./Fixtures.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

const key = keyOf("key");

/** Fails unless the turn of the chat is held for some more time. */
const isHeld = (turns: TurnStore["Service"], chatbot: ChatbotId, chat: ChatId) =>
  Effect.flatMap(turns.take(chatbot, chat, null), (outcome) =>
    same("a held turn", outcome._tag === "Held" && outcome.forMillis > 0, true),
  );

export const chatChecks: ReadonlyArray<Check<StorePorts | StoreUnderTest>> = [
  check("a stopped ask stores nothing, its key stays stopped, and its chat is free", function* () {
    const chatbot = yield* newChatbot;
    const [first, second] = yield* bothTurns;
    const { id } = yield* create(chatbot);
    const stop = (text: string, chat: ChatId | null = null, isWaiting = false) =>
      Effect.map(
        second.stop(chatbot, text, isWaiting ? { ...keyOf(text), chatId: chat } : null),
        (result) => (result === null ? "unknown" : result._tag),
      );
    yield* same("an unknown key", yield* stop("unknown"), "unknown");
    for (const chat of [id, null]) {
      const name = `of ${chat === null ? "a new chat" : "a chat"}`;
      const turn = yield* takeTurn(chatbot, chat, keyOf(name), first);
      yield* same("a stop", yield* stop(name), "Stopped");
      yield* same("a second stop", yield* stop(name), "Stopped");
      yield* same("a renewal", yield* tagOf(first.renew(turn)), "AnswerStopped");
      yield* same("an append", yield* tagOf(first.append(turn, entry("q"))), "AnswerStopped");
      yield* first.release(turn);
      const again = yield* first.take(chatbot, chat, keyOf(name));
      yield* same("a repetition", again._tag, "Stopped");
      const next = yield* takeTurn(chatbot, chat, keyOf(`next ${name}`), first);
      yield* first.append(next, entry("q"));
      yield* same("an answered key", yield* stop(`next ${name}`), "AlreadyAnswered");
    }
    yield* same("a waiting ask", yield* stop("waiting", id, true), "Stopped");
    const late = yield* first.take(chatbot, id, keyOf("waiting"));
    yield* same("its take", late._tag, "Stopped");
    const released = yield* takeTurn(chatbot, id, keyOf("released"), first);
    yield* first.release(released);
    yield* same("a released key", yield* stop("released"), "unknown");
    yield* ChatStore.use((chats) => chats.createChat(chatbot, bare, keyOf("creation")));
    yield* same("a creation's key", yield* stop("creation"), "unknown");
    const post = yield* takeTurn(chatbot, id, keyOf("post"), first);
    yield* first.append(post, entry(""));
    yield* same("a post's key", yield* stop("post"), "unknown");
  }),

  check("a key stays its request's, whatever became of the request", function* () {
    const chatbot = yield* newChatbot;
    const [first, second] = yield* bothTurns;
    const { createChat } = yield* ChatStore;
    const creation = (key: IdempotencyKey) => tagOf(createChat(chatbot, bare, key));
    for (const name of ["claimed", "answered", "stopped"]) {
      const turn = yield* takeTurn(chatbot, null, keyOf(name), first);
      if (name === "answered") yield* first.append(turn, entry("q"));
      if (name === "stopped") yield* second.stop(chatbot, name, null);
      const outcome = yield* creation(keyOf(name));
      yield* same(`a creation with the key of an ask, ${name}`, outcome, "IdempotencyKeyReused");
    }
    const outcomes = [yield* creation(keyOf("key")), yield* creation(keyOf("key", 1))];
    yield* same("two creations", outcomes, ["success", "IdempotencyKeyReused"]);
    const turn = yield* takeTurn(chatbot, null, keyOf("late"), first);
    yield* pass(turnLease + 1);
    yield* takeTurn(chatbot, null, keyOf("late"), second);
    yield* second.stop(chatbot, "late", null);
    const append = yield* tagOf(first.append(turn, entry("q")));
    yield* same("an append to a key whose next turn was stopped", append, "TurnLost");
  }),

  check("of a stop and an append at the same time, exactly one wins", function* () {
    const chatbot = yield* newChatbot;
    const [first, second] = yield* bothTurns;
    const { id } = yield* create(chatbot);
    for (let round = 0; round < 10; round++) {
      const [text, chat] = [`key ${round}`, round % 2 === 0 ? id : null];
      const turn = yield* takeTurn(chatbot, chat, keyOf(text), first);
      const [append, stop] = yield* Effect.all(
        [tagOf(first.append(turn, entry("q"))), second.stop(chatbot, text, null)],
        { concurrency: "unbounded" },
      );
      yield* first.release(turn);
      const expected = append === "AnswerStopped" ? "Stopped" : "AlreadyAnswered";
      yield* same(`the stop of an ask that ${append}`, stop?._tag, expected);
    }
  }),

  check("strings are stored, sorted, found and copied by all their code points", function* () {
    const [chatbot, copy] = [yield* newChatbot, yield* newChatbot];
    const references = alikeUpTo(59);
    const fields = [
      {},
      ...awkwardTexts.map((text) => ({ name: text, userRef: text, helloMessage: text })),
      ...alikeUpTo(254).map((name, n) => ({ name, userRef: references[n]! })),
      { name: `${"ﬃ".repeat(254)}!` },
    ];
    const chats = yield* Effect.forEach(fields, (chat) => create(chatbot, chat));
    const hellos = ({ name }: Chat) => (awkwardTexts.includes(name!) ? [name] : []);
    const expected = chats.map((chat) => [chat, hellos(chat)]);
    const inStore = (yield* storedChats(chatbot)).map(({ chat, entries }) => [
      chat,
      entries.map(({ answer }) => answer),
    ]);
    yield* same("the stored chats and hello entries", inStore, expected);
    const records = yield* exportAll(chatbot);
    yield* importAll(copy, records);
    yield* same("the copy", yield* exportAll(copy), records);
    for (const target of [chatbot, copy]) {
      const queries = [
        ...chatFields
          .slice(0, 4)
          .flatMap((field) =>
            [true, false].map((descending) => ({ orderBy: [{ field, descending }] as const })),
          ),
        ...[...awkwardTexts, "ffi".repeat(254)].map((search) => ({ search })),
        ...[...awkwardTexts, ...references].map((userRef) => ({ userRef })),
      ];
      for (const more of queries) {
        const query = { ...defaultChatQuery, limit: 100, ...more };
        const what = `the page for ${JSON.stringify(query)}`;
        yield* same(what, yield* list(target, query), chatPage(chats, query));
      }
    }
  }),

  check("ids ascend and times never descend, whichever instance creates the chats", function* () {
    const chatbot = yield* newChatbot;
    const both = yield* instances;
    const creations = yield* atOnce(64, (n) => {
      const chat = { ...bare, name: `${n}`, helloMessage: n % 3 === 0 ? "Hi" : null };
      return both[n % 2]!.chats.createChat(chatbot, chat, null);
    });
    for (const [n, { chat }] of creations.entries()) {
      const isSafe = Number.isSafeInteger(chat.id) && Number.isInteger(chat.createTime.getTime());
      yield* same("a safe integer, and whole milliseconds", isSafe, true);
      yield* same("the name", chat.name, `${n}`);
    }
    const chats = creations.map(({ chat }) => chat).toSorted((a, b) => a.id - b.id);
    const { items } = yield* list(chatbot, { limit: 100 });
    yield* same("the listed chats", items, chats.toReversed());
    const times = chats.map(({ createTime }) => createTime.getTime());
    yield* same(
      "the times",
      times.toSorted((a, b) => a - b),
      times,
    );
  }),

  check("a turn contains the newest entries, and older ones are read on demand", function* () {
    const chatbot = yield* newChatbot;
    const turns = yield* TurnStore;
    const [chat, another] = [yield* create(chatbot), yield* create(chatbot)];
    const entries: Array<Entry> = [];
    for (let n = 0; n < 2 * turnEntries + 3; n++) {
      entries.unshift(yield* ask(chatbot, chat.id, entry(`q${n}`)));
      yield* ask(chatbot, another.id, entry("in another chat"));
    }
    const turn = yield* takeTurn(chatbot, chat.id);
    yield* same("the newest entries", turn.newest, entries.slice(0, turnEntries));
    for (const at of [0, 1, turnEntries - 1, 2 * turnEntries, entries.length - 1]) {
      const older = yield* turns.earlier(turn, entries[at]!.id);
      yield* same("earlier entries", older, entries.slice(at + 1, at + 1 + turnEntries));
    }
  }),

  // Only for a store whose clock can be set.
  check("leases, reservations and idempotency keys expire to the millisecond", function* () {
    if (!(yield* StoreUnderTest).readsTestClock) return;
    const chatbot = yield* newChatbot;
    const [first, second] = yield* bothTurns;
    const { id } = yield* create(chatbot);
    const outcomeNow = (turns: typeof first, chat: ChatId | null, key: IdempotencyKey | null) =>
      Effect.map(turns.take(chatbot, chat, key), (result) =>
        result._tag === "Held" ? `held by ${result.by}` : result._tag,
      );
    yield* append(yield* takeTurn(chatbot, id, keyOf("answered")), entry("q"));
    yield* takeTurn(chatbot, id, null, first);
    yield* takeTurn(chatbot, null, keyOf("new"), first);
    const both = Effect.all([outcomeNow(second, id, null), outcomeNow(second, null, keyOf("new"))]);
    yield* pass(turnLease - 1);
    yield* same("a millisecond before the leases expire", yield* both, [
      "held by chat",
      "held by key",
    ]);
    yield* pass(1);
    yield* same("once the leases have expired", yield* both, ["TurnTaken", "TurnTaken"]);
    yield* pass(turnLease);
    const turn = yield* takeTurn(chatbot, id, null, first);
    yield* same("an ask that waits", yield* outcomeNow(second, id, null), "held by chat");
    yield* first.release(turn);
    yield* pass(turnPrecedence - 1);
    yield* same(
      "a millisecond before the reservation expires",
      yield* outcomeNow(first, id, null),
      "held by chat",
    );
    yield* pass(1);
    yield* same(
      "once the reservation has expired",
      yield* outcomeNow(first, id, null),
      "TurnTaken",
    );
    const stop = Effect.map(first.stop(chatbot, "answered", null), (result) => result?._tag);
    yield* pass(idempotencyKeyLifetime - 2 * turnLease - turnPrecedence - 1);
    const repetition = outcomeNow(first, id, keyOf("answered"));
    const outcomes = [yield* stop, yield* repetition];
    yield* same("a millisecond before the key expires", outcomes, [
      "AlreadyAnswered",
      "AlreadyAnswered",
    ]);
    yield* pass(1);
    yield* same("a stop once the key has expired", yield* stop, undefined);
    const visitorKey = keyOf("key\nvisitor");
    yield* takeTurn(chatbot, null, visitorKey, first);
    const leaseEnd = (yield* Clock.currentTimeMillis) + turnLease;
    for (const [millis, outcome] of [[0, "held by key"] as const, [1, "TurnTaken"] as const]) {
      yield* erase(chatbot, { _tag: "IdleSince", limit: new Date(leaseEnd + millis) });
      yield* same(
        `an erasure of what is idle since ${millis} ms after the lease`,
        yield* outcomeNow(first, null, visitorKey),
        outcome,
      );
    }
  }),

  check("a lease lasts ten seconds, and a renewal restarts it", function* () {
    const chatbot = yield* newChatbot;
    const { id } = yield* create(chatbot);
    const both = yield* bothTurns;
    // Twice, because a store that counts in whole seconds may be right by chance.
    for (const renewing of both) {
      yield* pass(337);
      const turn = yield* takeTurn(chatbot, id, key);
      yield* pass(turnLease - 2_000);
      const began = Date.now();
      yield* same("a renewal", yield* renewing.renew(turn), true);
      for (const turns of both) {
        for (const by of ["chat", "key"] as const) {
          const outcome = yield* turns.take(chatbot, id, by === "key" ? key : null);
          const millis = outcome._tag === "Held" && outcome.by === by ? outcome.forMillis : 0;
          const isLease = millis + (Date.now() - began) > turnLease - 100 && millis <= turnLease;
          yield* same("held for a lease", isLease, true);
        }
      }
      yield* pass(turnLease + turnPrecedence + 1);
      yield* renewing.release(yield* takeTurn(chatbot, id, key));
      yield* pass(turnPrecedence + 1);
    }
  }),

  check(
    "a chat is reserved for the instance that has waited for it, but not for long",
    function* () {
      const chatbot = yield* newChatbot;
      const [store, second] = yield* bothTurns;
      const chats = yield* ChatStore;
      for (const end of ["release", "lease", "ask", "creation"]) {
        const { id } = yield* create(chatbot);
        const turn = yield* takeTurn(chatbot, id, keyOf(end));
        yield* isHeld(second, chatbot, id);
        yield* end === "release" ? store.release(turn) : pass(turnLease);
        if (end === "ask") yield* takeTurn(chatbot, null, keyOf(end));
        if (end === "creation") yield* chats.createChat(chatbot, bare, keyOf(end));
        yield* pass(1_100);
        yield* isHeld(store, chatbot, id);
        yield* pass(turnPrecedence - 1_099);
        // By now the chat is reserved for neither instance: not for the second, nor for the first, which queued after it.
        yield* store.release(yield* takeTurn(chatbot, id));
        yield* second.release(yield* takeTurn(chatbot, id, null, second));
      }
    },
  ),

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

  check("instances that wait for a chat get it in the order in which they asked", function* () {
    const chatbot = yield* newChatbot;
    const { id } = yield* create(chatbot);
    const { open } = yield* StoreUnderTest;
    const [first, second] = yield* bothTurns;
    yield* Effect.scoped(
      Effect.gen(function* () {
        const { turns: third } = yield* open;
        const turn = yield* takeTurn(chatbot, id, null, first);
        for (const waiting of [second, third]) yield* isHeld(waiting, chatbot, id);
        yield* first.release(turn);
        for (const tooEarly of [third, first]) yield* isHeld(tooEarly, chatbot, id);
        yield* second.release(yield* takeTurn(chatbot, id, null, second));
        yield* isHeld(first, chatbot, id);
        yield* third.release(yield* takeTurn(chatbot, id, null, third));
      }),
    );
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
    const lengths = (yield* storedChats(chatbot)).map(({ entries }) => entries.length);
    yield* same("the entries of each chat", lengths, [1, 1]);
  }),

  check("what an API key spends is summed over concurrent appends and releases", function* () {
    const chatbot = yield* newChatbot;
    const both = yield* bothTurns;
    const sums = { a: 0, b: 0 };
    yield* atOnce(60, (n) =>
      Effect.gen(function* () {
        const turns = both[n % 2]!;
        const apiKeyId = n % 3 === 0 ? "a" : "b";
        const turn = yield* takeTurn(chatbot, null, n % 4 === 0 ? keyOf(`key ${n}`) : null, turns);
        sums[apiKeyId] += n;
        return n % 5 === 0
          ? yield* turns.release(turn, { apiKeyId, tokens: n })
          : yield* turns.append(turn, entry("q", { apiKeyId, spentTokens: n }));
      }),
    );
    for (const apiKeyId of ["a", "b"] as const) {
      const { tokens } = yield* both[1].spending(chatbot, apiKeyId);
      yield* same("the sum", tokens, sums[apiKeyId]);
    }
    yield* pass(dayMillis);
    yield* same("on the next day", (yield* both[0].spending(chatbot, "a")).tokens, 0);
  }),

  check("a key that different requests send at once works for only one of them", function* () {
    const both = yield* instances;
    for (let round = 0; round < 4; round++) {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      const outcomes = yield* atOnce(18, (n) =>
        Effect.gen(function* () {
          const { chats, turns } = both[n % 2]!;
          const request = (n + round) % 3;
          const idempotencyKey = keyOf("key", request);
          if (request === 0) {
            const { replayed } = yield* chats.createChat(chatbot, bare, idempotencyKey);
            return { request, isNew: !replayed };
          }
          const outcome = yield* turns.take(chatbot, request === 1 ? null : id, idempotencyKey);
          // Another ask may hold the chat's turn.
          if (outcome._tag === "Held" && outcome.by === "chat") return null;
          if (outcome._tag !== "TurnTaken") return { request, isNew: false };
          yield* turns.append(outcome.turn, entry("q"));
          return { request, isNew: true };
        }).pipe(Effect.catchTag("IdempotencyKeyReused", () => Effect.succeed(null))),
      );
      const used = outcomes.filter((outcome) => outcome !== null);
      const [first, ...others] = used.filter(({ isNew }) => isNew);
      yield* same("other calls that stored something", others, []);
      yield* same(
        "the requests that used the key",
        new Set(used.map(({ request }) => request)).size,
        1,
      );
      const inStore = yield* storedChats(chatbot);
      const rows = inStore.length + inStore.flatMap(({ entries }) => entries).length;
      yield* same("the stored chats and entries", rows, first?.request === 1 ? 3 : 2);
    }
  }),
];
