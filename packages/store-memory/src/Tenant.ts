/**
 * What the memory store keeps of one chatbot. Chats and entries sit in order of creation, which is
 * the order of their ids.
 */
import { retryKeyLifetime, type Chat, type Entry, type RetryKey, type Usage } from "@parley/core";

export interface StoredEntry extends Entry {
  readonly usage: Usage | null;
}

export interface StoredChat extends Chat {
  /** The name as search sees it. */
  readonly folded: string | null;
  readonly entries: Array<StoredEntry>;
  turn: Held | null;
  /** When a turn was last given back, in milliseconds since the epoch. */
  turnEnded: number;
  /** The instances that wait for a turn, the one that waited longest first. */
  waiting: ReadonlyArray<object>;
}

/** A chat that nobody has answered in. */
export const withoutTurn = { turn: null, turnEnded: -Infinity, waiting: [] };

/** Who answers at the moment, and until when, in milliseconds since the epoch. */
export interface Held {
  readonly turn: string;
  readonly until: number;
}

/** What became of a request with a retry key. */
export interface KnownRequest {
  readonly fingerprint: string;
  readonly madeAt: number;
  /** The turn that answers or answered it; `null` for a creation. */
  readonly turn: string | null;
  /** The turn that works on it; `null` once something was made. */
  readonly holder: Held | null;
  readonly chat: number | null;
  readonly entry: number | null;
}

export interface Tenant {
  readonly chats: Array<StoredChat>;
  readonly byId: Map<number, StoredChat>;
  /** Oldest first. */
  readonly requests: Map<string, KnownRequest>;
  /** When the newest chat was made, even if it was erased, in milliseconds since the epoch. */
  lastTime: number;
}

export const emptyTenant = (): Tenant => ({
  chats: [],
  byId: new Map(),
  requests: new Map(),
  lastTime: -Infinity,
});

export const isHeld = (held: Held | null, now: number): held is Held =>
  held !== null && held.until > now;

/**
 * The request that used `key` before; those past their lifetime are forgotten, and so is one that ended
 * without a trace.
 */
export const knownRequest = (
  { requests }: Tenant,
  key: string,
  now: number,
): KnownRequest | undefined => {
  const isOver = ({ madeAt }: KnownRequest) => now - madeAt >= retryKeyLifetime;
  for (const [old, request] of requests) {
    if (!isOver(request)) break;
    requests.delete(old);
  }
  const known = requests.get(key);
  // The clock may have gone back since an older one.
  if (known === undefined || isOver(known)) return undefined;
  const isAbandoned = known.chat === null && known.entry === null && !isHeld(known.holder, now);
  return isAbandoned ? undefined : known;
};

export const rememberRequest = (
  { requests }: Tenant,
  { fingerprint, key }: RetryKey,
  now: number,
  made: Pick<KnownRequest, "chat" | "entry" | "holder" | "turn">,
): void => {
  // Deleted first, so that the map stays ordered by age.
  requests.delete(key);
  requests.set(key, { fingerprint, madeAt: now, ...made });
};
