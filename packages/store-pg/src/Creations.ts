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

/** Chats that are made at a time, and that wait at most. */
const [most, waiting] = [200, 10_000];

const isKeyed = (chat: ChatToMake): chat is Keyed => chat.retryKey !== null;

/** An ask's turn is its own, while many have a key. */
const nameOf = ({ key, turn }: Pick<KeyToTake, "key" | "turn">) => turn ?? key;

/** The first of each name, in the order of the keys: in which all take them, so that nobody waits for one another. */
const firstOf = (chats: ReadonlyArray<Keyed>): ReadonlyArray<Keyed> =>
  [...new Map(chats.toReversed().map((chat) => [nameOf(chat.retryKey), chat])).values()].toSorted(
    (a, b) => (a.retryKey.key < b.retryKey.key ? -1 : 1),
  );

const keysOf = (chats: ReadonlyArray<Keyed>) =>
  array(chats, "text", ({ retryKey }) => retryKey.key);

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
    const first = firstOf(chats);
    const rows = yield* writes.query<Pick<KeyToTake, "key" | "turn">>(chatbot, statement, [
      chatbot,
      keysOf(first),
      array(first, "text", ({ retryKey }) => value(retryKey)),
    ]);
    const taken = new Set(rows.map(nameOf));
    return first.filter(({ retryKey }) => taken.has(nameOf(retryKey)));
  });

  /** The rows of keys that are settled by now. */
  const knownOf = Effect.fnUntraced(function* (chatbot: number, chats: ReadonlyArray<Keyed>) {
    if (chats.length === 0) return new Map<string, KnownKey>();
    const rows = yield* writes.query<KnownKey & { readonly key: string }>(chatbot, knownChats, [
      chatbot,
      keysOf(chats),
    ]);
    return new Map(rows.map((row) => [row.key, row]));
  });

  const makeKeyed = Effect.fnUntraced(function* (chatbot: number, chats: ReadonlyArray<Keyed>) {
    const claims = chats.filter(({ retryKey }) => retryKey.turn === null);
    const asks = chats.filter(({ retryKey }) => retryKey.turn !== null);
    if (claims.length > 0 && asks.length > 0) {
      yield* writes.query(chatbot, lockAll, [chatbot, keysOf(firstOf(chats))]);
    }
    const claim = claims.length > 1 ? claimSome : claimOne;
    const claimed = yield* take(chatbot, claim, claims, ({ fingerprint }) => fingerprint);
    const locked = yield* take(chatbot, lockKeys, asks, ({ turn }) => turn);
    const ours: ReadonlyArray<Keyed> = [...claimed, ...locked];
    const wanted = chats.filter((chat) => ours.includes(chat));
    const inserted = wanted.length === 0 ? [] : yield* insertChats(writes, chatbot, wanted);
    const made = new Map(wanted.map((chat, n) => [chat, inserted[n]!]));
    if (ours.length > 0) {
      yield* writes.query(chatbot, settleKeys, [
        chatbot,
        keysOf(ours),
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
      known: known.get(chat.retryKey.key),
    }));
  });

  const committed = (chatbot: number, all: ReadonlyArray<Made>) =>
    afterChats(
      setMilestonesSoon,
      chatbot,
      all.flatMap(({ chat }) => chat ?? []),
    );

  const full = new Overloaded({ retryAfterSeconds: 2 });
  const make = yield* gather(
    (chatbot, chats: ReadonlyArray<ChatToMake>) =>
      insertChats(writes, chatbot, chats).pipe(
        Effect.map((inserted) => inserted.map((chat): Made => ({ chat, known: undefined }))),
        Effect.tap((all) => committed(chatbot, all)),
        orBusy,
      ),
    { writers: 2, most, waiting, full },
  );
  // By themselves: one whose key is locked for long is refused, and so are those that are made with it.
  const makeOnce = yield* gather(
    (chatbot, chats: ReadonlyArray<Keyed>) =>
      writes.transaction(chatbot, makeKeyed(chatbot, chats)).pipe(
        againAfterDeadlock,
        Effect.tap((all) => committed(chatbot, all)),
        orBusy,
      ),
    { writers: 1, most, waiting, full },
  );
  return (chatbot: number, chat: ChatToMake) =>
    isKeyed(chat) ? makeOnce(chatbot, chat) : make(chatbot, chat);
});

const claimOne = claimKeys("null", "null");
const claimSome = claimKeys("null", "null", 2 * most);

// Those that are there, in one order, before some are claimed and others taken.
const lockAll = `
select from unnest($2::text[]) wanted(name) cross join lateral (
  select from request where chatbot_id = $1 and key = name offset 0 for update
) r`;

const knownChats = `
select r.key, r.fingerprint, c.id, c.name, c.user_ref, c.create_time
from unnest($2::text[]) wanted cross join lateral (
  select key, fingerprint, chat_id from request where chatbot_id = $1 and key = wanted offset 0
) r left join lateral (
  select id, name, user_ref, create_time from chat where chatbot_id = $1 and id = r.chat_id offset 0
) c on true`;
