/**
 * Port: finds the chatbot that an API key belongs to. An embedder that manages its own chatbots and keys implements
 * only this port, without a registry.
 */
import { Context, type Effect } from "effect";
import { boundsOf, type KeyBounds, type KeyRecord, type RegisteredKey } from "../model/ApiKey.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import type { StorageUnavailable } from "../model/Errors.ts";

/** A key, which may have expired, and its chatbot. */
export type Grant = Pick<KeyRecord, "hash" | "scopes"> &
  Partial<KeyBounds> & {
    readonly chatbot: Chatbot;
    /**
     * The time until the key expires, on the store's clock, in milliseconds: 0 or less for an expired key, `null` for a
     * key that never expires. Servers count it down on a monotonic clock.
     */
    readonly expiresInMillis: number | null;
    /** The store's current time in milliseconds since the Unix epoch; if absent, the server's clock is used. */
    readonly nowMillis?: number;
    /** For an embedder's own keys: the only user whose chats the key can access; `null` or absent for every user. */
    readonly visitor?: string | null;
    /** Whether the key has been revoked, and so grants nothing; `find` may as well return `null` for such a key. */
    readonly isRevoked?: boolean;
  };

/** Returns what a stored key grants at `nowMillis`, the store's current time in milliseconds since the Unix epoch. */
export const grantOf = (
  key: KeyRecord & Partial<Pick<RegisteredKey, "revokedAt">>,
  chatbot: Chatbot,
  nowMillis: number,
): Grant => ({
  hash: key.hash,
  scopes: key.scopes,
  ...boundsOf(key),
  chatbot,
  expiresInMillis: key.expiresAt && key.expiresAt.getTime() - nowMillis,
  nowMillis,
  isRevoked: key.revokedAt != null,
});

/** Finds the chatbot that a key belongs to. */
export class ChatbotDirectory extends Context.Service<
  ChatbotDirectory,
  {
    /**
     * Returns the current state of the key with this id, or `null` if the key is unknown. Each process calls
     * this for a key in use about once a second, and so learns of changes to the key or its chatbot.
     */
    readonly find: (keyId: string) => Effect.Effect<Grant | null, StorageUnavailable>;
    /** Records that these keys were used recently. Each process calls this at most once a minute, and when it stops. */
    readonly recordUse: (keyIds: ReadonlyArray<string>) => Effect.Effect<void, StorageUnavailable>;
  }
>()("@parley/core/ChatbotDirectory") {}
