/**
 * Makes chats. Those of one chatbot wait for one another, at its tally: here, so that no crowd of one chatbot takes the
 * connections that all share. Those that arrive together are made together.
 */
import { Overloaded } from "@parley/core";
import { Effect } from "effect";
import type { Clients } from "./Clients.ts";
import { gather } from "./Gather.ts";
import { insertChats, type ChatToInsert, type InsertedChat } from "./InsertChats.ts";
import { afterChats, type SetMilestonesSoon } from "./Milestones.ts";
import { array, big } from "./Parameters.ts";
import { claimKeys, lockKeys, settleKeys } from "./RequestKeys.ts";
import type { ChatRow } from "./Rows.ts";
import { againAfterDeadlock, orBusy } from "./Storage.ts";

export interface ChatToMake extends ChatToInsert {
  readonly retryKey: KeyToTake | null;
}

/** With it a chat is made once: by who claims the key, or in the turn of an ask that did. */
interface KeyToTake {
  readonly key: string;
  readonly fingerprint: string;
  readonly turn: string | null;
}

interface Keyed extends ChatToMake {
  readonly retryKey: KeyToTake;
}

export interface Made {
  /** `null` if its key is another's. */
  readonly chat: InsertedChat | null;
  /** What is known of that key, read while it was locked: no erasure came between. */
  readonly known: KnownKey | undefined;
}

type KnownKey = { readonly fingerprint: string } & (ChatRow | { readonly id: null });

const isKeyed = (chat: ChatToMake): chat is Keyed => chat.retryKey !== null;

/** Of several with one key the first; in the order of the keys, so that nobody waits for one another. */
const firstOfKeys = (chats: ReadonlyArray<Keyed>): ReadonlyArray<Keyed> =>
  [...new Map(chats.toReversed().map((chat) => [chat.retryKey.key, chat])).values()].toSorted(
    (a, b) => (a.retryKey.key < b.retryKey.key ? -1 : 1),
  );

/** Makes a chat of a chatbot, and its first entry if it has one. */
export type MakeChat = Effect.Success<ReturnType<typeof makeCreations>>;

export const makeCreations = Effect.fnUntraced(function* (
  { writes }: Clients,
  setMilestonesSoon: SetMilestonesSoon,
) {
  /** Those of the chats whose keys are theirs from now on. */
  const take = Effect.fnUntraced(function* (
    chatbot: number,
    statement: string,
    chats: ReadonlyArray<Keyed>,
    value: (key: KeyToTake) => string | null,
  ) {
    if (chats.length === 0) return [];
    const first = firstOfKeys(chats);
    const rows = yield* writes.query<{ readonly key: string }>(chatbot, statement, [
      chatbot,
      array(first, "text", ({ retryKey }) => retryKey.key),
      array(first, "text", ({ retryKey }) => value(retryKey)),
    ]);
    const taken = new Set(rows.map(({ key }) => key));
    return first.filter(({ retryKey }) => taken.has(retryKey.key));
  });

  /** The rows of keys that are settled by now. */
  const knownOf = Effect.fnUntraced(function* (chatbot: number, chats: ReadonlyArray<Keyed>) {
    if (chats.length === 0) return new Map<string, KnownKey>();
    const keys = array(chats, "text", ({ retryKey }) => retryKey.key);
    const rows = yield* writes.query<KnownKey & { readonly key: string }>(chatbot, knownChats, [
      chatbot,
      keys,
    ]);
    return new Map(rows.map((row) => [row.key, row]));
  });

  const makeKeyed = Effect.fnUntraced(function* (
    chatbot: number,
    chats: ReadonlyArray<ChatToMake>,
  ) {
    const keyed = chats.filter(isKeyed);
    const claims = keyed.filter(({ retryKey }) => retryKey.turn === null);
    const asks = keyed.filter(({ retryKey }) => retryKey.turn !== null);
    const claimed = yield* take(chatbot, claimForCreation, claims, (key) => key.fingerprint);
    const locked = yield* take(chatbot, lockKeys, asks, (key) => key.turn);
    const ours: ReadonlyArray<Keyed> = [...claimed, ...locked];
    const wanted = chats.filter((chat) => !isKeyed(chat) || ours.includes(chat));
    const inserted = wanted.length === 0 ? [] : yield* insertChats(writes, chatbot, wanted);
    const made = new Map(wanted.map((chat, n) => [chat, inserted[n]!]));
    if (ours.length > 0) {
      yield* writes.query(chatbot, settleKeys, [
        chatbot,
        array(ours, "text", ({ retryKey }) => retryKey.key),
        array(ours, "int8", (chat) => big(made.get(chat)!.id)),
        array(ours, "int8", (chat) =>
          chat.retryKey.turn === null ? null : big(made.get(chat)!.entryId!),
        ),
      ]);
    }
    const known = yield* knownOf(
      chatbot,
      claims.filter((chat) => !made.has(chat)),
    );
    return chats.map((chat): Made => ({
      chat: made.get(chat) ?? null,
      known: isKeyed(chat) ? known.get(chat.retryKey.key) : undefined,
    }));
  });

  const makeAll = (chatbot: number, chats: ReadonlyArray<ChatToMake>) =>
    chats.some(isKeyed)
      ? againAfterDeadlock(writes.transaction(chatbot, makeKeyed(chatbot, chats)))
      : Effect.map(insertChats(writes, chatbot, chats), (inserted) =>
          inserted.map((chat): Made => ({ chat, known: undefined })),
        );

  return yield* gather(
    (chatbot, chats: ReadonlyArray<ChatToMake>) =>
      makeAll(chatbot, chats).pipe(
        // When they are committed.
        Effect.tap((all) =>
          afterChats(
            setMilestonesSoon,
            chatbot,
            all.flatMap(({ chat }) => chat ?? []),
          ),
        ),
        orBusy,
      ),
    { writers: 2, most: 200, waiting: 10_000, full: new Overloaded({ retryAfterSeconds: 2 }) },
  );
});

const claimForCreation = claimKeys("null", "null");

const knownChats = `
select r.key, r.fingerprint, c.id, c.name, c.user_ref, c.create_time
from unnest($2::text[]) wanted cross join lateral (
  select key, fingerprint, chat_id from request where chatbot_id = $1 and key = wanted offset 0
) r left join lateral (
  select id, name, user_ref, create_time from chat where chatbot_id = $1 and id = r.chat_id offset 0
) c on true`;
