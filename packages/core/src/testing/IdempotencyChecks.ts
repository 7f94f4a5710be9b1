/**
 * Checks that a store keeps the promises of `ChatStore` and `TurnStore` about idempotency keys.
 */
import { Effect } from "effect";
import { ChatStore, type ChatToCreate } from "../ports/ChatStore.ts";
import { ChatbotNotFound, ChatNotFound, IdempotencyKeyReused, TurnLost } from "../model/Errors.ts";
import { idempotencyKeyLifetime, type IdempotencyKey } from "../model/IdempotencyKey.ts";
import { type ChatbotId, ChatId } from "../model/Ids.ts";
import { turnLease, TurnStore } from "../ports/TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  answerOf,
  append,
  ask,
  atOnce,
  awkwardKeys,
  bare,
  bothTurns,
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
  storedChats,
  takeTurn,
  usage,
} from "./Fixtures.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

const createWith = (
  chatbot: ChatbotId,
  idempotencyKey: IdempotencyKey,
  chat: Partial<ChatToCreate> = {},
) => ChatStore.use((store) => store.createChat(chatbot, { ...bare, ...chat }, idempotencyKey));

const take = (chatbot: ChatbotId, chat: ChatId | null, idempotencyKey: IdempotencyKey | null) =>
  TurnStore.use((store) => store.take(chatbot, chat, idempotencyKey));

const key = keyOf("key");
/** The same key, sent with a different request. */
const other = keyOf("key", 1);
const keyReused = new IdempotencyKeyReused();

export const idempotencyChecks: ReadonlyArray<Check<ChatStore | TurnStore | StoreUnderTest>> = [
  check("creations with the same key create one chat, even concurrently", function* () {
    const chatbot = yield* newChatbot;
    const { second } = yield* StoreUnderTest;
    const store = yield* ChatStore;
    const chatFields = { name: "n", userRef: "u", helloMessage: "Hello" };
    const creations = yield* atOnce(20, (n) =>
      (n % 2 === 0 ? store : second.chats).createChat(chatbot, chatFields, key),
    );
    yield* same("the new chats", creations.filter(({ replayed }) => !replayed).length, 1);
    const { chat } = yield* createWith(chatbot, key, chatFields);
    for (const creation of creations) yield* same("the chat", creation.chat, chat);
    yield* failsWith("another request", keyReused, createWith(chatbot, other, chatFields));
    const foreign = yield* createWith(yield* newChatbot, key, chatFields);
    yield* same("another chatbot's key", foreign.replayed, false);
    yield* same("the chats", yield* list(chatbot), { items: [chat], total: 1 });
    yield* same("its entries", (yield* history(chatbot, chat.id)).total, 1);
  }),

  check("keys that differ in any character are different keys", function* () {
    const chatbot = yield* newChatbot;
    const { id } = yield* create(chatbot);
    const creations = yield* Effect.forEach(awkwardKeys, (name) =>
      createWith(chatbot, keyOf(`${name}!`)),
    );
    const asks = yield* Effect.forEach(awkwardKeys, (name, n) =>
      Effect.gen(function* () {
        const turn = yield* takeTurn(chatbot, n % 3 === 0 ? null : id, keyOf(name));
        return { turn, newEntry: yield* append(turn, entry(`q${n}`)) };
      }),
    );
    // After these asks, no entry stored under a key is among the chat's newest entries.
    for (let n = 0; n < 25; n++) yield* ask(chatbot, id, entry("later"));
    for (const [n, name] of awkwardKeys.entries()) {
      const { chat, replayed } = creations[n]!;
      const repetition = yield* createWith(chatbot, keyOf(`${name}!`));
      yield* same("created again", [replayed, repetition], [false, { chat, replayed: true }]);
      const { newEntry, turn } = asks[n]!;
      const again = yield* take(chatbot, turn.chatId, keyOf(name));
      yield* same("asked again", again, answerOf(turn, newEntry));
    }
  }),

  check("an ask's key is held during its turn, and afterwards leads to the entry", function* () {
    const chatbot = yield* newChatbot;
    const [store, second] = yield* bothTurns;
    const { id } = yield* create(chatbot);
    for (const [chat, name] of [
      [id, "key"],
      [null, "another"],
    ] as const) {
      const [ours, theirs] = [keyOf(name), keyOf(name, 1)];
      const turn = yield* takeTurn(chatbot, chat, ours);
      for (const turns of [store, second]) {
        const outcome = yield* turns.take(chatbot, chat, ours);
        yield* same("meanwhile", outcome._tag === "Held" && outcome.by, "key");
        yield* failsWith("another request", keyReused, turns.take(chatbot, chat, theirs));
      }
      const newEntry = yield* append(turn, entry("q", { usage }));
      yield* store.release(turn);
      for (const turns of [store, second]) {
        yield* same("afterwards", yield* turns.take(chatbot, chat, ours), answerOf(turn, newEntry));
        yield* failsWith("another request", keyReused, turns.take(chatbot, chat, theirs));
      }
      yield* takeTurn(yield* newChatbot, null, ours);
    }
  }),

  check("a key whose turn was released or has expired is free for any request", function* () {
    const chatbot = yield* newChatbot;
    const store = yield* TurnStore;
    const { id } = yield* create(chatbot);
    for (const chat of [id, null]) {
      yield* store.release(yield* takeTurn(chatbot, chat, other));
      const late = yield* takeTurn(chatbot, chat, key);
      yield* pass(turnLease + 1);
      const next = yield* takeTurn(chatbot, chat, key);
      yield* failsWith("the late append", new TurnLost(), append(late, entry("late")));
      yield* store.release(late);
      yield* same("still held", (yield* take(chatbot, chat, key))._tag, "Held");
      const newEntry = yield* append(next, entry("q"));
      yield* same("its entry", yield* take(chatbot, chat, key), answerOf(next, newEntry));
      yield* failsWith("a second late append", new TurnLost(), append(late, entry("late")));
      yield* pass(idempotencyKeyLifetime + 1);
      yield* takeTurn(chatbot, chat, key);
      yield* pass(turnLease + 1);
      yield* store.release(yield* takeTurn(chatbot, chat, other));
    }
    yield* same("the stored questions", yield* questions(chatbot), [["q"], ["q"]]);
  }),

  check("a key is remembered for 24 hours after its row was stored, and no longer", function* () {
    const chatbot = yield* newChatbot;
    const store = yield* TurnStore;
    const { id } = yield* create(chatbot);
    for (const chat of [id, null]) {
      const turn = yield* takeTurn(chatbot, chat, key);
      for (let n = 0; n < 10; n++) {
        yield* pass(turnLease - 2_000);
        yield* same("the renewal", yield* store.renew(turn), true);
      }
      const newEntry = yield* append(turn, entry("q"));
      yield* pass(idempotencyKeyLifetime - 60_000);
      yield* same("within a day", yield* take(chatbot, chat, key), answerOf(turn, newEntry));
      yield* pass(60_001);
      yield* store.release(yield* takeTurn(chatbot, chat, other));
    }
    const first = yield* createWith(chatbot, key);
    yield* pass(idempotencyKeyLifetime - 60_000);
    yield* same("a creation within a day", (yield* createWith(chatbot, key)).replayed, true);
    yield* pass(60_001);
    const again = yield* createWith(chatbot, other);
    yield* same("after a day", [again.replayed, again.chat.id === first.chat.id], [false, false]);
  }),

  check(
    "a take checks the key's request, then the key's entry, the chat, and who holds the turn",
    function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      const chatId = ChatId.make(Number.MAX_SAFE_INTEGER);
      const turn = yield* takeTurn(chatbot, id, key);
      yield* failsWith("another request", keyReused, take(chatbot, chatId, other));
      yield* failsWith("an unknown chat", new ChatNotFound({ chatId }), take(chatbot, chatId, key));
      const newEntry = yield* append(turn, entry("q"));
      yield* failsWith("another request, afterwards", keyReused, take(chatbot, chatId, other));
      yield* same(
        "an unknown chat, afterwards",
        yield* take(chatbot, chatId, key),
        answerOf(turn, newEntry),
      );
      const heldTurn = yield* takeTurn(chatbot, id);
      yield* same("a held chat", yield* take(chatbot, id, key), answerOf(turn, newEntry));
      yield* store.release(heldTurn);
    },
  ),

  check("a creation's key counts as reused if an ask sends it, and vice versa", function* () {
    const chatbot = yield* newChatbot;
    const store = yield* TurnStore;
    const creation = createWith(chatbot, other);
    const { id } = yield* create(chatbot);
    for (const chat of [id, null]) {
      const late = yield* takeTurn(chatbot, chat, key);
      yield* failsWith("while the ask runs", keyReused, creation);
      yield* pass(turnLease + 1);
      const newChat = yield* creation;
      yield* same("after its lease has run out", newChat.replayed, false);
      yield* failsWith("the late append", new TurnLost(), append(late, entry("late")));
      yield* store.release(late);
      yield* same("the same creation again", yield* creation, { ...newChat, replayed: true });
      yield* failsWith("an ask", keyReused, take(chatbot, chat, key));
      yield* pass(idempotencyKeyLifetime + 1);
      yield* append(yield* takeTurn(chatbot, chat, key), entry("q"));
      yield* failsWith("after the ask", keyReused, creation);
      yield* pass(idempotencyKeyLifetime + 1);
    }
  }),

  check("an ask that waits for a held chat does not hold its own idempotency key", function* () {
    const chatbot = yield* newChatbot;
    const store = yield* TurnStore;
    const { id } = yield* create(chatbot);
    const turn = yield* takeTurn(chatbot, id);
    yield* same("meanwhile", (yield* take(chatbot, id, key))._tag, "Held");
    yield* store.release(turn);
    yield* append(yield* takeTurn(chatbot, id, other), entry("q"));
    // Nor does such an ask take the key from a turn whose lease has run out.
    for (const request of [0, 1]) {
      const late = keyOf(`late ${request}`);
      const old = yield* takeTurn(chatbot, null, late);
      yield* pass(turnLease + 1);
      const holder = yield* takeTurn(chatbot, id);
      const outcome = yield* take(chatbot, id, keyOf(late.key, request));
      yield* same("the held chat", outcome._tag, "Held");
      yield* same("the old turn", yield* store.renew(old), true);
      const newEntry = yield* append(old, entry("late"));
      yield* store.release(holder);
      yield* same("its answer", yield* take(chatbot, null, late), answerOf(old, newEntry));
    }
  }),

  check("taking only the chat or only the key ends the expired turn that held both", function* () {
    const chatbot = yield* newChatbot;
    const [store, second] = yield* bothTurns;
    const { id } = yield* create(chatbot);
    for (const [chat, idempotencyKey] of [
      [id, null],
      [null, key],
      [id, key],
      [id, keyOf("another")],
      [null, other],
    ] as const) {
      const late = yield* takeTurn(chatbot, id, key);
      yield* pass(turnLease + 1);
      const next = yield* takeTurn(chatbot, chat, idempotencyKey, second);
      yield* same("the late renewal", yield* store.renew(late), false);
      yield* failsWith("the late append", new TurnLost(), append(late, entry("late")));
      // Whichever of the chat and the key was not taken is free.
      if (chat === null) yield* store.release(yield* takeTurn(chatbot, id));
      if (idempotencyKey === null) yield* store.release(yield* takeTurn(chatbot, null, key));
      yield* store.release(late);
      yield* same("the next renewal", yield* second.renew(next), true);
      const newEntry = yield* second.append(next, entry("q"));
      yield* store.release(late);
      if (idempotencyKey !== null) {
        yield* same(
          "afterwards",
          yield* store.take(chatbot, chat, idempotencyKey),
          answerOf(next, newEntry),
        );
        yield* pass(idempotencyKeyLifetime + 1);
      }
    }
    const late = (yield* questions(chatbot)).flat().filter((question) => question === "late");
    yield* same("late entries", late, []);
  }),

  check("an expired turn stays valid until another ask takes its chat or its key", function* () {
    const chatbot = yield* newChatbot;
    const store = yield* TurnStore;
    const [first, second] = yield* createAll(chatbot, [{}, {}]);
    const turns = [
      yield* takeTurn(chatbot, first!.id, key),
      yield* takeTurn(chatbot, null, keyOf("another")),
      yield* takeTurn(chatbot, second!.id),
      yield* takeTurn(chatbot, null),
    ];
    yield* pass(idempotencyKeyLifetime - 60_000);
    // A request with another key may cause the store to delete old keys.
    yield* createWith(chatbot, keyOf("chat"));
    yield* append(yield* takeTurn(chatbot, null, keyOf("ask")), entry("q"));
    for (const turn of turns) {
      yield* same("the renewal", yield* store.renew(turn), true);
      yield* append(turn, entry("late"));
    }
  }),

  check("a key that different requests send at once works for only one of them", function* () {
    const both = yield* bothTurns;
    const { second } = yield* StoreUnderTest;
    const chats = [yield* ChatStore, second.chats];
    for (let round = 0; round < 4; round++) {
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      const outcomes = yield* atOnce(18, (n) =>
        Effect.gen(function* () {
          const request = (n + round) % 3;
          const idempotencyKey = keyOf("key", request);
          if (request === 0) {
            const { replayed } = yield* chats[n % 2]!.createChat(chatbot, bare, idempotencyKey);
            return replayed ? "again by 0" : "made by 0";
          }
          const turns = both[n % 2]!;
          const outcome = yield* turns.take(chatbot, request === 1 ? null : id, idempotencyKey);
          // Another ask may hold the chat's turn.
          if (outcome._tag === "Held" && outcome.by === "chat") return "nothing";
          if (outcome._tag !== "TurnTaken") return `again by ${request}`;
          yield* turns.append(outcome.turn, entry("q"));
          return `made by ${request}`;
        }).pipe(Effect.catchTag("IdempotencyKeyReused", () => Effect.succeed("nothing"))),
      );
      const writes = outcomes.filter((outcome) => outcome.startsWith("made"));
      yield* same("the number of calls that stored something", writes.length, 1);
      const requests = outcomes
        .filter((outcome) => outcome !== "nothing")
        .map((outcome) => outcome.slice(-1));
      yield* same("the number of requests that used the key", new Set(requests).size, 1);
      const inStore = yield* storedChats(chatbot);
      const rows = inStore.length + inStore.flatMap(({ entries }) => entries).length;
      yield* same("the stored chats and entries", rows, writes[0] === "made by 1" ? 3 : 2);
    }
  }),

  check("asks and creations with a key fail in an unregistered chatbot", function* () {
    const notFound = new ChatbotNotFound({ chatbot: noChatbot });
    yield* failsWith("an ask", notFound, take(noChatbot, null, key));
    yield* failsWith("a creation", notFound, createWith(noChatbot, key));
    const chatId = ChatId.make(1);
    yield* failsWith(
      "an ask in a chat",
      new ChatNotFound({ chatId }),
      take(noChatbot, chatId, key),
    );
    const turn = yield* takeTurn(noChatbot, null);
    yield* failsWith("an append without a key", notFound, append(turn, entry("q")));
  }),
];
