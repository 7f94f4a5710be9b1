/**
 * The state of an in-memory store, which all instances of the store share.
 */
import {
  type ChatbotId,
  ChatId,
  ChatbotNotFound,
  type AuditRecord,
  type Chat,
  type Chatbot,
  type Entry,
  type NewEntry,
  type RegisteredKey,
  type Usage,
} from "@parley/core/ports";
import { Clock, Effect, PubSub, Result } from "effect";

export interface StoredEntry {
  readonly entry: Entry;
  readonly usage: Usage | null;
  readonly apiKeyId: string | null;
}

export interface StoredChat {
  readonly chat: Chat;
  /** In order of creation, which is the order of their ids. */
  readonly entries: Array<StoredEntry>;
  /** The id of the latest turn, which may have ended. */
  turnId: string | null;
  /** The time at which a turn last ended, in milliseconds since the Unix epoch; `-Infinity` if none has ended. */
  turnEnded: number;
  /** The instances that are waiting for a turn, the longest-waiting one first. */
  waiting: Array<object>;
}

export interface IdempotencyRecord {
  readonly fingerprint: string;
  /** In milliseconds since the Unix epoch. */
  readonly createdAt: number;
  /**
   * While a turn is working on the request, the turn and its chat, if the chat exists; afterwards, what the request
   * stored: a chat, or an entry and its turn.
   */
  readonly outcome:
    | { readonly _tag: "Pending"; readonly chat: number | null; readonly turnId: string }
    | { readonly _tag: "Chat"; readonly chat: number }
    | {
        readonly _tag: "Entry";
        readonly chat: number;
        readonly entry: number;
        readonly turnId: string;
      };
}

/** The chats, turns, idempotency records and spending of one chatbot. */
export interface Tenant {
  /** Keyed by id, in order of creation, which is also the order of ids. */
  readonly chats: Map<number, StoredChat>;
  /**
   * The time at which each turn's lease ends, in milliseconds since the Unix epoch, keyed by turn id. A turn that has
   * ended, or that holds neither a chat nor a key, has no lease.
   */
  readonly leases: Map<string, number>;
  /** Keyed by idempotency key, oldest first. */
  readonly idempotencyRecords: Map<string, IdempotencyRecord>;
  /** Tokens spent, keyed by API key id and UTC day, as in `QSCmEIhoudPA 2030-01-31`. */
  readonly spending: Map<string, number>;
  /** The creation time of the newest chat, even if it has been erased, in milliseconds since the Unix epoch. */
  lastTime: number;
}

export interface StoredChatbot extends Tenant {
  chatbot: Chatbot;
  readonly keys: Map<string, RegisteredKey>;
}

/** The state of an in-memory store, created by {@link makeMemory}. Its fields are internal. */
export interface Memory {
  /** Keyed by id, in order of creation. */
  readonly chatbots: Map<number, StoredChatbot>;
  /** Oldest first. */
  readonly audit: Array<AuditRecord>;
  readonly lastId: Record<"chatbot" | "chat" | "entry", number>;
  readonly notifications: {
    /** The ids of chatbots that have changed. */
    readonly changes: PubSub.PubSub<ChatbotId>;
  };
}

/** Creates a memory without chats, in which these chatbots are registered without keys. */
export const makeMemory = (chatbots: ReadonlyArray<Chatbot> = []): Memory => ({
  chatbots: new Map(
    chatbots.map((chatbot) => [chatbot.id, { chatbot, keys: new Map(), ...emptyTenant() }]),
  ),
  audit: [],
  lastId: { chatbot: Math.max(0, ...chatbots.map(({ id }) => id)), chat: 0, entry: 0 },
  notifications: { changes: makePubSub() },
});

// Neither creating a sliding PubSub nor publishing to it ever suspends.
const makePubSub = <A>() => Effect.runSync(PubSub.sliding<A>(1024));
export const publish = <A>(hub: PubSub.PubSub<A>, message: A) =>
  Effect.runSync(PubSub.publish(hub, message));

export const emptyTenant = (): Tenant => ({
  chats: new Map(),
  leases: new Map(),
  idempotencyRecords: new Map(),
  spending: new Map(),
  lastTime: -Infinity,
});

export const findChatbot = ({ chatbots }: Memory, chatbot: number) =>
  Result.fromNullishOr(chatbots.get(chatbot), () => new ChatbotNotFound({ chatbot }));

/** Returns the chatbot's tenant; for an unregistered chatbot, an empty tenant that is not stored. */
export const tenantOf = ({ chatbots }: Memory, chatbot: number): Tenant =>
  chatbots.get(chatbot) ?? emptyTenant();

/** Whether the chat belongs to the visitor; always true if `visitor` is `null`. */
export const isOwn = ({ chat }: StoredChat, visitor: string | null): boolean =>
  visitor === null || chat.userRef === visitor;

/** Stores a chat. Its time is never earlier than the previous chat's, so that times are in the order of ids. */
export const addChat = (
  { lastId }: Memory,
  tenant: Tenant,
  { name, userRef }: Pick<Chat, "name" | "userRef">,
  now: number,
): StoredChat => {
  tenant.lastTime = Math.max(now, tenant.lastTime);
  const createTime = new Date(tenant.lastTime);
  const newChat = emptyChat({ id: ChatId.make(++lastId.chat), name, userRef, createTime });
  tenant.chats.set(newChat.chat.id, newChat);
  return newChat;
};

export const emptyChat = (chat: Chat): StoredChat => ({
  chat,
  entries: [],
  turnId: null,
  turnEnded: -Infinity,
  waiting: [],
});

export const addEntry = (
  { lastId }: Memory,
  { chat, entries }: StoredChat,
  { answer, apiKeyId = null, flagged, moderation, question, usage }: NewEntry,
  now: number,
): Entry => {
  const before = entries.at(-1)?.entry ?? chat;
  const createTime = new Date(Math.max(now, before.createTime.getTime()));
  const texts = { question, answer, moderation, flagged };
  const newEntry = { id: ++lastId.entry, chatId: chat.id, ...texts, createTime };
  entries.push({ entry: newEntry, usage, apiKeyId });
  return newEntry;
};

/** Runs `f` with the current time in a single step, during which no other fiber runs. */
export const atomically = <A, Step extends Result.Result<any, any>>(
  f: (now: number) => Generator<Step, A, any>,
): Effect.Effect<A, Step extends Result.Result<any, infer E> ? E : never> =>
  Effect.flatMap(Clock.currentTimeMillis, (now) =>
    Effect.fromResult<A, any>(Result.gen(() => f(now))),
  );

const spendingName = (apiKeyId: string, now: number) =>
  `${apiKeyId} ${new Date(now).toISOString().slice(0, 10)}`;

export const spendingOf = ({ spending }: Tenant, apiKeyId: string, now: number): number =>
  spending.get(spendingName(apiKeyId, now)) ?? 0;

export const spend = (
  tenant: Tenant,
  apiKeyId: string | null | undefined,
  tokens: number | null | undefined,
  now: number,
): void => {
  if (apiKeyId == null || tokens == null) return;
  tenant.spending.set(spendingName(apiKeyId, now), spendingOf(tenant, apiKeyId, now) + tokens);
};

export const record = (
  { audit, notifications }: Memory,
  now: number,
  actor: string,
  chatbot: ChatbotId,
  action: AuditRecord["action"],
  detail: string,
) => {
  audit.push({ time: new Date(now), actor, chatbot, action, detail });
  publish(notifications.changes, chatbot);
};
