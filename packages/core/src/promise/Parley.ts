/**
 * The interface of `openParley`. It needs no Effect: arguments are plain values, results are promises and async
 * iterables, errors are classes.
 */
import type { Layer } from "effect";
import type { Scope } from "../model/ApiKey.ts";
import type { Chat } from "../model/Chat.ts";
import type { Chatbot, ChatbotSettings } from "../model/Chatbot.ts";
import type { Entry } from "../model/Entry.ts";
import type { AnswererFunction, AnswererLayer } from "../ports/Answerer.ts";
import type { UsageGroup, UsageSum } from "../ports/ChatArchive.ts";
import type { ModeratorFunction, ModeratorLayer } from "../ports/Moderator.ts";
import type { Store, StorePorts } from "../ports/Store.ts";
import type { Access } from "../services/Access.ts";
import type { Administration } from "../services/Administration.ts";
import type { Asking } from "../services/Asking.ts";
import type { Chats } from "../services/Chats.ts";
import type { AskResult } from "../services/LiveAnswer.ts";

/** The options of `openParley`. */
export interface ParleyOptions {
  /** `memory()`, `sqlite(file)`, `postgres(url)`, or the layer of a store. */
  readonly store: Store;
  /** A function that answers a question, `languageModel(…)`, `documents(folder)`, or a layer. */
  readonly answerer: AnswererFunction | AnswererLayer;
  /** A function that returns the category of a question that may not be answered, or a layer; none by default. */
  readonly moderator?: ModeratorFunction | ModeratorLayer | undefined;
  /** A function that receives each line of the log, or `false` for no log; standard error by default. */
  readonly log?: ((line: string) => void) | false | undefined;
  /** The actor of changes, erasures, exports and imports in the audit log; `openParley` by default. */
  readonly actor?: string | undefined;
  /** The time limit for an answer, in milliseconds; 30,000 by default. */
  readonly answerMillis?: number | undefined;
}

/** Conversations with chatbots over one store. Two instances share nothing but the data of a store that both open. */
export interface Parley {
  /**
   * Finds the chatbot by workspace and name, and updates the given fields whose values differ; creates it if it is
   * missing. Rejects with `ArgumentInvalid` or `StorageUnavailable`.
   */
  readonly chatbot: (chatbot: ChatbotDeclaration) => Promise<Bot>;
  /**
   * Finds the chatbot of an API key. The bot's asks count towards the key's usage and daily budget; once the budget is
   * spent, they reject with `BudgetSpent`. If the key is bound to a user, creating, listing and asking are limited to
   * that user's chats, and creating a chat with another `userRef` rejects with `UserRefNotGranted`. This call itself
   * rejects with `KeyRejected`, `RateExceeded` or `StorageUnavailable`.
   */
  readonly authenticate: (key: string) => Promise<Authenticated>;
  /** Waits for calls and answers in progress, then closes the store. Later calls reject with `StorageUnavailable`. */
  readonly close: () => Promise<void>;
  /** The same as `close`, for `await using`. */
  readonly [Symbol.asyncDispose]: () => Promise<void>;
  /** The same services for `makeWebHandler` of `@parley/http`, and for programs that use Effect. */
  readonly layer: ParleyLayer;
}

/** The services of the core and the ports of the store, as `layerParley` builds them. */
export interface ParleyLayer extends Layer.Layer<
  Access | Administration | Asking | Chats | StorePorts
> {}

/**
 * A chatbot to find, create or change. Absent fields stay as they are; in a new chatbot, an absent description is
 * empty, and absent settings have the values of `defaultSettings`.
 */
export interface ChatbotDeclaration extends Partial<ChatbotSettings> {
  readonly workspace: string;
  readonly name: string;
  readonly description?: string;
}

/**
 * The chatbot of an API key, and what the key may do. The methods of `bot` do not check the scopes, and those for
 * operators (`erase`, `usage`, `export`, `import`, `createKey`, `revokeKey`) apply to the whole chatbot.
 */
export interface Authenticated {
  readonly bot: Bot;
  readonly scopes: ReadonlyArray<Scope>;
}

/** Options of calls that a signal can end. */
export interface CallOptions {
  /** Ends the call at once with the signal's reason. What is being written may still be stored. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of calls that store a chat or an entry. */
export interface StoreOptions extends CallOptions {
  /**
   * 1 to 255 printable ASCII characters. Within 24 hours, a repetition of the call with the same key returns what the
   * first call stored; a different call with the key rejects with `IdempotencyKeyReused`.
   */
  readonly idempotencyKey?: string | undefined;
}

/** Options of asks. */
export interface AskOptions extends StoreOptions {
  /**
   * The effect of the signal, and of leaving the loop over a stream. `finish`, the default of `ask`: the answer is
   * completed and stored. `cancel`, the default of `stream`: the answerer's signal is aborted, and nothing is stored.
   */
  readonly onDisconnect?: "finish" | "cancel" | undefined;
}

/**
 * The conversations of one chatbot, with the settings that it had when this object was created. Every call rejects with
 * `StorageUnavailable` if the store fails, with `ArgumentInvalid` if an argument breaks a rule of the interface, and
 * with the signal's reason once its signal is aborted.
 */
export interface Bot {
  /** The id, the names, the description and the settings. */
  readonly chatbot: Chatbot;
  /** Creates a chat. It starts with an entry if the chatbot has a hello message. */
  readonly createChat: (chat?: ChatFields, options?: StoreOptions) => Promise<Chat>;
  /** The chats, newest first by default. */
  readonly chats: (query?: ChatsQuery, options?: CallOptions) => List<Chat>;
  /** The entries of a chat, newest first by default. Reading rejects with `ChatNotFound` if there is no such chat. */
  readonly history: (chatId: number, query?: HistoryQuery, options?: CallOptions) => List<Entry>;
  /**
   * Asks in a chat, or in a new one for `null`, and resolves once the entry is stored. Rejects with `ChatNotFound`,
   * `ChatbotNotFound`, `AnswerUnavailable`, `Overloaded`, `BudgetSpent` or `IdempotencyKeyReused`; then nothing was
   * stored.
   */
  readonly ask: (
    chatId: number | null,
    question: string,
    options?: AskOptions,
  ) => Promise<AskResult>;
  /**
   * Asks like `ask`, and yields the answer as it arrives. The ask begins with the loop, and the entry is the last
   * event.
   */
  readonly stream: (
    chatId: number | null,
    question: string,
    options?: AskOptions,
  ) => AsyncIterable<AnswerEvent>;
  /** Erases one chat, the chats of a user, those idle since a time, or all. Resolves to the number of erased chats. */
  readonly erase: (chats: ChatsToErase) => Promise<number>;
  /** The cost of the answers since a time, or of all, for each model and each group. */
  readonly usage: (query?: UsageQuery) => Promise<ReadonlyArray<UsageSum>>;
  /** The chats with their entries, or those of a user, as lines of JSON, each with its line break. */
  readonly export: (chats?: { readonly userRef?: string | undefined }) => AsyncIterable<string>;
  /**
   * Stores the chats of an export, all or none, and resolves to their number. Rejects with `ImportRefused` if the
   * export is not valid, or if the chatbot has chats.
   */
  readonly import: (
    lines: AsyncIterable<string | Uint8Array> | Iterable<string | Uint8Array>,
  ) => Promise<number>;
  /** Creates an API key, by default with all scopes and no expiry. Only this call returns its text. */
  readonly createKey: (key?: KeyFields) => Promise<{ readonly id: string; readonly key: string }>;
  /** Revokes a key for good; rejects with `KeyNotFound` if the key is unknown or already revoked. */
  readonly revokeKey: (keyId: string) => Promise<void>;
}

/** An event of an answer. `entry` is the last. */
export type AnswerEvent =
  /** The next delta of the answer's text. */
  | { readonly type: "delta"; readonly text: string }
  /** The answer is complete and stored. */
  | { readonly type: "entry"; readonly entry: Entry };

/** The fields of a chat to create; `null` counts as absent. */
export interface ChatFields {
  /** Up to 255 code points. */
  readonly name?: string | null | undefined;
  /** Your name for the user, up to 60 code points. */
  readonly userRef?: string | null | undefined;
}

/** A query of a list. */
export interface ListQuery<Field extends string> {
  /** Rows per page, 1 to 100; 25 by default. */
  readonly limit?: number | undefined;
  /** The first page to read; 1 by default. */
  readonly page?: number | undefined;
  readonly orderBy?: Field | ReadonlyArray<Field> | undefined;
  /**
   * Whether to sort in descending order, one value for each field of `orderBy`. By default, the order is ascending with
   * `orderBy`, and newest first without it.
   */
  readonly desc?: boolean | ReadonlyArray<boolean> | undefined;
  readonly id?: number | undefined;
}

/** A query of chats. */
export interface ChatsQuery extends ListQuery<keyof Chat> {
  /** Part of the name, in any case. */
  readonly search?: string | undefined;
  /** The exact value. */
  readonly userRef?: string | undefined;
}

/** A query of a chat's entries. */
export type HistoryQuery = ListQuery<keyof Entry>;

/** A page of a list; rows and total come from one snapshot. */
export interface Page<A> {
  readonly data: ReadonlyArray<A>;
  /** How many rows match in all. */
  readonly total: number;
  /** The number of this page, from 1. */
  readonly page: number;
}

/**
 * A list, read as it is iterated: row by row over all pages from the query's `page` on. The default order, newest
 * first, shifts while rows are added; for a list that grows, use `orderBy: "id"`.
 */
export interface List<A> extends AsyncIterable<A> {
  /** The page that the query names. */
  readonly page: () => Promise<Page<A>>;
  /** The same rows, page by page; each page has the total. */
  readonly pages: () => AsyncIterable<Page<A>>;
}

/** The chats to erase. `idleSince`: those that were created before this time and have no entry from then on. */
export type ChatsToErase =
  | { readonly chatId: number }
  | { readonly userRef: string }
  | { readonly idleSince: Date }
  | "all";

/** A query of the usage report. */
export interface UsageQuery {
  readonly since?: Date | undefined;
  readonly by?: UsageGroup | undefined;
}

/** The fields of an API key to create. */
export interface KeyFields {
  readonly name?: string | undefined;
  readonly scopes?: ReadonlyArray<Scope> | undefined;
  readonly expiresAt?: Date | undefined;
  readonly ratePerMinute?: number | undefined;
}
