/**
 * Port: finds the chatbot of an API key. An embedder with chatbots and keys of its own implements this port alone,
 * without a registry.
 */
import { Context, type Effect, type Stream } from "effect";
import type { KeyRecord } from "../model/ApiKey.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import type { StorageUnavailable } from "../model/Errors.ts";
import type { ChatbotId } from "../model/Ids.ts";

/** A key that is not revoked, though it may be expired, and its chatbot. */
export type Grant = Pick<KeyRecord, "hash" | "scopes"> &
  Partial<Omit<KeyRecord, "id" | "name" | "hash" | "scopes" | "expiresAt">> & {
    readonly chatbot: Chatbot;
    /**
     * How long the key is still valid by the store's clock, in milliseconds: 0 or less for an expired key, `null` for
     * one that never expires. Servers count it down on a monotonic clock.
     */
    readonly expiresInMillis: number | null;
    /** The current time by the store's clock, in milliseconds since 1970; absent: the server's clock is the store's. */
    readonly nowMillis?: number;
    /** The only user whose chats the key gives access to, for an embedder's own keys; `null` or absent: every user. */
    readonly visitor?: string | null;
  };

/** What a store's key grants at this time by the store's clock (in milliseconds since 1970). */
export const grantOf = (key: KeyRecord, chatbot: Chatbot, nowMillis: number): Grant => ({
  hash: key.hash,
  scopes: key.scopes,
  ratePerMinute: key.ratePerMinute,
  signingSecret: key.signingSecret,
  visitorRatePerMinute: key.visitorRatePerMinute,
  tokensPerDay: key.tokensPerDay,
  origins: key.origins,
  anonymous: key.anonymous,
  chatbot,
  expiresInMillis: key.expiresAt && key.expiresAt.getTime() - nowMillis,
  nowMillis,
});

/** Finds the chatbot of a key. */
export class ChatbotDirectory extends Context.Service<
  ChatbotDirectory,
  {
    /** The current state of the key with this id; `null` if the key is unknown or revoked. */
    readonly find: (keyId: string) => Effect.Effect<Grant | null, StorageUnavailable>;
    /** Records that these keys were used lately. Each process calls this at most once a minute, and when it stops. */
    readonly recordUse: (keyIds: ReadonlyArray<string>) => Effect.Effect<void, StorageUnavailable>;
    /** Notifications that a chatbot or its keys changed; `null`: any chatbot. Some may be missing. */
    readonly changes: Stream.Stream<ChatbotId | null>;
  }
>()("@parley/core/ChatbotDirectory") {}
