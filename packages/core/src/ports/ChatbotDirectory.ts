/**
 * Port: from an API key's id to the chatbot that it opens. All that an embedder with keys of its own
 * must write.
 */
import { Context, type Effect, type Stream } from "effect";
import type { Scope } from "../model/ApiKey.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import type { StorageUnavailable } from "../model/Errors.ts";

/** A live or expired, but not revoked, key and what it opens. */
export interface Opened {
  /** SHA-256 of the whole key's text. */
  readonly hash: Uint8Array;
  readonly scopes: ReadonlyArray<Scope>;
  readonly expiresAt: Date | null;
  readonly chatbot: Chatbot;
}

export class ChatbotDirectory extends Context.Service<
  ChatbotDirectory,
  {
    /** What the key with this id opens at present, whoever changed it; `null` when it is unknown or revoked. */
    readonly open: (keyId: string) => Effect.Effect<Opened | null, StorageUnavailable>;
    /** Notes that keys were used just now; asked at most once a minute for each. */
    readonly used: (keyIds: ReadonlyArray<string>) => Effect.Effect<void, StorageUnavailable>;
    /** Hints that keys or settings of a chatbot changed (`null`: any of them); may miss some. */
    readonly changed: Stream.Stream<number | null>;
  }
>()("@parley/core/ChatbotDirectory") {}
