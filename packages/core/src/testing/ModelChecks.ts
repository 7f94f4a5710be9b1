/**
 * Random sequences of commands against a store and against plain arrays, which must agree at every
 * step. A disagreement is shrunk to a short sequence.
 */
import { Arbitrary, Effect, Schema } from "effect";
import type { Chat } from "../Chat.ts";
import { ChatStore } from "../ChatStore.ts";
import type { Entry } from "../Entry.ts";
import { chatFields, entryFields, type ChatQuery, type EntryQuery } from "../ListQuery.ts";
import { TurnStore } from "../TurnStore.ts";
import { check, CheckFailed, same, type Check } from "./Check.ts";
import { ask, bare, entry } from "./Fixtures.ts";
import { chatPage, entryPage } from "./Model.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

const texts = ["", "a", "B", "b", "ab", "Äb", "%", "a_", "\uffee", "😀"] as const;

const Text = Schema.NullOr(Schema.Literals(texts));
const Small = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 9 }));

const Order = Schema.Array(Schema.Struct({ field: Small, descending: Schema.Boolean })).check(
  Schema.isMinLength(1),
  Schema.isMaxLength(3),
);

const page = { order: Order, limit: Small, page: Small, id: Schema.NullOr(Small) };

const Command = Schema.Union([
  Schema.Struct({ _tag: Schema.Literal("Create"), name: Text, userRef: Text, hello: Text }),
  Schema.Struct({ _tag: Schema.Literal("CreateWithKey"), name: Text, key: Small }),
  Schema.Struct({ _tag: Schema.Literal("Ask"), chat: Schema.NullOr(Small), question: Text }),
  Schema.Struct({ _tag: Schema.Literal("List"), ...page, search: Text, userRef: Text }),
  Schema.Struct({ _tag: Schema.Literal("History"), ...page, chat: Small }),
]);
type Command = typeof Command.Type;

interface Model {
  readonly chats: Array<Chat>;
  readonly entries: Map<number, Array<Entry>>;
  readonly keys: Map<number, Chat>;
}

/** One of the rows, or one that is not there. */
const pick = <A>(rows: ReadonlyArray<A>, n: number): A | undefined =>
  n === 9 ? undefined : rows[n % Math.max(1, rows.length)];

/** An order as the ports get it: no field twice. */
const orderOf = <Field extends string>(
  fields: ReadonlyArray<Field>,
  order: (typeof Order)["Type"],
): ChatQuery["orderBy"] & EntryQuery["orderBy"] => {
  const seen = new Set<Field>();
  const by = order.flatMap(({ descending, field }) => {
    const name = fields[field % fields.length]!;
    if (seen.has(name)) return [];
    seen.add(name);
    return [{ field: name, descending }];
  });
  return by as any;
};

const absent = 9_007_199_254_740_991;

const step = Effect.fnUntraced(function* (chatbot: number, model: Model, command: Command) {
  const store = yield* ChatStore;
  switch (command._tag) {
    case "Create": {
      const { hello: helloMessage, name, userRef } = command;
      const { chat } = yield* store.createChat(chatbot, { name, userRef, helloMessage }, null);
      yield* same("the chat", [chat.name, chat.userRef], [name, userRef]);
      model.chats.push(chat);
      const { items } = yield* store.listEntries(chatbot, chat.id, {
        limit: 100,
        page: 1,
        orderBy: [{ field: "id", descending: false }],
        id: null,
      });
      const answers = helloMessage === null ? [] : [helloMessage];
      yield* same(
        "its entries",
        items.map(({ answer }) => answer),
        answers,
      );
      model.entries.set(chat.id, [...items]);
      return;
    }
    case "CreateWithKey": {
      const { key, name } = command;
      const before = model.keys.get(key);
      const wanted = { ...bare, name };
      const retryKey = { key: `key ${key}`, fingerprint: name ?? "" };
      if (before !== undefined && (before.name ?? "") !== (name ?? "")) {
        const refused = yield* Effect.exit(store.createChat(chatbot, wanted, retryKey));
        return yield* same("the reused key", refused._tag, "Failure");
      }
      const { chat, replayed } = yield* store.createChat(chatbot, wanted, retryKey);
      yield* same("whether it is replayed", replayed, before !== undefined);
      if (before !== undefined) return yield* same("the chat", chat, before);
      model.chats.push(chat);
      model.entries.set(chat.id, []);
      model.keys.set(key, chat);
      return;
    }
    case "Ask": {
      const chat = command.chat === null ? null : pick(model.chats, command.chat)?.id;
      const question = command.question ?? "q";
      if (chat === undefined) {
        const exit = yield* Effect.exit(ask(chatbot, absent, entry(question)));
        return yield* same("an ask in no chat", exit._tag, "Failure");
      }
      const made = yield* ask(chatbot, chat, entry(question));
      yield* same("the question", made.question, question);
      if (chat === null) {
        const all = { limit: 1, page: 1, orderBy: [{ field: "id", descending: true }] } as const;
        const query = { ...all, id: made.chatId, search: null, userRef: null };
        const { items } = yield* store.listChats(chatbot, query);
        yield* same("the new chat", [items[0]?.name, items[0]?.userRef], [null, null]);
        model.chats.push(items[0]!);
        model.entries.set(made.chatId, []);
      }
      model.entries.get(made.chatId)!.push(made);
      return;
    }
    case "List": {
      const id = command.id === null ? null : (pick(model.chats, command.id)?.id ?? absent);
      const query: ChatQuery = {
        limit: command.limit + 1,
        page: command.page + 1,
        orderBy: orderOf(chatFields, command.order),
        id,
        search: command.search,
        userRef: command.userRef,
      };
      const actual = yield* store.listChats(chatbot, query);
      return yield* same("the list", actual, chatPage(model.chats, query));
    }
    case "History": {
      const chat = pick(model.chats, command.chat);
      const entries = chat === undefined ? [] : model.entries.get(chat.id)!;
      const query: EntryQuery = {
        limit: command.limit + 1,
        page: command.page + 1,
        orderBy: orderOf(entryFields, command.order),
        id: command.id === null ? null : (pick(entries, command.id)?.id ?? absent),
      };
      const read = store.listEntries(chatbot, chat?.id ?? absent, query);
      if (chat === undefined) {
        return yield* same("no history", (yield* Effect.exit(read))._tag, "Failure");
      }
      return yield* same("the history", yield* read, entryPage(entries, query));
    }
  }
});

export interface ModelCheckOptions {
  /** How many sequences. */
  readonly runs?: number;
  /** How long one may be. */
  readonly commands?: number;
  /** The same seed gives the same sequences; a new one each time by default. */
  readonly seed?: number;
}

/** The store agrees with plain arrays over random sequences of commands. */
export const modelCheck = ({ commands = 40, runs = 40, seed }: ModelCheckOptions = {}): Check<
  ChatStore | TurnStore | StoreUnderTest
> =>
  check(
    "the store agrees with plain arrays over random sequences of commands",
    Effect.fnUntraced(function* () {
      const { newChatbot } = yield* StoreUnderTest;
      const sequences = Arbitrary.array(Arbitrary.schema(Command), { maxLength: commands });
      const result = yield* Arbitrary.checkEffect(
        sequences,
        Effect.fnUntraced(function* (sequence) {
          const chatbot = yield* newChatbot;
          const model: Model = { chats: [], entries: new Map(), keys: new Map() };
          for (const command of sequence) yield* step(chatbot, model, command);
          return true;
        }),
        { runs, ...(seed !== undefined && { seed }) },
      );
      const failure = Arbitrary.formatCheckFailure(result);
      if (failure !== undefined) {
        return yield* new CheckFailed({
          what: failure,
          expected: "agreement",
          actual: result._tag,
        });
      }
    }),
  );
