/**
 * Erases chats whole, a batch at a time.
 */
import { StorageUnavailable, type ChatArchive, type Erasable } from "@parley/core";
import { Effect, Schedule } from "effect";
import type { Clients } from "./Clients.ts";
import { compactErased } from "./Compaction.ts";
import { addGaps } from "./chats/ChatPositions.ts";
import { array, texts, time } from "./Parameters.ts";
import { forgetAsks } from "./RequestKeys.ts";
import { againAfterClash, isLockTimeout, withoutDeadline } from "./Storage.ts";

/** Chats that an erasure looks at and erases at a time; fewer if they have more than so many entries. */
const batch = 1_000;
const batchEntries = 100_000;

export const makeErasures = (
  clients: Clients,
  /** How often chats are tried that others hold: each try waits for a second, and the next follows a second later. */
  { tries = 15 } = {},
): Pick<ChatArchive["Service"], "erase" | "compact"> => {
  const { patient } = clients;
  /** The next chats that may have to be erased; they are looked for without a lock. */
  const find = Effect.fnUntraced(function* (
    chatbot: number,
    which: Exclude<Erasable, { readonly _tag: "Chat" }>,
    after: bigint,
    last: bigint,
  ) {
    const [found] = yield* patient.query<Found>(
      chatbot,
      which._tag === "UserRef" ? findUser : findIdle,
      [chatbot, after, batch, which._tag === "UserRef" ? which.userRef : time(which.limit), last],
    );
    return found!;
  });

  /** The last position that was given by now: who goes on creating does not keep an erasure from its end. */
  const lastPosition = (chatbot: number) =>
    Effect.map(
      patient.query<{ readonly positions: bigint }>(chatbot, positionsOf, [chatbot]),
      ([counter]) => counter?.positions ?? 0n,
    );

  /**
   * Erases those that are still to be erased. Only a statement that comes after the locks sees what was
   * appended while they were waited for. Creations wait for the last statement alone. Who holds one of them for long
   * must not make the asks of all others wait.
   */
  const eraseSome = (chatbot: number, ids: ReadonlyArray<bigint>, limit: Date | null) =>
    patient
      .transaction(
        chatbot,
        Effect.gen(function* () {
          yield* patient.query(chatbot, "set local lock_timeout = '1s'");
          const doomed = yield* patient.query<Doomed>(chatbot, lockChats, [
            chatbot,
            array(ids, "int8", (id) => id),
            time(limit),
          ]);
          const turns = doomed.flatMap(({ turn }) => turn ?? []);
          if (turns.length > 0) {
            yield* patient.query(chatbot, forgetAsks, [chatbot, texts(turns)]);
          }
          if (doomed.length > 0) {
            const chats = array(doomed, "int8", ({ id }) => id);
            yield* patient.query(chatbot, lockRequests, [chatbot, chats]);
            yield* patient.query(chatbot, eraseChats, [chatbot, chats]);
            yield* patient.query(chatbot, countErased, [
              chatbot,
              array(doomed, "int8", ({ position }) => position),
            ]);
          }
          return doomed.length;
        }),
      )
      .pipe(
        againAfterClash,
        Effect.retry({
          while: isLockTimeout,
          times: tries - 1,
          schedule: Schedule.spaced("1 second"),
        }),
        Effect.catchIf(isLockTimeout, () => Effect.fail(new StorageUnavailable({ cause: held }))),
      );

  return {
    erase: (chatbot, which) =>
      Effect.gen(function* () {
        const limit = which._tag === "IdleSince" ? which.limit : null;
        const erase = (ids: ReadonlyArray<bigint>) => eraseSome(chatbot, ids, limit);
        if (which._tag === "Chat") return yield* erase([BigInt(which.id)]);
        const last = yield* lastPosition(chatbot);
        let total = 0;
        let after: bigint | null = 0n;
        while (after !== null) {
          const { ids, reached }: Found = yield* find(chatbot, which, after, last);
          if (ids !== null) total += yield* erase(ids);
          after = reached;
        }
        return total;
      }).pipe(withoutDeadline),

    compact: (pace) => withoutDeadline(compactErased(clients, pace)),
  };
};

const held = new Error(
  "another transaction holds rows of chats that are to be erased, or their tables",
);

/** A chat to erase; its turn is of an ask under way, or of one that was never ended. */
type Doomed = { readonly id: bigint; readonly position: bigint; readonly turn: string | null };

/** Chats that were looked at: those that may have to be erased, and how far it went if there may be more. */
interface Found {
  readonly ids: ReadonlyArray<bigint> | null;
  readonly reached: bigint | null;
}

const positionsOf = "select positions from chat_counter where chatbot_id = $1";

/** The next chats, until they have so many entries. */
const next = (filter: string) => `(
  select * from (
    select *, sum(entries) over (order by position) - entries as entries_before from (
      select id, position, create_time, last_entry_time, entries from chat
      where chatbot_id = $1 and position > $2::int8 and position <= $5::int8 ${filter} order by position limit $3::int8
    ) nearest
  ) counted where entries_before < ${batchEntries}
) looked`;

const findUser = `
select array_agg(id order by position) as ids, max(position) as reached from ${next("and user_ref = $4")}`;

// Times of creation follow positions: after the first chat that is too young there is none to erase.
const findIdle = `
select array_agg(id order by position) filter (where greatest(last_entry_time, create_time) < $4::timestamptz) as ids,
  case when max(create_time) < $4::timestamptz then max(position) end as reached
from ${next("")}`;

// In the order of the ids, which is that of positions. Each is looked up by itself (`offset 0`), whatever the planner
// thinks of the chatbot: it knows that of the average one.
const lockChats = `
select chat.* from unnest($2::int8[]) wanted cross join lateral (
  select id, position, turn from chat
  where chatbot_id = $1 and id = wanted
    and ($3::timestamptz is null or greatest(last_entry_time, create_time) < $3::timestamptz)
  offset 0 for update
) chat`;

// In the order in which creations take them, too.
const lockRequests = `
select from unnest(array(
  select key from unnest($2::int8[]) wanted cross join lateral (
    select key from idempotency_key where chatbot_id = $1 and chat_id = wanted offset 0
  ) theirs order by key
)) found(name) cross join lateral (
  select from idempotency_key where chatbot_id = $1 and key = name offset 0 for update
) locked`;

const eraseChats = `
with entries as (
  delete from entry where chatbot_id = $1 and chat_id = any ($2::int8[])
), requests as (
  delete from idempotency_key where chatbot_id = $1 and chat_id = any ($2::int8[])
)
delete from chat where chatbot_id = $1 and id = any ($2::int8[])`;

// The chat_counter's row is locked last, because creations wait for it, and before the holes, because other
// erasures add some, too.
const countErased = `
with counted as (
  update chat_counter set chats = chats - cardinality($2::int8[])
  where chatbot_id = $1 returning chatbot_id
), gone as (
  select chatbot_id, position from counted cross join unnest($2::int8[]) position
)${addGaps}`;
