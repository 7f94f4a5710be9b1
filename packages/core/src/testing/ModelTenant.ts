/**
 * Who holds the chats and retry keys of one chatbot, and what its keys made.
 */
import type { Chat } from "../Chat.ts";
import type { Entry } from "../Entry.ts";
import { retryKeyLifetime } from "../RetryKey.ts";
import { turnLease, type Turn } from "../TurnStore.ts";

/** Who holds a chat or a key, and until when. */
interface Held {
  readonly turn: string;
  readonly until: number;
}

/** What is known of a retry key: what it made, or who works on it. */
type Request = { readonly fingerprint: string } & (
  | {
      readonly made: {
        readonly chat: Chat;
        readonly entry: Entry | null;
        readonly turn: string | null;
      };
      readonly until: number;
    }
  /** `since`: when the turn was taken. */
  | { readonly made: null; readonly held: Held; readonly since: number }
);

/** What one chatbot should hold besides what was written. */
export interface Tenant {
  readonly chatbot: number;
  /** In milliseconds, as far as the commands let it pass; one for all. */
  readonly time: { now: number };
  /** By chat. */
  readonly held: Map<number, Held>;
  readonly requests: Map<string, Request>;
  /** All that were given, those that ended, too. */
  turns: Array<Turn>;
}

export const makeTenant = (chatbot: number, time: { now: number }): Tenant => ({
  chatbot,
  time,
  held: new Map(),
  requests: new Map(),
  turns: [],
});

/** What a retry key is known for at present. */
export const requestOf = (tenant: Tenant, key: string): Request | undefined => {
  const known = tenant.requests.get(key);
  if (known === undefined) return undefined;
  return tenant.time.now < (known.made === null ? known.held.until : known.until)
    ? known
    : undefined;
};

/** The turn that a retry key is in, even if it ran out. */
export const holderOf = (tenant: Tenant, key: string): string | undefined => {
  const known = tenant.requests.get(key);
  return known?.made === null ? known.held.turn : undefined;
};

/** Whether a turn's chat and key are both still its own, if only because nobody took them. */
export const isOurs = (tenant: Tenant, { chat, id, retryKey }: Turn): boolean =>
  (chat === null || tenant.held.get(chat)?.turn === id) &&
  (retryKey === null || holderOf(tenant, retryKey.key) === id);

/** Holds the turn's chat and key for a lease. */
export const hold = (tenant: Tenant, { chat, id, retryKey }: Turn) => {
  const held = { turn: id, until: tenant.time.now + turnLease };
  if (chat !== null) tenant.held.set(chat, held);
  if (retryKey === null) return;
  const { fingerprint, key } = retryKey;
  const known = tenant.requests.get(key);
  const isRenewed = known?.made === null && known.held.turn === id;
  const since = isRenewed ? known.since : tenant.time.now;
  tenant.requests.set(key, { fingerprint, made: null, held, since });
};

/** A turn with neither chat nor key holds nothing that could end. */
export const forget = (tenant: Tenant, turn: Turn) => {
  if (turn.chat === null && turn.retryKey === null) {
    tenant.turns = tenant.turns.filter((other) => other !== turn);
  }
};

/** After a day the store may have forgotten the key of a turn, and the turn with it. */
export const forgetKeys = (tenant: Tenant) => {
  for (const [key, known] of tenant.requests) {
    if (known.made !== null || tenant.time.now - known.since < retryKeyLifetime) continue;
    tenant.requests.delete(key);
    tenant.turns = tenant.turns.filter(({ id }) => id !== known.held.turn);
  }
};
