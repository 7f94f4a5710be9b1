/**
 * The interface of `openParley`. It requires no knowledge of Effect: arguments are plain values, results are promises
 * and async iterables, and errors are classes.
 */
import type { Layer } from "effect";
import type { Scope } from "../model/ApiKey.ts";
import type { Chat } from "../model/Chat.ts";
import type { Chatbot, ChatbotSettings } from "../model/Chatbot.ts";
import type { Entry, Metadata } from "../model/Entry.ts";
import type { AskError } from "../model/Errors.ts";
import type { ChatField, EntryField, EntryInclude } from "../model/ListQuery.ts";
import type { AnswererFunction, AnswererLayer } from "../ports/Answerer.ts";
import type { UsageGroup, UsageSum } from "../ports/ChatArchive.ts";
import type { ModeratorFunction, ModeratorLayer } from "../ports/Moderator.ts";
import type { Store, StorePorts } from "../ports/Store.ts";
import type { Access } from "../services/access/Access.ts";
import type { Administration } from "../services/Administration.ts";
import type { Asking } from "../services/asking/Asking.ts";
import type { Chats } from "../services/Chats.ts";
import type { StoredEntry } from "../services/asking/EntryEvents.ts";
import type { AskResult } from "../services/asking/LiveAnswer.ts";

/** The options of `openParley`. */
export interface ParleyOptions {
  /** `memory()`, `sqlite(file)`, `postgres(url)`, or another layer that provides a store. */
  readonly store: Store;
  /** A function that answers questions, or a layer, such as `languageModel(…)` or `documents(folder)`. */
  readonly answerer: AnswererFunction | AnswererLayer;
  /** A function that returns the category of a question that must not be answered, or a layer; none by default. */
  readonly moderator?: ModeratorFunction | ModeratorLayer | undefined;
  /** A function that receives each log line, or `false` to disable logging; logs to standard error by default. */
  readonly log?: ((line: string) => void) | false | undefined;
  /** The actor that the audit log names for changes, erasures, exports and imports; `openParley` by default. */
  readonly actor?: string | undefined;
  /** The time limit for an answer, in milliseconds; 30,000 by default. */
  readonly answerMillis?: number | undefined;
  /** The maximum length of a question, in code points; 200 by default, at most 20,000. */
  readonly questionLength?: number | undefined;
  /**
   * A function that is called once for each entry that this process stores, after it is durable: answers, flagged
   * questions, posts and hello entries, but no imports and no replays. What it throws is logged, and changes nothing. It
   * is not called for what other processes store, nor if this process dies in between: `history` with `after` is.
   */
  readonly onEntry?: ((stored: StoredEntry) => unknown) | undefined;
  /** A function that receives the error of each ask that fails, with its cause, which log lines leave out. */
  readonly onError?: ((error: AskError) => unknown) | undefined;
}

/** Conversations with chatbots, kept in one store. Two instances share only the data of a store that both open. */
export interface Parley {
  /**
   * Finds the chatbot by workspace and name and updates the given fields whose values differ, or creates the chatbot if
   * it does not exist. Rejects with `ArgumentInvalid` or `StorageUnavailable`.
   */
  readonly chatbot: (chatbot: ChatbotDeclaration) => Promise<Bot>;
  /**
   * Finds the chatbot that an API key belongs to. The bot's asks count towards the key's usage and daily budget; once
   * the budget is spent, they reject with `BudgetSpent`. If the key is bound to a user, creating, listing and asking
   * are limited to that user's chats, and creating a chat with another `userRef` rejects with `UserRefNotGranted`. This
   * call itself rejects with `KeyRejected`, `RateExceeded` or `StorageUnavailable`.
   */
  readonly authenticate: (key: string) => Promise<Authenticated>;
  /**
   * Erases the expired chats of all chatbots now, and returns whether that succeeded; failures are logged. For cron jobs,
   * and for Workers, in which Parley sets no timer for it.
   */
  readonly eraseExpired: () => Promise<boolean>;
  /** Waits for calls and answers in progress, then closes the store. Later calls reject with `StorageUnavailable`. */
  readonly close: () => Promise<void>;
  /** The same as `close`, for `await using`. */
  readonly [Symbol.asyncDispose]: () => Promise<void>;
  /** The services of this object, for `makeWebHandler` from `@parley/http` and for programs that use Effect. */
  readonly layer: ParleyLayer;
}

/** The services of the core and the ports of the store, as `layerParley` builds them. */
export interface ParleyLayer extends Layer.Layer<
  Access | Administration | Asking | Chats | StorePorts
> {}

/**
 * A chatbot to find, create or change. Absent fields stay as they are. In a new chatbot, the description defaults to
 * the empty string, and the settings default to `defaultSettings`. With `retentionDays`, the chatbot's expired chats
 * are erased a minute after `openParley` and then about once an hour, until `close`; in a Worker, see `eraseExpired`.
 */
export interface ChatbotDeclaration extends Partial<ChatbotSettings> {
  readonly workspace: string;
  readonly name: string;
  readonly description?: string;
}

/**
 * The chatbot that an API key belongs to, and what the key may do. The methods of `bot` do not check scopes, and the
 * methods for operators (`erase`, `usage`, `export`, `import`, `createKey`, `revokeKey`) apply to the whole chatbot.
 */
export interface Authenticated {
  readonly bot: Bot;
  readonly scopes: ReadonlyArray<Scope>;
}

/** Options for calls that a signal can end. */
export interface CallOptions {
  /** Ends the call at once with the signal's reason. A write in progress may still complete. */
  readonly signal?: AbortSignal | undefined;
}

/** Options for calls that store a chat or an entry. */
export interface StoreOptions extends CallOptions {
  /**
   * 1 to 255 printable ASCII characters. Within 24 hours, repeating the call with the same key returns what the first
   * call stored; a different call with the key rejects with `IdempotencyKeyReused`.
   */
  readonly idempotencyKey?: string | undefined;
}

/** Options for asks. */
export interface AskOptions extends StoreOptions {
  /**
   * The effect of aborting the signal or leaving the loop over a stream. `finish`, the default for `ask`, completes and
   * stores the answer. `cancel`, the default for `stream`, aborts the answerer's signal and stores nothing.
   */
  readonly onDisconnect?: "finish" | "cancel" | undefined;
  /**
   * Whatever the answerer and the moderator need to know of the caller, such as the session of a signed-in user. It is
   * handed on as it is and not stored. An ask that joins another by its idempotency key has the other's context.
   */
  readonly context?: unknown;
  /** What the entry has in addition: its `metadata`, or its `rating` and `comment`. */
  readonly include?: ReadonlyArray<EntryInclude> | undefined;
}

/** The outcome of a stop: `stopped` if nothing is stored; otherwise the entry that was stored first. */
export type StopResult =
  | { readonly stopped: true }
  | { readonly stopped: false; readonly entry: Entry };

/** Options for posts. */
export interface PostOptions extends StoreOptions {
  /** A JSON object of at most 16 KiB and 100 levels: `{ author: "Ann" }` marks an entry that a person wrote. */
  readonly metadata?: Metadata | null | undefined;
}

/** The members of a bot that is bound to one user. */
export const userMethods = [
  "chatbot",
  "createChat",
  "chats",
  "history",
  "ask",
  "stream",
  "stop",
  "rename",
  "rate",
  "delete",
] as const satisfies ReadonlyArray<keyof Bot>;

/** A bot that is bound to one user: it has and makes only chats with that `userRef`, and nothing for operators. */
export type UserBot = Pick<Bot, (typeof userMethods)[number]>;

/**
 * The conversations of one chatbot, with the settings that the chatbot had when this object was created. Every call
 * rejects with `StorageUnavailable` if the store fails, with `ArgumentInvalid` if an argument is invalid, and with the
 * signal's reason once its signal is aborted.
 */
export interface Bot {
  /** The chatbot's id, names, description and settings. */
  readonly chatbot: Chatbot;
  /** Creates a chat, which starts with a hello entry if the chatbot has a hello message. */
  readonly createChat: (chat?: ChatFields, options?: StoreOptions) => Promise<Chat>;
  /** Lists the chats, newest first by default. Throws `ArgumentInvalid` if an option is unknown, as each list and stream does. */
  readonly chats: (query?: ChatsQuery, options?: CallOptions) => List<Chat>;
  /** Lists a chat's entries, newest first by default. Reading rejects with `ChatNotFound` if there is no such chat. */
  readonly history: (chatId: number, query?: HistoryQuery, options?: CallOptions) => List<Entry>;
  /**
   * Asks in a chat, or in a new chat if `chatId` is `null`, and resolves once the entry is stored. Rejects with
   * `ChatNotFound`, `ChatbotNotFound`, `AnswerStopped`, `AnswerUnavailable`, `Overloaded`, `BudgetSpent` or `IdempotencyKeyReused`, in
   * which case nothing was stored.
   */
  readonly ask: (
    chatId: number | null,
    question: string,
    options?: AskOptions,
  ) => Promise<AskResult>;
  /**
   * Asks like `ask`, and yields the answer as it arrives. The ask starts when the loop does, and the last event
   * contains the stored entry.
   */
  readonly stream: (
    chatId: number | null,
    question: string,
    options?: AskOptions,
  ) => AsyncIterable<AnswerEvent>;
  /**
   * Stops the ask with this idempotency key: at once in this process, within seconds in another. Its model's request
   * ends, nothing is stored, and every request with the key rejects with `AnswerStopped` for 24 hours. Resolves to the
   * entry if it was stored first; rejects with `AskNotFound` if there is no such ask.
   */
  readonly stop: (idempotencyKey: string) => Promise<StopResult>;
  /**
   * Stores an entry without a question, such as a colleague's answer or a notice, in its turn. Any client's next read of
   * the history has it. Rejects with `ChatNotFound`, `Overloaded` or `IdempotencyKeyReused`.
   */
  readonly post: (chatId: number, text: string, options?: PostOptions) => Promise<Entry>;
  /** Gives a chat another name, or none. Rejects with `ChatNotFound`. */
  readonly rename: (chatId: number, name: string | null) => Promise<Chat>;
  /**
   * Changes an entry's rating or comment; `null` clears it, and an absent field stays. Rejects with `ChatNotFound` or
   * `EntryNotFound`.
   */
  readonly rate: (chatId: number, entryId: number, feedback: FeedbackChange) => Promise<Entry>;
  /** Erases a chat with everything in it, and returns the chat as it was. Rejects with `ChatNotFound`. */
  readonly delete: (chatId: number) => Promise<Chat>;
  /**
   * Returns this bot bound to one user, without an API key. Its chats, idempotency keys and rights are those of a
   * visitor token of that user; creating a chat with another `userRef` rejects with `UserRefNotGranted`.
   */
  readonly as: (userRef: string) => UserBot;
  /** Erases one chat, a user's chats, the chats idle since a time, or all. Resolves to the number of erased chats. */
  readonly erase: (chats: ChatsToErase) => Promise<number>;
  /** Reports the cost of the answers since a time, or of all answers, for each model and each group. */
  readonly usage: (query?: UsageQuery) => Promise<ReadonlyArray<UsageSum>>;
  /** Exports all chats, or one user's, with their entries. Yields lines of JSON, including their line breaks. */
  readonly export: (chats?: { readonly userRef?: string | undefined }) => AsyncIterable<string>;
  /**
   * Imports the chats of an export, all or none, and resolves to their number. Rejects with `ImportRefused` if the
   * export is not valid or the chatbot already has chats.
   */
  readonly import: (
    lines: AsyncIterable<string | Uint8Array> | Iterable<string | Uint8Array>,
  ) => Promise<number>;
  /**
   * Creates an API key, by default with the scopes `read`, `write` and `ask` and no expiry. Only this call ever returns
   * the key itself.
   */
  readonly createKey: (key?: KeyFields) => Promise<{ readonly id: string; readonly key: string }>;
  /**
   * Revokes a key for good, within a second; rejects with `KeyNotFound` if the key is unknown or already revoked.
   */
  readonly revokeKey: (keyId: string) => Promise<void>;
}

/** An event in a streamed answer. If the stream succeeds, its last event is `entry`. */
export type AnswerEvent =
  /** The next delta of the answer's text. */
  | { readonly type: "delta"; readonly text: string }
  /** The answer is complete and stored. */
  | { readonly type: "entry"; readonly entry: Entry };

/** The fields of a new chat; `null` counts as absent. */
export interface ChatFields {
  /** Up to 255 code points. */
  readonly name?: string | null | undefined;
  /** Your own reference to the user, up to 60 code points. */
  readonly userRef?: string | null | undefined;
}

/** A query for a list. */
export interface ListQuery<Field extends string> {
  /** Rows per page, 1 to 100; 25 by default. */
  readonly limit?: number | undefined;
  /** The first page to read; 1 by default. */
  readonly page?: number | undefined;
  readonly orderBy?: Field | ReadonlyArray<Field> | undefined;
  /**
   * Whether to sort in descending order, with one value for each field of `orderBy`. By default, the order is ascending
   * if `orderBy` is given, and newest first otherwise.
   */
  readonly desc?: boolean | ReadonlyArray<boolean> | undefined;
  readonly id?: number | undefined;
}

/** The fields of an entry's feedback to change. */
export interface FeedbackChange {
  readonly rating?: "good" | "bad" | null | undefined;
  /** Up to 1,000 code points. */
  readonly comment?: string | null | undefined;
}

/** A query for chats. */
export interface ChatsQuery extends ListQuery<ChatField> {
  /** `activity` adds `lastEntryTime` and `entries` to each chat. */
  readonly include?: ReadonlyArray<"activity"> | undefined;
  /** Part of the chat's name, ignoring case. */
  readonly search?: string | undefined;
  /** The chat's exact `userRef`. */
  readonly userRef?: string | undefined;
}

/** A query for a chat's entries. */
export interface HistoryQuery extends ListQuery<EntryField> {
  /** Only entries with greater ids: what has come since the last read. */
  readonly after?: number | undefined;
  /** `metadata` adds the entry's metadata; `feedback` its `rating` and `comment`. */
  readonly include?: ReadonlyArray<EntryInclude> | undefined;
}

/** A page of a list. The rows and the total come from one snapshot. */
export interface Page<A> {
  readonly data: ReadonlyArray<A>;
  /** The total number of rows that match. */
  readonly total: number;
  /** The number of this page, starting at 1. */
  readonly page: number;
}

/**
 * A list that is read as it is iterated, row by row, over all pages from the query's `page` onwards. The default order,
 * newest first, shifts when rows are added; for a list that grows, use `orderBy: "id"`.
 */
export interface List<A> extends AsyncIterable<A> {
  /** Reads the page that the query asks for. */
  readonly page: () => Promise<Page<A>>;
  /** Reads the same rows page by page. Each page includes the total. */
  readonly pages: () => AsyncIterable<Page<A>>;
}

/** The chats to erase. `idleSince` selects the chats created before this time that have no entry at or after it. */
export type ChatsToErase =
  | { readonly chatId: number }
  | { readonly userRef: string }
  | { readonly idleSince: Date }
  | "all";

/** A query for the usage report. */
export interface UsageQuery {
  readonly since?: Date | undefined;
  /** Answers from this time on do not count; by default, none is excluded. */
  readonly until?: Date | undefined;
  readonly by?: UsageGroup | undefined;
}

/** The fields of a new API key. */
export interface KeyFields {
  readonly name?: string | undefined;
  readonly scopes?: ReadonlyArray<Scope> | undefined;
  readonly expiresAt?: Date | undefined;
  readonly ratePerMinute?: number | undefined;
}
