/**
 * Who holds the chats and retry keys of one chatbot, and what its keys made.
 */
import type { Chat } from "../Chat.ts";
import type { Entry } from "../Entry.ts";
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
  | { readonly made: null; readonly held: Held }
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
  if (retryKey !== null) {
    tenant.requests.set(retryKey.key, { fingerprint: retryKey.fingerprint, made: null, held });
  }
};

/** A turn with neither chat nor key holds nothing that could end. */
export const forget = (tenant: Tenant, turn: Turn) => {
  if (turn.chat === null && turn.retryKey === null) {
    tenant.turns = tenant.turns.filter((other) => other !== turn);
  }
};

/** After so long nobody works on a key any more, and the store may have forgotten whose it was. */
export const forgetKeys = (tenant: Tenant) => {
  tenant.turns = tenant.turns.filter(({ retryKey }) => retryKey === null);
  for (const [key, { made }] of tenant.requests) if (made === null) tenant.requests.delete(key);
};
