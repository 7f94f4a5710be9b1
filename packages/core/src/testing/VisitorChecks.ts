/**
 * The promises of `ChatStore` and `TurnStore` about visitors, for whom other users' chats do not exist.
 */
import { ChatNotFound } from "../model/Errors.ts";
import { defaultEntryQuery } from "../model/ListQuery.ts";
import { ChatStore } from "../ports/ChatStore.ts";
import { TurnStore, type TakeResult } from "../ports/TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  alikeUpTo,
  answerOf,
  append,
  bare,
  bothTurns,
  createAll,
  entry,
  history,
  keyOf,
  list,
  newChatbot,
  questions,
  storedChats,
  takeTurn,
} from "./Fixtures.ts";
import type { StoreUnderTest } from "./StoreUnderTest.ts";

/** Values of `userRef` that stores tend to confuse. */
const references: ReadonlyArray<string> = [
  ["u", "U", "u ", "%", "_", "é", "e\u0301", "'; --", "line\nbreak", ""],
  alikeUpTo(59),
].flat();

/** The promises of `ChatStore` and `TurnStore` about visitors. */
export const visitorChecks: ReadonlyArray<Check<ChatStore | TurnStore | StoreUnderTest>> = [
  check("a visitor lists and reads only the chats with their own userRef", function* () {
    const chatbot = yield* newChatbot;
    const store = yield* ChatStore;
    const chats = yield* createAll(chatbot, [
      {},
      ...references.map((userRef) => ({ userRef, helloMessage: "Hello" })),
    ]);
    for (const visitor of references) {
      const ownChat = chats.find(({ userRef }) => userRef === visitor)!;
      yield* same("the chats", yield* list(chatbot, { userRef: visitor }), {
        items: [ownChat],
        total: 1,
      });
      for (const { id, userRef } of chats) {
        const byId = yield* list(chatbot, { userRef: visitor, id });
        yield* same("the chats with the id", byId.total, userRef === visitor ? 1 : 0);
        const page = yield* history(chatbot, id);
        const byText = {
          ...defaultEntryQuery,
          orderBy: [{ field: "answer", descending: false }],
        } as const;
        for (const query of [
          defaultEntryQuery,
          { ...defaultEntryQuery, id: page.items[0]?.id ?? 1 },
          byText,
        ]) {
          const history = store.listEntries(chatbot, id, query, visitor);
          if (userRef === visitor) yield* same("the visitor's history", yield* history, page);
          else yield* failsWith("the history", new ChatNotFound({ chatId: id }), history);
        }
      }
    }
  }),

  check("a visitor asks only in their own chats, and takes no turn in other chats", function* () {
    const chatbot = yield* newChatbot;
    const [store, second] = yield* bothTurns;
    const [ownChat, unownedChat] = yield* createAll(chatbot, [{ userRef: "u" }, {}]);
    for (const chat of [ownChat!, unownedChat!]) {
      const notFound = new ChatNotFound({ chatId: chat.id });
      const turn = yield* takeTurn(chatbot, chat.id, null);
      for (const isHeld of [true, false]) {
        for (const visitor of references.filter((userRef) => userRef !== chat.userRef)) {
          const key = isHeld ? null : keyOf(`key\n${visitor}`);
          for (const turns of [store, second])
            yield* failsWith("the chat", notFound, turns.take(chatbot, chat.id, key, visitor));
          // The failed take leaves nothing behind: no turn, no place in the queue and no key.
          if (key !== null)
            yield* store.release(yield* takeTurn(chatbot, null, keyOf(key.key, 1), store, visitor));
        }
        if (isHeld) yield* append(turn, entry("q"));
        else yield* store.release(yield* takeTurn(chatbot, chat.id));
      }
    }
    const turn = yield* takeTurn(chatbot, ownChat!.id, null, store, "u");
    yield* same("the result", (yield* second.take(chatbot, ownChat!.id, null, "u"))._tag, "Held");
    yield* append(turn, entry("own"));
    yield* same("the questions", yield* questions(chatbot), [["q", "own"], ["q"]]);
  }),

  check("visitors' asks create chats of their own, even if they send the same key", function* () {
    const chatbot = yield* newChatbot;
    const store = yield* ChatStore;
    const turns = yield* TurnStore;
    const visitors = [null, ...references];
    const keyFor = (key: string, visitor: string | null) =>
      keyOf(visitor === null ? key : `${key}\n${visitor}`);
    const createAs = (visitor: string | null) =>
      store.createChat(chatbot, { ...bare, userRef: visitor }, keyFor("chat", visitor));
    const answers: Array<TakeResult> = [];
    for (const visitor of visitors) {
      const { chat, replayed } = yield* createAs(visitor);
      yield* same("created by this request", [chat.userRef, replayed], [visitor, false]);
      const turn = yield* takeTurn(chatbot, null, keyFor("ask", visitor), undefined, visitor);
      answers.push(answerOf(turn, yield* append(turn, entry("q"))));
      yield* append(yield* takeTurn(chatbot, null, null, undefined, visitor), entry("no key"));
    }
    for (const [at, visitor] of visitors.entries()) {
      const { chat, replayed } = yield* createAs(visitor);
      yield* same("created by the earlier request", [chat.userRef, replayed], [visitor, true]);
      const outcome = yield* turns.take(chatbot, null, keyFor("ask", visitor), visitor);
      yield* same("the answer and its turn", outcome, answers[at]);
    }
    const owners = (yield* storedChats(chatbot)).map(({ chat }) => chat.userRef);
    const expected = visitors.flatMap((visitor) => [visitor, visitor, visitor]);
    yield* same("the visitors of the chats", owners, expected);
  }),
];
