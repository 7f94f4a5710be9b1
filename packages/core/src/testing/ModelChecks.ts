/**
 * Random sequences of commands against two instances of a store and against plain arrays, which must agree at every
 * step. A disagreement is shrunk to a short sequence.
 */
import { Arbitrary, Effect, Schema, Stream } from "effect";
import type { Chat } from "../Chat.ts";
import { ChatArchive, type ArchiveRecord, type Erasable } from "../ChatArchive.ts";
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

/** Whether another instance over the same data is told. */
const second = Schema.Boolean;

/** What can be done to a store; numbers stand for rows, keys, fields and pages, whichever there are. */
export const ModelCommand = Schema.Union([
  Schema.Struct({ _tag: Schema.Literal("Create"), second, name: Text, userRef: Text, hello: Text }),
  Schema.Struct({ _tag: Schema.Literal("CreateWithKey"), second, name: Text, key: Small }),
  Schema.Struct({
    _tag: Schema.Literal("Ask"),
    second,
    chat: Schema.NullOr(Small),
    question: Text,
  }),
  Schema.Struct({ _tag: Schema.Literal("List"), second, ...page, search: Text, userRef: Text }),
  Schema.Struct({ _tag: Schema.Literal("History"), second, ...page, chat: Small }),
  Schema.Struct({
    _tag: Schema.Literal("Erase"),
    second,
    which: Schema.Literals(["chat", "userRef", "idle"]),
    chat: Small,
  }),
  Schema.Struct({ _tag: Schema.Literal("Move") }),
  Schema.Struct({ _tag: Schema.Literal("Pass") }),
]);
export type ModelCommand = typeof ModelCommand.Type;

/** What one chatbot should hold. */
interface Model {
  chatbot: number;
  /** In order of creation. */
  chats: ReadonlyArray<Chat>;
  entries: Map<number, Array<Entry>>;
  keys: Map<number, Chat>;
  /** The highest id that a chat was given, or was imported with. */
  newestId: number;
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

/** A chat that was just created. */
const add = Effect.fnUntraced(function* (model: Model, chat: Chat, entries: ReadonlyArray<Entry>) {
  yield* same("whether its id is greater than all before", chat.id > model.newestId, true);
  model.newestId = chat.id;
  model.chats = [...model.chats, chat];
  model.entries.set(chat.id, [...entries]);
});

/** When the chat was last used. */
const usedAt = (model: Model, chat: Chat): Date =>
  model.entries.get(chat.id)!.at(-1)?.createTime ?? chat.createTime;

const step = Effect.fnUntraced(function* (model: Model, command: ModelCommand) {
  const store = yield* ChatStore;
  const archive = yield* ChatArchive;
  const { chatbot } = model;
  switch (command._tag) {
    case "Create": {
      const { hello: helloMessage, name, userRef } = command;
      const { chat } = yield* store.createChat(chatbot, { name, userRef, helloMessage }, null);
      yield* same("the chat", [chat.name, chat.userRef], [name, userRef]);
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
      return yield* add(model, chat, items);
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
      model.keys.set(key, chat);
      return yield* add(model, chat, []);
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
        yield* add(model, items[0]!, []);
      }
      const entries = model.entries.get(made.chatId)!;
      const ascends = made.id > (entries.at(-1)?.id ?? 0);
      yield* same("whether its id is greater than those before", ascends, true);
      entries.push(made);
      return;
    }
    case "Erase": {
      const chat = pick(model.chats, command.chat);
      const limit = chat === undefined ? new Date(0) : usedAt(model, chat);
      const userRef = chat?.userRef ?? "nobody";
      const [which, gone]: readonly [Erasable, (chat: Chat) => boolean] = {
        chat: [
          { _tag: "Chat", id: chat?.id ?? absent },
          ({ id }: Chat) => id === chat?.id,
        ] as const,
        userRef: [{ _tag: "UserRef", userRef }, (chat: Chat) => chat.userRef === userRef] as const,
        idle: [{ _tag: "IdleSince", limit }, (chat: Chat) => usedAt(model, chat) < limit] as const,
      }[command.which];
      const erased = model.chats.filter(gone);
      yield* same("how many are erased", yield* archive.erase(chatbot, which), erased.length);
      model.chats = model.chats.filter((chat) => !erased.includes(chat));
      for (const { id } of erased) {
        model.entries.delete(id);
        for (const [key, made] of model.keys) if (made.id === id) model.keys.delete(key);
      }
      return;
    }
    case "Pass":
      return yield* StoreUnderTest.use(({ pass }) => pass(1));
    case "Move": {
      const { newChatbot } = yield* StoreUnderTest;
      const records = yield* Stream.runCollect(archive.export(chatbot));
      yield* same(
        "the export",
        records,
        model.chats.flatMap((chat): Array<ArchiveRecord> => [
          { _tag: "Chat", chat },
          ...model.entries
            .get(chat.id)!
            .map((entry) => ({ _tag: "Entry", entry, usage: null }) as const),
        ]),
      );
      model.chatbot = yield* newChatbot;
      const imported = yield* archive.import(model.chatbot, Stream.fromIterable(records));
      yield* same("how many are imported", imported, model.chats.length);
      model.keys.clear();
      model.newestId = model.chats.at(-1)?.id ?? 0;
      return;
    }
    case "List": {
      const id = command.id === null ? null : (pick(model.chats, command.id)?.id ?? absent);
      const query: ChatQuery = {
        limit: command.limit + 1,
        page: (command.page % 3) + 1,
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
        page: (command.page % 3) + 1,
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

/** What a store needs for {@link followsModel}. */
export type ModelServices = ChatStore | TurnStore | ChatArchive | StoreUnderTest;

/**
 * Runs the commands over a new chatbot, and fails where the store and plain arrays disagree. For those who draw
 * and shrink the commands by a library of their own.
 */
export const followsModel = Effect.fnUntraced(function* (commands: ReadonlyArray<ModelCommand>) {
  const { newChatbot, second } = yield* StoreUnderTest;
  const model: Model = {
    chatbot: yield* newChatbot,
    chats: [],
    entries: new Map(),
    keys: new Map(),
    newestId: 0,
  };
  for (const command of commands) {
    yield* "second" in command && command.second
      ? step(model, command).pipe(
          Effect.provideService(ChatStore, second.chats),
          Effect.provideService(TurnStore, second.turns),
          Effect.provideService(ChatArchive, second.archive),
        )
      : step(model, command);
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
export const modelCheck = ({
  commands = 40,
  runs = 40,
  seed,
}: ModelCheckOptions = {}): Check<ModelServices> =>
  check(
    "the store agrees with plain arrays over random sequences of commands",
    Effect.fnUntraced(function* () {
      const result = yield* Arbitrary.checkEffect(
        Arbitrary.array(Arbitrary.schema(ModelCommand), { maxLength: commands }),
        (sequence) => Effect.as(followsModel(sequence), true),
        // By default no sequence would be longer than ten commands.
        { runs, size: commands, ...(seed !== undefined && { seed }) },
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
