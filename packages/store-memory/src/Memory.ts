/**
 * The state that the memory store's ports share, and all of its instances over one memory.
 */
import {
  fold,
  type AuditRecord,
  type Chatbot,
  type NewEntry,
  type RegisteredKey,
} from "@parley/core";
import { Clock, Effect, PubSub } from "effect";
import {
  emptyTenant,
  withoutTurn,
  type StoredChat,
  type StoredEntry,
  type Tenant,
} from "./Tenant.ts";

export interface RegisteredChatbot {
  chatbot: Chatbot;
  readonly keys: Map<string, RegisteredKey>;
  readonly tenant: Tenant;
}

export interface Memory {
  /** By their ids, in order of creation. */
  readonly registered: Map<number, RegisteredChatbot>;
  /** Oldest first. */
  readonly audit: Array<AuditRecord>;
  /** What a chatbot holds; of one that is not registered, an empty tenant that nobody keeps. */
  readonly tenant: (chatbot: number) => Tenant;
  readonly addChat: (
    tenant: Tenant,
    chat: { readonly name: string | null; readonly userRef: string | null },
    now: number,
  ) => StoredChat;
  readonly addEntry: (chat: StoredChat, entry: NewEntry, now: number) => StoredEntry;
  /** A number that this memory did not give before. */
  readonly next: (kind: Kind) => number;
  /** Moves the sequences past ids that came from elsewhere. */
  readonly moveTo: (kind: "chat" | "entry", id: number) => void;
  /** What the instances tell each other. */
  readonly hints: {
    /** A chat whose turn may be free. */
    readonly freed: PubSub.PubSub<{ readonly chatbot: number; readonly chat: number }>;
    /** A chatbot that changed. */
    readonly changed: PubSub.PubSub<number>;
  };
}

type Kind = "chatbot" | "chat" | "entry";

const hintsOf = <A>() => Effect.runSync(PubSub.sliding<A>(1024));

/** A memory without chats. The chatbots are registered in it from the start, without keys. */
export const makeMemory = (chatbots: ReadonlyArray<Chatbot> = []): Memory => {
  const registered = new Map<number, RegisteredChatbot>();
  for (const chatbot of chatbots) {
    registered.set(chatbot.id, { chatbot, keys: new Map(), tenant: emptyTenant() });
  }
  const last = { chatbot: Math.max(0, ...registered.keys()), chat: 0, entry: 0 };
  const next = (kind: Kind) => ++last[kind];
  return {
    registered,
    audit: [],
    hints: { freed: hintsOf(), changed: hintsOf() },
    next,
    moveTo: (kind, id) => {
      last[kind] = Math.max(last[kind], id);
    },
    tenant: (chatbot) => registered.get(chatbot)?.tenant ?? emptyTenant(),
    // Times are never earlier than the row's before, so that their order is that of ids.
    addChat: (tenant, { name, userRef }, now) => {
      tenant.lastTime = Math.max(now, tenant.lastTime);
      const chat: StoredChat = {
        id: next("chat"),
        name,
        userRef,
        createTime: new Date(tenant.lastTime),
        folded: name === null ? null : fold(name),
        entries: [],
        ...withoutTurn,
      };
      tenant.chats.push(chat);
      tenant.byId.set(chat.id, chat);
      return chat;
    },
    addEntry: (chat, entry, now) => {
      const before = chat.entries.at(-1) ?? chat;
      const stored: StoredEntry = {
        ...entry,
        id: next("entry"),
        chatId: chat.id,
        createTime: new Date(Math.max(now, before.createTime.getTime())),
      };
      chat.entries.push(stored);
      return stored;
    },
  };
};

/** Runs `f` at the present time; what `f` does before its first effect, nothing interleaves with. */
export const atPresent = <A, E = never>(
  f: (now: number) => Effect.Effect<A, E>,
): Effect.Effect<A, E> => Effect.flatMap(Clock.currentTimeMillis, f);
