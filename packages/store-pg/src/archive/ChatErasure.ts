/**
 * Erases chats whole, a batch at a time. The rows go; the totals, the positions and the pages stay exact.
 */
import {
  ChatbotNotFound,
  erasureDetail,
  StorageUnavailable,
  type ChatArchive,
  type Erasable,
} from "@parley/core";
import { Effect, Schedule } from "effect";
import { addGaps } from "../chats/ChatPositions.ts";
import type { PgPools } from "../database/PgPools.ts";
import { array, texts, time } from "../Parameters.ts";
import { forgetAsks } from "../rows/IdempotencyKeys.ts";
import { againAfterClash, isLockTimeout, orUnavailable } from "../database/PgErrors.ts";

/** Chats that an erasure looks at and erases at a time; fewer if they have more than so many entries. */
const batch = 1_000;
const batchEntries = 100_000;

export const makeErasure = (
  { operations }: PgPools,
  /** How often a batch is tried whose chats another holds: each try waits for a second, and the next a second later. */
  { tries = 15 } = {},
): ChatArchive["Service"]["erase"] => {
  /** The next chats that may have to be erased; they are looked up without a lock. */
  const find = (
    chatbot: number,
    which: Exclude<Erasable, { readonly _tag: "Chat" }>,
    after: bigint,
    last: bigint,
  ) => {
    const [statement, limit] =
      which._tag === "UserRef"
        ? [findUser, which.userRef]
        : [findIdle, which._tag === "IdleSince" ? time(which.limit) : null];
    return Effect.map(
      operations.query<Found>(chatbot, statement, [chatbot, after, batch, limit, last]),
      ([found]) => found!,
    );
  };

  /**
   * Erases those that are still to be erased. Only a statement that comes after the locks sees what was appended while they
   * were waited for. Statements of turns pass over chats that are locked, and wait for keys and the counter, so these come
   * last.
   */
  const eraseSome = (chatbot: number, ids: ReadonlyArray<bigint>, limit: Date | null) =>
    operations
      .transaction(
        chatbot,
        Effect.gen(function* () {
          const doomed = yield* operations.query<Doomed>(chatbot, lockChats, [
            chatbot,
            array(ids, "int8", (id) => id),
            time(limit),
          ]);
          if (doomed.length === 0) return 0;
          const chats = array(doomed, "int8", ({ id }) => id);
          yield* operations.query(chatbot, eraseChats, [chatbot, chats]);
          const turns = doomed.flatMap(({ turn }) => turn ?? []);
          if (turns.length > 0) {
            yield* operations.query(chatbot, forgetAsks, [chatbot, texts(turns)]);
          }
          yield* operations.query(chatbot, eraseKeys, [chatbot, chats]);
          yield* operations.query(chatbot, countErased, [
            chatbot,
            array(doomed, "int8", ({ position }) => position),
          ]);
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

  return (chatbot, which, actor) =>
    Effect.suspend(() => {
      let erased = 0;
      const eraseAll = Effect.gen(function* () {
        const [counter] = yield* operations.query<{ readonly positions: bigint }>(
          chatbot,
          lastPosition,
          [chatbot],
        );
        if (counter === undefined) return yield* new ChatbotNotFound({ chatbot });
        const limit = which._tag === "IdleSince" ? which.limit : null;
        const erase = (ids: ReadonlyArray<bigint>) =>
          Effect.map(eraseSome(chatbot, ids, limit), (some) => {
            erased += some;
          });
        if (which._tag === "Chat") return yield* erase([BigInt(which.id)]);
        let after: bigint | null = 0n;
        while (after !== null) {
          // Chats that are created meanwhile do not keep it from its end.
          const found: Found = yield* find(chatbot, which, after, counter.positions);
          if (found.ids !== null) yield* erase(found.ids);
          after = found.reached;
        }
      });
      const audit = Effect.suspend(() =>
        erased === 0
          ? Effect.void
          : operations.query(chatbot, auditErasure, [chatbot, actor, erasureDetail(which, erased)]),
      );
      return eraseAll.pipe(
        // An erasure that fails midway has erased chats, too.
        Effect.onError(() => Effect.ignore(audit)),
        Effect.andThen(Effect.uninterruptible(audit)),
        Effect.map(() => erased),
        orUnavailable,
      );
    });
};

const held = new Error("another transaction holds chats that are to be erased");

/** A chat to erase. Its turn is that of an ask in flight, or of one whose process was killed. */
interface Doomed {
  readonly id: bigint;
  readonly position: bigint;
  readonly turn: string | null;
}

/** Chats that were looked at: those that may have to be erased, and how far it went if there may be more. */
interface Found {
  readonly ids: ReadonlyArray<bigint> | null;
  readonly reached: bigint | null;
}

const lastPosition = `
select coalesce(positions, 0) as positions from chatbot left join chat_counter on chatbot_id = chatbot.id
where chatbot.id = $1`;

const auditErasure =
  "insert into audit (chatbot_id, actor, action, detail) values ($1, $2, 'erase', $3)";

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
select array_agg(id order by position) filter (
    where $4::timestamptz is null or greatest(last_entry_time, create_time) < $4::timestamptz
  ) as ids,
  case when $4::timestamptz is null or max(create_time) < $4::timestamptz then max(position) end as reached
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

const eraseChats = `
with entries as (
  delete from entry where chatbot_id = $1 and chat_id = any ($2::int8[])
)
delete from chat where chatbot_id = $1 and id = any ($2::int8[])`;

const eraseKeys =
  "delete from idempotency_key where chatbot_id = $1 and chat_id = any ($2::int8[])";

// The counter's row is locked last, because creations wait for it, and before the gaps, because other erasures add some,
// too.
const countErased = `
with counted as (
  update chat_counter set chats = chats - cardinality($2::int8[]) where chatbot_id = $1 returning chatbot_id
), gone as (
  select chatbot_id, position from counted cross join unnest($2::int8[]) position
)${addGaps}`;
