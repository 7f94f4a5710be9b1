/**
 * What one chatbot should hold, over plain arrays and maps.
 */
import type { Chat } from "../Chat.ts";
import type { ArchiveRecord, UsageSum } from "../ChatArchive.ts";
import type { Entry, Usage } from "../Entry.ts";
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

/** What one chatbot should hold. */
export interface Tenant {
  readonly chatbot: number;
  /** In milliseconds, as far as the commands let it pass; one for all. */
  readonly time: { now: number };
  /** In order of creation. */
  chats: ReadonlyArray<Chat>;
  /** By chat. */
  entries: Map<number, Array<{ readonly entry: Entry; readonly usage: Usage | null }>>;
  /** By chat. */
  readonly held: Map<number, Held>;
  readonly requests: Map<string, Request>;
  /** All that were given, those that ended, too. */
  turns: Array<Turn>;
  /** The highest id that a chat was given, or was imported with. */
  newestId: number;
  /** All ids that entries ever had. */
  readonly entryIds: Set<number>;
}

export const makeTenant = (chatbot: number, time: { now: number }): Tenant => ({
  chatbot,
  time,
  chats: [],
  entries: new Map(),
  held: new Map(),
  requests: new Map(),
  turns: [],
  newestId: 0,
  entryIds: new Set(),
});

export const entriesOf = (tenant: Tenant, chat: number): ReadonlyArray<Entry> =>
  (tenant.entries.get(chat) ?? []).map(({ entry }) => entry);

/** When the chat was last used. */
export const usedAt = (tenant: Tenant, chat: Chat): Date =>
  entriesOf(tenant, chat.id).at(-1)?.createTime ?? chat.createTime;

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

export const isKnown = (tenant: Tenant, chat: number): boolean => tenant.entries.has(chat);

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

export const recordsOf = (tenant: Tenant): ReadonlyArray<ArchiveRecord> =>
  tenant.chats.flatMap((chat): Array<ArchiveRecord> => [
    { _tag: "Chat", chat },
    ...tenant.entries.get(chat.id)!.map((stored) => ({ _tag: "Entry" as const, ...stored })),
  ]);

export const sumsOf = (tenant: Tenant, since: Date): ReadonlyArray<UsageSum> => {
  const sums: Array<UsageSum> = [];
  for (const { entry, usage } of [...tenant.entries.values()].flat()) {
    if (usage === null || entry.createTime < since) continue;
    const { attempts, completionTokens, model, promptTokens, provider } = usage;
    const at = sums.findIndex((sum) => sum.provider === provider && sum.model === model);
    const before = sums[at];
    const sum = {
      provider,
      model,
      answers: (before?.answers ?? 0) + 1,
      attempts: (before?.attempts ?? 0) + attempts,
      promptTokens: (before?.promptTokens ?? 0) + promptTokens,
      completionTokens: (before?.completionTokens ?? 0) + completionTokens,
    };
    if (before === undefined) sums.push(sum);
    else sums[at] = sum;
  }
  return sums;
};
