/**
 * Ports that compare all that they give with what was written through them, whatever a check is about: every list,
 * history, export, sum and turn of a chatbot that nobody writes to meanwhile, and at the end what lies in the
 * storage.
 */
import { Context, Effect, Option, Stream } from "effect";
import type { Chat } from "../Chat.ts";
import { ChatArchive, type ArchiveRecord, type UsageSum } from "../ChatArchive.ts";
import { ChatStore } from "../ChatStore.ts";
import { helloEntry, type Entry } from "../Entry.ts";
import { newest, newestChats, type ChatQuery } from "../ListQuery.ts";
import { turnEntries, turnLease, TurnStore } from "../TurnStore.ts";
import { CheckFailed, same, type Check } from "./Check.ts";
import { judging, Ledger, makeLedger, reading, writing, type Book } from "./Ledger.ts";
import { chatPage, entryPage } from "./Model.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";
import {
  addChat,
  addEntry,
  addRecords,
  chatOf,
  entriesOf,
  isKnown,
  meantBy,
  recordsOf,
  remove,
  sumsOf,
  type Written,
} from "./Written.ts";

const byModel = (sums: ReadonlyArray<UsageSum>) =>
  sums.toSorted((a, b) => {
    const [left, right] = [a, b].map(({ model, provider }) => JSON.stringify([provider, model]));
    return left! < right! ? -1 : 1;
  });

/** A chat that did not exist when `newest` was the newest that there ever had been. */
const isNextChat = (chat: Chat, newest: Written["newest"]) =>
  Effect.gen(function* () {
    yield* same("whether a chat's id is greater than all before", chat.id > newest.id, true);
    const isLater = chat.createTime >= newest.createTime;
    yield* same("whether a chat's time is not before the last", isLater, true);
  });

/** The next of a chat's entries; `before` is what was known of them when it was asked for. */
const isNextEntry = (
  { entryIds }: Written,
  { createTime, id }: Entry,
  chat: Chat,
  before: Entry | undefined,
) =>
  Effect.gen(function* () {
    yield* same("whether an entry's id was used before", entryIds.has(id), false);
    yield* same("whether an entry's id ascends", id > (before?.id ?? 0), true);
    const isLater = createTime >= (before?.createTime ?? chat.createTime);
    yield* same("whether an entry's time is not before the last", isLater, true);
  });

const watchedChats = (
  ledger: Ledger["Service"],
  chats: ChatStore["Service"],
): ChatStore["Service"] => ({
  createChat: (chatbot, wanted, retryKey) =>
    Effect.suspend(() => {
      const book = ledger.of(chatbot);
      const { written } = book;
      const before = written.newest;
      return writing(book, chats.createChat(chatbot, wanted, retryKey), (made, isAlone) =>
        Effect.gen(function* () {
          const { chat, replayed } = made;
          if (replayed) {
            yield* same("whether a key gives what was made before", retryKey !== null, true);
            return isAlone ? yield* same("its chat", chat, chatOf(written, chat.id)) : undefined;
          }
          const { helloMessage, name, userRef } = wanted;
          yield* same("a new chat", [chat.name, chat.userRef], [name, userRef]);
          yield* isNextChat(chat, before);
          addChat(written, chat);
          if (helloMessage === null) return;
          const entries = yield* chats.listEntries(chatbot, chat.id, newest).pipe(
            Effect.map(({ items }) => items),
            Effect.catchTag("ChatNotFound", () => Effect.succeed([])),
          );
          const [hello] = entries;
          // Somebody erased or used it at once.
          if (entries.length !== 1 && !isAlone) return void (book.isSure = false);
          yield* same("how many entries it has", entries.length, 1);
          const { createTime, id } = hello!;
          const { usage, ...texts } = helloEntry(helloMessage);
          yield* same("its entry", hello, { ...texts, id, chatId: chat.id, createTime });
          yield* isNextEntry(written, hello!, chat, undefined);
          addEntry(written, { entry: hello!, usage });
        }),
      );
    }),

  listChats: (chatbot, query) =>
    Effect.suspend(() => {
      const book = ledger.of(chatbot);
      return reading(book, chats.listChats(chatbot, query), (page) =>
        same(`the chats of ${JSON.stringify(query)}`, page, chatPage(book.written.chats, query)),
      );
    }),

  listEntries: (chatbot, chat, query) =>
    Effect.suspend(() => {
      const book = ledger.of(chatbot);
      const { written } = book;
      return reading(book, chats.listEntries(chatbot, chat, query), (page) =>
        same(
          `the entries of ${JSON.stringify(query)}`,
          page,
          isKnown(written, chat) ? entryPage(entriesOf(written, chat), query) : "ChatNotFound",
        ),
      );
    }),
});

const watchedTurns = (
  ledger: Ledger["Service"],
  turns: TurnStore["Service"],
  chats: ChatStore["Service"],
): TurnStore["Service"] => ({
  // One by one: those of a class are not its objects' own.
  renew: (turn) => turns.renew(turn),
  release: (turn) => turns.release(turn),
  leave: (chatbot, chat) => turns.leave(chatbot, chat),
  freed: turns.freed,

  take: (chatbot, chat, retryKey) =>
    Effect.suspend(() => {
      const book = ledger.of(chatbot);
      const { written } = book;
      return turns.take(chatbot, chat, retryKey).pipe(
        Effect.tap((taken) =>
          Effect.suspend(() => {
            if (taken._tag === "Held") {
              const within = taken.forMillis > 0 && taken.forMillis <= turnLease;
              return same("whether it is held for a lease at most", within, true);
            }
            if (taken._tag === "Done") return Effect.void;
            const { id, newest: _, ...turn } = taken.turn;
            const isNew = !ledger.turns.has(id);
            ledger.turns.add(id);
            return Effect.andThen(
              same("whether a turn has a name of its own", isNew, true),
              same("what the turn is of", turn, { chatbot, chat, retryKey }),
            );
          }).pipe(Effect.orDie),
        ),
        (take) =>
          reading(book, take, (taken) => {
            if (taken === "ChatNotFound") {
              return same("whether there is the chat", isKnown(written, chat ?? 0), false);
            }
            if (taken._tag === "Held") return Effect.void;
            if (taken._tag === "Done") {
              const { chatId, id } = taken.entry;
              const entry = entriesOf(written, chatId).find((one) => one.id === id);
              return same("the entry that a key made", taken.entry, entry);
            }
            const entries = chat === null ? [] : entriesOf(written, chat);
            const newest = entries.slice(-turnEntries).toReversed();
            return same("the newest entries", taken.turn.newest, newest);
          }),
      );
    }),

  earlier: (turn, before) =>
    Effect.suspend(() => {
      const book = ledger.of(turn.chatbot);
      return reading(book, turns.earlier(turn, before), (entries) => {
        const all = turn.chat === null ? [] : entriesOf(book.written, turn.chat);
        const older = all.filter(({ id }) => id < before).slice(-turnEntries);
        return same(`the entries before ${before}`, entries, older.toReversed());
      });
    }),

  append: (turn, { usage, ...texts }) =>
    Effect.suspend(() => {
      const { chatbot } = turn;
      const book = ledger.of(chatbot);
      const { written } = book;
      const before = written.newest;
      const last = turn.chat === null ? undefined : entriesOf(written, turn.chat).at(-1);
      return writing(book, turns.append(turn, { ...texts, usage }), (entry, isAlone) =>
        Effect.gen(function* () {
          const { chatId, createTime, id } = entry;
          yield* same("what was appended", entry, { ...texts, id, chatId, createTime });
          if (turn.chat === null) {
            const { items } = yield* chats.listChats(chatbot, { ...newestChats, id: chatId });
            const [chat] = items;
            // Somebody erased it at once.
            if (chat === undefined && !isAlone) return void (book.isSure = false);
            yield* same("its chat", chat, {
              id: chatId,
              name: null,
              userRef: null,
              createTime: chat?.createTime,
            });
            yield* isNextChat(chat!, before);
            addChat(written, chat!);
          } else yield* same("whose it is", chatId, turn.chat);
          const chat = chatOf(written, chatId);
          if (chat === undefined && !isAlone) return;
          yield* same("whether there is its chat", chat !== undefined, true);
          yield* isNextEntry(written, entry, chat!, last);
          addEntry(written, { entry, usage });
        }),
      );
    }),
});

const watchedArchive = (
  ledger: Ledger["Service"],
  archive: ChatArchive["Service"],
): ChatArchive["Service"] => ({
  compact: (pace) => archive.compact(pace),

  erase: (chatbot, which) =>
    Effect.suspend(() => {
      const book = ledger.of(chatbot);
      const { written } = book;
      return writing(book, archive.erase(chatbot, which), (count, isAlone) =>
        Effect.gen(function* () {
          const gone = meantBy(written, which);
          if (isAlone) yield* same("how many are erased", count, gone.length);
          // Of others that were made or used meanwhile nobody knows.
          else if (which._tag !== "Chat" || count !== gone.length) book.isSure = false;
          remove(written, gone);
        }),
      );
    }),

  import: (chatbot, records) =>
    Effect.suspend(() => {
      const book = ledger.of(chatbot);
      let read: Array<ArchiveRecord> = [];
      const noted = Stream.suspend(() => {
        read = [];
        return Stream.map(records, (record) => {
          read.push(record);
          return record;
        });
      });
      return writing(book, archive.import(chatbot, noted), (count) =>
        Effect.suspend(() => {
          addRecords(book.written, read);
          const chats = read.filter(({ _tag }) => _tag === "Chat");
          return same("how many are imported", count, chats.length);
        }),
      );
    }),

  export: (chatbot) =>
    Stream.suspend(() => {
      const book = ledger.of(chatbot);
      const read: Array<ArchiveRecord> = [];
      const judge = judging(book, (given: typeof read) =>
        same("the export", given, recordsOf(book.written)),
      );
      return archive.export(chatbot).pipe(
        Stream.map((record) => {
          read.push(record);
          return record;
        }),
        Stream.onEnd(Effect.suspend(() => judge(read))),
      );
    }),

  usage: (chatbot, since) =>
    Effect.suspend(() => {
      const book = ledger.of(chatbot);
      return reading(book, archive.usage(chatbot, since), (sums) =>
        same(
          `the usage since ${since.toISOString()}`,
          sums === "ChatNotFound" ? sums : byModel(sums),
          byModel(sumsOf(book.written, since)),
        ),
      );
    }),
});

/** The newest chats, and the first by name. */
const finalQueries: ReadonlyArray<ChatQuery> = [
  newestChats,
  { ...newestChats, orderBy: [{ field: "name", descending: false }] },
];

/** The ports of an instance, which compare. */
const watchedPorts = (
  ledger: Ledger["Service"],
  { archive, chats, turns }: Omit<StoreUnderTest["Service"]["second"], "registry">,
) => ({
  chats: watchedChats(ledger, chats),
  turns: watchedTurns(ledger, turns, chats),
  archive: watchedArchive(ledger, archive),
});

/** Everything that lies in the storage is what was written, and the lists are of that. */
const settle = Effect.fnUntraced(function* (
  chats: ChatStore["Service"],
  chatbot: number,
  { isSure, running, written }: Book,
) {
  if (running > 0) return;
  const stored = yield* StoreUnderTest.use(({ peek }) => peek(chatbot));
  const all = stored.map(({ entries: _, ...chat }): Chat => chat);
  for (const query of finalQueries) {
    const page = yield* chats.listChats(chatbot, query);
    yield* same("at last, the chats", page, chatPage(all, query));
  }
  if (!isSure) return;
  const expected = written.chats.map((chat) => ({
    ...chat,
    entries: written.entries.get(chat.id)!.map(({ entry, usage }) => {
      const { chatId: _, ...rest } = entry;
      return { ...rest, usage };
    }),
  }));
  yield* same("what lies in the storage", stored, expected);
});

/** Runs an effect over ports that compare; what they find wrong it fails with. */
export const watched = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
): Effect.Effect<A, E | CheckFailed, Exclude<R, Ledger> | StoreUnderTest> =>
  Effect.gen(function* () {
    const ledger = makeLedger();
    const context = yield* Effect.context<StoreUnderTest>();
    const under = yield* StoreUnderTest;
    const { second } = under;
    const first = {
      chats: Option.getOrElse(Context.getOption(context, ChatStore), () => second.chats),
      turns: Option.getOrElse(Context.getOption(context, TurnStore), () => second.turns),
      archive: Option.getOrElse(Context.getOption(context, ChatArchive), () => second.archive),
    };
    const [ours, theirs] = [watchedPorts(ledger, first), watchedPorts(ledger, second)];
    // Where there is no other instance, it must stay the same.
    const turns = second.turns === first.turns ? ours.turns : theirs.turns;
    const ports = Context.make(ChatStore, ours.chats).pipe(
      Context.add(TurnStore, ours.turns),
      Context.add(ChatArchive, ours.archive),
      Context.add(StoreUnderTest, {
        newChatbot: under.newChatbot,
        peek: (chatbot) => under.peek(chatbot),
        pass: (millis) => under.pass(millis),
        second: { ...theirs, turns, registry: second.registry },
      }),
      Context.add(Ledger, ledger),
    );
    const result = yield* Effect.provideContext(effect, ports);
    for (const [chatbot, book] of ledger.books) yield* settle(first.chats, chatbot, book);
    return result;
  }).pipe(
    Effect.catchDefect((defect) =>
      defect instanceof CheckFailed ? Effect.fail(defect) : Effect.die(defect),
    ),
  ) as Effect.Effect<A, E | CheckFailed, Exclude<R, Ledger> | StoreUnderTest>;

/** The check, over ports that compare. */
export const watchedCheck = <R>({
  name,
  run,
}: Check<R>): Check<Exclude<R, Ledger> | StoreUnderTest> => ({
  name,
  run: watched(run),
});
