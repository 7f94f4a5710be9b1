/**
 * What `TurnStore` promises of the retry keys of asks.
 */
import { Effect } from "effect";
import { ChatStore } from "../ChatStore.ts";
import { ChatNotFound, RetryKeyReused, TurnLost } from "../Errors.ts";
import { retryKeyLifetime } from "../RetryKey.ts";
import { turnLease, TurnStore } from "../TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  anotherFingerprint as another,
  append,
  ask,
  awkwardKeys,
  bare,
  create,
  entry,
  fingerprint,
  newChatbot,
  pass,
  peek,
  taken,
  usage,
} from "./Fixtures.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

const key = { key: "key", fingerprint };
const keyReused = new RetryKeyReused({ key: "key" });

export const askKeyChecks: ReadonlyArray<Check<ChatStore | TurnStore | StoreUnderTest>> = [
  check(
    "a retry key is held while its turn lasts and then gives the entry that it made",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      const { second } = yield* StoreUnderTest;
      for (const [chat, retryKey] of [
        [id, key],
        [null, { key: "another key", fingerprint }],
      ] as const) {
        const turn = yield* taken(chatbot, chat, retryKey);
        for (const other of [store, second.turns]) {
          yield* same("meanwhile", (yield* other.take(chatbot, chat, retryKey))._tag, "Held");
          yield* failsWith(
            "another request with it",
            new RetryKeyReused({ key: retryKey.key }),
            other.take(chatbot, chat, { ...retryKey, fingerprint: another }),
          );
        }
        const made = yield* append(turn, entry("q", { usage }));
        const done = { _tag: "Done" as const, entry: made, turn: turn.id };
        yield* same("afterwards", yield* store.take(chatbot, chat, retryKey), done);
        yield* store.release(turn);
        yield* same("released too late", yield* store.take(chatbot, chat, retryKey), done);
        yield* failsWith(
          "another request with it",
          new RetryKeyReused({ key: retryKey.key }),
          store.take(chatbot, chat, { ...retryKey, fingerprint: another }),
        );
        yield* taken(yield* newChatbot, null, retryKey);
      }
    }),
  ),

  check(
    "a retry key whose turn was released or lost can be used again",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      for (const chat of [id, null]) {
        yield* store.release(yield* taken(chatbot, chat, key));
        const late = yield* taken(chatbot, chat, key);
        yield* pass(turnLease + 1);
        const next = yield* taken(chatbot, chat, key);
        yield* failsWith("the late one's append", new TurnLost(), append(late, entry("late")));
        yield* store.release(late);
        yield* same("still held", (yield* store.take(chatbot, chat, key))._tag, "Held");
        const made = yield* append(next, entry("q"));
        yield* same("the entry", yield* store.take(chatbot, chat, key), {
          _tag: "Done",
          entry: made,
          turn: next.id,
        });
        yield* failsWith("late again", new TurnLost(), append(late, entry("late")));
        yield* pass(retryKeyLifetime + 1);
        // Of a turn that just ran out, another request can take the key.
        yield* taken(chatbot, chat, key);
        yield* pass(turnLease + 1);
        const other = { ...key, fingerprint: another };
        yield* store.release(yield* taken(chatbot, chat, other));
      }
      const questions = (yield* peek(chatbot)).map((chat) =>
        chat.entries.map(({ question }) => question),
      );
      yield* same("the questions in each chat of the storage", questions, [["q"], ["q"]]);
    }),
  ),

  check(
    "each retry key gives its own entry, however little it differs from others",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      const made = yield* Effect.forEach(awkwardKeys, (name, n) =>
        Effect.gen(function* () {
          const retryKey = { key: name, fingerprint: "f" };
          const turn = yield* taken(chatbot, n % 3 === 0 ? null : id, retryKey);
          const answered = yield* append(turn, entry(`q${n}`));
          return { retryKey, turn, answered };
        }),
      );
      // So that none of them is among the newest.
      for (let n = 0; n < 25; n++) yield* ask(chatbot, id, entry("later"));
      for (const { answered, retryKey, turn } of made) {
        const done = yield* store.take(chatbot, turn.chat, retryKey);
        yield* same("again", done, { _tag: "Done", entry: answered, turn: turn.id });
      }
    }),
  ),

  check(
    "a retry key is known for 24 hours after its entry was made, and no longer",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      for (const chat of [id, null]) {
        const turn = yield* taken(chatbot, chat, key);
        for (let n = 0; n < 20; n++) {
          yield* pass(turnLease - 2_000);
          yield* same("ours", yield* store.renew(turn), true);
        }
        const made = yield* append(turn, entry("q"));
        yield* pass(retryKeyLifetime - 60_000);
        const done = { _tag: "Done" as const, entry: made, turn: turn.id };
        yield* same("before", yield* store.take(chatbot, chat, key), done);
        yield* pass(60_001);
        yield* store.release(yield* taken(chatbot, chat, { ...key, fingerprint: another }));
      }
    }),
  ),

  check(
    "what is wrong is told in one order: the key's other request, its entry, the chat, who holds it",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      const unknown = Number.MAX_SAFE_INTEGER;
      const turn = yield* taken(chatbot, id, key);
      const reused = store.take(chatbot, unknown, { ...key, fingerprint: another });
      yield* failsWith("while it runs, another request", keyReused, reused);
      const gone = store.take(chatbot, unknown, key);
      yield* failsWith(
        "while it runs, an unknown chat",
        new ChatNotFound({ chatId: unknown }),
        gone,
      );
      const made = yield* append(turn, entry("q"));
      yield* failsWith("afterwards, another request", keyReused, reused);
      const done = { _tag: "Done" as const, entry: made, turn: turn.id };
      yield* same("afterwards, an unknown chat", yield* gone, done);
      const held = yield* taken(chatbot, id);
      yield* same("although it is held", yield* store.take(chatbot, id, key), done);
      yield* store.release(held);
    }),
  ),

  check(
    "a key of an ask is another request's for a creation, and the other way round",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const [chats, turns] = [yield* ChatStore, yield* TurnStore];
      const creation = chats.createChat(chatbot, bare, { ...key, fingerprint: "creation" });
      const { id } = yield* create(chatbot);
      for (const chat of [id, null]) {
        const late = yield* taken(chatbot, chat, key);
        yield* failsWith("while the ask runs", keyReused, creation);
        yield* pass(turnLease + 1);
        const made = yield* creation;
        yield* same("when it ran out", made.replayed, false);
        yield* failsWith("the late append", new TurnLost(), append(late, entry("late")));
        yield* turns.release(late);
        yield* same("again", yield* creation, { ...made, replayed: true });
        yield* failsWith("an ask", keyReused, turns.take(chatbot, chat, key));
        yield* pass(retryKeyLifetime + 1);
        yield* append(yield* taken(chatbot, chat, key), entry("q"));
        yield* failsWith("after the ask", keyReused, creation);
        yield* pass(retryKeyLifetime + 1);
      }
    }),
  ),

  check(
    "a retry key that waits for a held chat is not taken",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const store = yield* TurnStore;
      const { id } = yield* create(chatbot);
      const turn = yield* taken(chatbot, id);
      yield* same("meanwhile", (yield* store.take(chatbot, id, key))._tag, "Held");
      yield* store.release(turn);
      const next = yield* taken(chatbot, id, { ...key, fingerprint: another });
      yield* append(next, entry("q"));
      // Nor from a turn that ran out.
      for (const fingerprint of [key.fingerprint, another]) {
        const late = { key: `late ${fingerprint}`, fingerprint: key.fingerprint };
        const old = yield* taken(chatbot, null, late);
        yield* pass(turnLease + 1);
        const holder = yield* taken(chatbot, id);
        const outcome = yield* store.take(chatbot, id, { ...late, fingerprint });
        yield* same("although it ran out", outcome._tag, "Held");
        yield* same("whether it is still its owner's", yield* store.renew(old), true);
        const made = yield* append(old, entry("late"));
        yield* store.release(holder);
        const done = { _tag: "Done" as const, entry: made, turn: old.id };
        yield* same("its answer", yield* store.take(chatbot, null, late), done);
      }
    }),
  ),
];
