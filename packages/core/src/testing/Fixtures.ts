/**
 * The rows, strings and calls that the checks share.
 */
import { Context, Effect, Stream } from "effect";
import { plainKey, type KeyRecord } from "../model/ApiKey.ts";
import type { Chat } from "../model/Chat.ts";
import { defaultSettings } from "../model/Chatbot.ts";
import { ChatArchive, type ArchiveRecord, type Erasable } from "../ports/ChatArchive.ts";
import { ChatbotRegistry, type NewChatbot } from "../ports/ChatbotRegistry.ts";
import { ChatStore, type ChatToCreate } from "../ports/ChatStore.ts";
import { pickEntry, type Entry, type NewEntry, type Usage } from "../model/Entry.ts";
import {
  defaultEntryQuery,
  defaultChatQuery,
  type ChatQuery,
  type EntryQuery,
  type Page,
  entryIncludes,
} from "../model/ListQuery.ts";
import type { IdempotencyKey } from "../model/IdempotencyKey.ts";
import { ChatbotId, ChatId } from "../model/Ids.ts";
import type { StorePorts } from "../ports/Store.ts";
import { TurnStore, type Turn } from "../ports/TurnStore.ts";
import { compareText, fold } from "../model/Text.ts";
import { CheckFailed } from "./Check.ts";
import { fresh, instanceOf, StoreUnderTest } from "./StoreUnderTest.ts";

export const actor = "conformance";

export const newChatbot = StoreUnderTest.use((store) => store.newChatbot);
export const pass = (millis: number) => StoreUnderTest.use((store) => store.pass(millis));

/** Waits in real time, even if the test clock stands still. */
export const after = (millis: number) =>
  Effect.callback<string>((resume) => {
    const timer = setTimeout(() => resume(Effect.succeed(`after ${millis} ms`)), millis);
    return Effect.sync(() => clearTimeout(timer));
  });

/** Runs `n` effects concurrently. */
export const atOnce = <A, E, R>(
  n: number,
  effect: (at: number) => Effect.Effect<A, E, R>,
): Effect.Effect<ReadonlyArray<A>, E, R> =>
  Effect.forEach(Array.from({ length: n }).keys(), effect, { concurrency: n });

/** Returns `success`, or the tag of the failure. */
export const tagOf = <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.match(effect, { onFailure: ({ _tag }): string => _tag, onSuccess: () => "success" });

/** The ports of both instances. */
export const instances = Effect.map(
  Effect.context<StorePorts | StoreUnderTest>(),
  (services) => [instanceOf(services), Context.get(services, StoreUnderTest).second] as const,
);

/** The `TurnStore` of both instances, each of which has its own place in a chat's queue. */
export const bothTurns = Effect.map(
  instances,
  ([{ turns }, second]) => [turns, second.turns] as const,
);

export const bare: ChatToCreate = { name: null, userRef: null, helloMessage: null };

export const create = (chatbot: ChatbotId, chat: Partial<ChatToCreate> = {}) =>
  ChatStore.use((store) =>
    Effect.map(store.createChat(chatbot, { ...bare, ...chat }, null), ({ chat }) => chat),
  );

export const list = (chatbot: ChatbotId, query: Partial<ChatQuery> = {}) =>
  ChatStore.use((store) => store.listChats(chatbot, { ...defaultChatQuery, ...query }));

export const history = (chatbot: ChatbotId, chat: ChatId, query: Partial<EntryQuery> = {}) =>
  ChatStore.use((store) => store.listEntries(chatbot, chat, { ...defaultEntryQuery, ...query }));

export const usage: Usage = {
  provider: "provider",
  model: "model",
  promptTokens: 3,
  completionTokens: 5,
  attempts: 2,
  latencyMillis: 7,
};

export const entry = (question: string, more: Partial<NewEntry> = {}): NewEntry => ({
  question,
  answer: `Answer to ${question}`,
  moderation: "none",
  flagged: false,
  usage: null,
  ...more,
});

/** Makes an idempotency key. The fingerprints of different requests differ only in the last digit. */
export const keyOf = (key: string, request = 0): IdempotencyKey => ({
  key,
  fingerprint: "f".repeat(63) + request,
});

/** Takes a turn that must be free. */
export const takeTurn = (
  chatbot: ChatbotId,
  chat: ChatId | null,
  idempotencyKey: IdempotencyKey | null = null,
  turns?: TurnStore["Service"],
) =>
  TurnStore.use((store) => (turns ?? store).take(chatbot, chat, idempotencyKey)).pipe(
    Effect.flatMap((outcome) =>
      outcome._tag === "TurnTaken"
        ? Effect.succeed(outcome.turn)
        : Effect.fail(
            new CheckFailed({ what: "a free turn", expected: "TurnTaken", actual: outcome._tag }),
          ),
    ),
  );

/** Appends an entry, and returns it as a list has it. */
export const append = (turn: Turn, newEntryFields: NewEntry) =>
  TurnStore.use((store) => store.append(turn, newEntryFields)).pipe(
    Effect.map((entry) => pickEntry(entry, [])),
  );

/** Takes the turn of an existing or a new chat, and appends one entry. */
export const ask = (chatbot: ChatbotId, chat: ChatId | null, newEntryFields: NewEntry) =>
  Effect.flatMap(takeTurn(chatbot, chat), (turn) => append(turn, newEntryFields));

export const erase = (chatbot: ChatbotId, which: Erasable) =>
  ChatArchive.use((archive) => archive.erase(chatbot, which, actor));

export const exportAll = (chatbot: ChatbotId) =>
  ChatArchive.use((archive) => Stream.runCollect(archive.export(chatbot, actor)));

export const importAll = (chatbot: ChatbotId, records: Iterable<ArchiveRecord>) =>
  ChatArchive.use((archive) => archive.import(chatbot, Stream.fromIterable(records), actor));

/** Returns all chats of a chatbot with their entries, as the second instance reads them. */
export const storedChats = Effect.fnUntraced(function* (chatbot: ChatbotId) {
  const { second } = yield* StoreUnderTest;
  const records = yield* Stream.runCollect(second.archive.export(chatbot, actor));
  type StoredEntry = Entry & { readonly usage: Usage | null };
  const chats: Array<{ readonly chat: Chat; readonly entries: Array<StoredEntry> }> = [];
  for (const record of records) {
    if (record._tag === "Chat") chats.push({ chat: record.chat, entries: [] });
    else chats.at(-1)!.entries.push({ ...record.entry, usage: record.usage });
  }
  return chats;
});

/** Makes the record of a chat in an export. */
export const chatRecord = (
  id: number,
  createTime: Date,
  more: Partial<Chat> = {},
): ArchiveRecord => ({
  _tag: "Chat",
  chat: { id: ChatId.make(id), name: null, userRef: null, createTime, ...more },
});

/** Makes the record of an entry in an export. */
export const entryRecord = (
  chatId: number,
  id: number,
  createTime: Date,
  more: Partial<NewEntry> = {},
): ArchiveRecord => {
  const { apiKeyId: _, usage, ...texts } = entry(`question ${id}`, more);
  const stored = { ...texts, id, chatId: ChatId.make(chatId), createTime };
  return { _tag: "Entry", entry: pickEntry(stored, entryIncludes), usage };
};

export const newKey = (more: Partial<KeyRecord> = {}): KeyRecord => ({
  id: fresh("key"),
  hash: Uint8Array.from({ length: 32 }, (_, n) => (n * 7) % 256),
  scopes: ["read", "ask"],
  ...plainKey,
  ...more,
});

export const newChatbotFields = (more: Partial<NewChatbot> = {}): NewChatbot => ({
  workspaceName: "Workspace",
  name: fresh("chatbot"),
  description: "Description — '; 😀",
  settings: { ...defaultSettings, helloMessage: "Hello" },
  keys: [],
  ...more,
});

/** Finds a chatbot as the registry lists it. */
export const findRegistered = (id: number) =>
  ChatbotRegistry.use((registry) =>
    Effect.map(registry.list, (all) => all.find(({ chatbot }) => chatbot.id === id)),
  );

/** Returns the chatbot's entries in the audit log, oldest first. */
export const auditOf = (chatbot: ChatbotId) =>
  ChatbotRegistry.use((registry) =>
    Effect.map(registry.audit(1_000), (lines) =>
      lines
        .filter((line) => line.chatbot === chatbot)
        .map((line) => `${line.actor} ${line.action} ${line.detail}`)
        .toReversed(),
    ),
  );

/** Returns the page that the query should return if `chats` are all the chats of the chatbot. */
export const chatPage = (chats: ReadonlyArray<Chat>, query: ChatQuery): Page<Chat> => {
  const { id, limit, orderBy, page, userRef } = query;
  const search = fold(query.search ?? "");
  const order = [...orderBy, { field: "id", descending: orderBy.at(-1)!.descending } as const];
  const matches = chats
    .filter((chat) => (id ?? chat.id) === chat.id && (userRef ?? chat.userRef) === chat.userRef)
    .filter(({ name }) => search === "" || (name !== null && fold(name).includes(search)))
    .toSorted((a, b) => {
      const signs = order.map(({ descending, field }) => {
        const ascending = compare(a[field], b[field]);
        return descending ? -ascending : ascending;
      });
      return signs.find((sign) => sign !== 0) ?? 0;
    });
  return { total: matches.length, items: matches.slice((page - 1) * limit, page * limit) };
};

const compare = (a: Chat[keyof Chat], b: Chat[keyof Chat]): number => {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  return typeof a === "string" ? compareText(a, b as string) : Number(a) - Number(b);
};

/** Strings that a store may sort, fold or keep wrongly, each of at most 60 code points. */
export const awkwardTexts: ReadonlyArray<string> = [
  ["", " ", "a", "A", "B", "Z", "b", "z", "aa", "a b", "a-b", "a_b", "aXb"],
  ["[ab]", "[^b]", "a.b", "a*", "?", "^a$", "(a|b)", "a+b", "&amp;", "a%20b"],
  ["100%", "100", "%", "_", "\\", "\\%", "a\\b", "'; drop table chat; --", '"quoted"', "$1", "{}"],
  // Full-width characters, which folding turns into ASCII.
  ["％", "＿", "＼", "Ｆｕｌｌ"],
  ["line\nbreak", "tab\there", "\u007f", "\u202eright to left", "\ufeffmark", "\ufeff\ufffd"],
  ["é", "e\u0301", "É", "ß", "ẞ", "SS", "ﬁn", "FIN", "İstanbul", "istanbul"],
  ["ΣΊΣΥΦΟΣ", "σίσυφος", "i\u0307", "ı", "ŉ", "Ǆ", "ǆ", "中文", "ひら", "ヒラ", "ﾋﾗ"],
  ["42", "042", "0", "null", "NULL"],
  // By code point, the first three sort before the others, which are above U+FFFF; by UTF-16 code unit, after them.
  ["\ue000", "\uffee", "\ufffd", "𐐀", "𐐨", "😀", "👩‍👩‍👧"],
].flat();

/** Returns strings that differ, in case or otherwise, only after this many code points. */
export const alikeUpTo = (length: number): ReadonlyArray<string> =>
  ["b", "a", "", "B", "😀"].map((end) => "x".repeat(length) + end);
