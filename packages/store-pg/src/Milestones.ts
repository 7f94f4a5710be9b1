/**
 * To skip chats in the order of a text, their index must be walked. So that no page is far from where a walk
 * begins, milestones are set: which chat every so manyth one in that order is. What was written down stays true
 * until an erasure. Chats that came later are counted when a page is read, and new milestones are set before
 * they are many.
 */
import { Effect, FiberMap, Semaphore } from "effect";
import type { Session } from "./Session.ts";

/** Chats from one milestone to the next. */
export const spacing = 5_000;

/** The columns that chats are ordered by with milestones. */
const columns = ["name", "user_ref"] as const;
type TextColumn = (typeof columns)[number];

/** Later chats that a page may have to count. */
const mostLater = 1_000_000;

/**
 * SQL for the last milestone before so many of chatbot `$1`'s chats, in the order of a column and their tally's
 * snapshot: its chat's position and text, its rank from 0, and how many chats have a text, as the others come
 * after them. No row when either end is nearer, or nothing is known.
 */
export const milestoneBefore = (column: TextColumn, first: string): string => `
select held.position, chat.text, held.rank + later.before as rank, held.texts + later.texts as texts
from (
  select positions[passed + 1] as position, passed * spacing as rank, texts, reached
  from milestone
  cross join lateral (select tally.positions - reached as later) since
  cross join lateral (select (${first} - later) / spacing as passed) walked
  where chatbot_id = $1 and column_name = '${column}' and milestone.erasures = tally.erasures
    and later < ${mostLater} and least(${first}, tally.chats - ${first}) > spacing + 2 * later
  -- Where row security binds, only what was calculated before is looked up in an index.
  offset 0
) held cross join lateral (
  select ${column} as text from chat where chatbot_id = $1 and position = held.position
) chat cross join lateral (
  select count(text) as texts,
    count(*) filter (where case when chat.text is null then text is not null else text < chat.text end) as before
  from (
    select ${column} as text from chat where chatbot_id = $1 and position > held.reached
    -- Lets the planner read no other chats.
    order by position limit ${mostLater}
  ) newest
) later`;

/**
 * Sets chatbot `$1`'s milestones in the order of a column, so many (`$2`) chats apart, when there are none that
 * are true or a fiftieth more chats have come since.
 */
export const setMilestonesBy = (column: TextColumn): string => `
insert into milestone (chatbot_id, column_name, spacing, reached, erasures, texts, positions)
select $1, '${column}', $2::int8, tally.positions, tally.erasures,
  tally.chats - (select count(*) from chat where chatbot_id = $1 and ${column} is null),
  array(
    select position from (
      select position, row_number() over (order by ${column}, position) - 1 as rank
      from chat where chatbot_id = $1
    ) ranked
    where rank % $2::int8 = 0 order by rank
  )
from tally left join milestone held
  on held.chatbot_id = $1 and column_name = '${column}' and held.erasures = tally.erasures
where tally.chatbot_id = $1
  and tally.positions - coalesce(reached, 0) > greatest(2 * $2::int8, coalesce(reached, 0) / 50)
on conflict (chatbot_id, column_name) do update set spacing = excluded.spacing, reached = excluded.reached,
  erasures = excluded.erasures, texts = excluded.texts, positions = excluded.positions
where (excluded.erasures, excluded.reached) > (milestone.erasures, milestone.reached)`;

/** Sets a chatbot's milestones when it is time; if it cannot be done, lists are right without them. */
export const setMilestones = (session: Session, chatbot: number): Effect.Effect<void> =>
  Effect.forEach(
    columns,
    (column) => session.query(chatbot, setMilestonesBy(column), [chatbot, spacing]),
    { discard: true },
  ).pipe(Effect.ignore({ log: "Debug" }));

/** The same beside all else, for one chatbot after the other. */
export const makeMilestones = (session: Session) =>
  Effect.map(FiberMap.make<number>(), (running) => {
    const room = Semaphore.makeUnsafe(1);
    return (chatbot: number) =>
      FiberMap.run(running, chatbot, room.withPermits(1)(setMilestones(session, chatbot)), {
        onlyIfMissing: true,
      });
  });
