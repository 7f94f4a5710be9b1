/**
 * To skip chats in the order of a text, their index must be walked. So that no page is far from where a walk
 * begins, milestones are set: the chats at every so many places in that order. Chats that came later are counted
 * when a page is read, and new milestones are set before they are many; erasures take theirs off.
 */
import { Effect, FiberMap, Semaphore } from "effect";
import { array } from "./Parameters.ts";
import type { Session } from "./Session.ts";

/** Chats from one milestone to the next. */
export const spacing = 5_000;

/** The columns that chats are ordered by with milestones. */
const columns = ["name", "user_ref"] as const;
type TextColumn = (typeof columns)[number];

/** Later chats that a page may have to count. */
const mostLater = 1_000_000;

/**
 * SQL for the last milestone before so many of a chatbot's chats, in the order of a column and the snapshot of
 * its `tally`: its chat's position and text, its rank from 0, and how many chats have a text, as the others come
 * after them. No row when either end is nearer, or nothing is known.
 */
export const milestoneBefore = (column: TextColumn, first: string): string => `
select held.position, chat.text, held.rank + later.before as rank, held.texts + later.texts as texts
from (
  select positions[passed] as position, ranks[passed] as rank, texts, reached
  from milestone
  cross join lateral (select tally.positions - reached as later) since
  cross join lateral (select width_bucket(${first} - later, ranks) as passed) walked
  where chatbot_id = tally.chatbot_id and column_name = '${column}' and milestone.erasures = tally.erasures
    and later < ${mostLater} and least(${first}, tally.chats - ${first}) > spacing + 2 * later
  -- Where row security binds, only what was calculated before is looked up in an index.
  offset 0
) held cross join lateral (
  select ${column} as text from chat
  where chatbot_id = tally.chatbot_id and position = held.position limit 1
) chat cross join lateral (
  select count(${column}) as texts, count(*) filter (
    where case when chat.text is null then ${column} is not null else ${column} < chat.text end
  ) as before
  from chat later
  where chatbot_id = tally.chatbot_id and position > held.reached and position <= tally.positions
    -- Always so, but in no index of texts, in which the planner would look at all chats.
    and entries >= 0
) later`;

/**
 * SQL for whether it is time to set milestones, so many chats apart: since the last that are true, or since the beginning,
 * twenty times so many chats of the `tally` were made, in large chatbots a twentieth of those before.
 */
const isTime = (reached: string, apart: number | "$2::int8"): string =>
  `tally.positions - ${reached} >= greatest(20 * ${apart}, least(${reached} / 20, ${mostLater / 2}))`;

/** SQL for one row that tells whether a chatbot's milestones are `due`, of the snapshot of its `tally`. */
export const milestonesDue = (column: TextColumn): string => `
select ${isTime("coalesce(max(reached), 0)", spacing)} as due from milestone
where chatbot_id = tally.chatbot_id and column_name = '${column}' and milestone.erasures = tally.erasures`;

/** Sets chatbot `$1`'s milestones in the order of a column, so many (`$2`) chats apart, when it is time. */
export const setMilestonesBy = (column: TextColumn): string => `
insert into milestone (chatbot_id, column_name, spacing, reached, erasures, texts, positions, ranks)
select $1, '${column}', $2::int8, due.positions, due.erasures,
  due.chats - (select count(*) from chat where chatbot_id = due.chatbot_id and ${column} is null),
  every.positions, every.ranks
from (
  select tally.* from tally left join milestone held
    on held.chatbot_id = $1 and column_name = '${column}' and held.erasures = tally.erasures
  cross join lateral (select coalesce(held.reached, 0) as reached) known
  where tally.chatbot_id = $1 and ${isTime("known.reached", "$2::int8")}
  -- All chats are walked only when it is time.
  offset 0
) due cross join lateral (
  select coalesce(array_agg(position order by rank), '{}') as positions,
    coalesce(array_agg(rank order by rank), '{}') as ranks
  from (
    select position, row_number() over (order by ${column}, position) - 1 as rank
    from chat where chatbot_id = due.chatbot_id
  ) ranked
  where rank % $2::int8 = 0
) every
on conflict (chatbot_id, column_name) do update set spacing = excluded.spacing, reached = excluded.reached,
  erasures = excluded.erasures, texts = excluded.texts, positions = excluded.positions, ranks = excluded.ranks
where (excluded.erasures, excluded.reached) > (milestone.erasures, milestone.reached)`;

/** Takes chats off that were erased, in the transaction that erases them: their positions and texts. */
const takeOff = (column: TextColumn): string => `
update milestone set erasures = erasures + $4::int8, (texts, positions, ranks) = (
  select milestone.texts - count(text) filter (where n is null),
    coalesce(array_agg(position order by n) filter (where n is not null), '{}'),
    coalesce(array_agg(rank - gone order by n) filter (where n is not null), '{}')
  from (
    select *, count(*) filter (where n is null) over (order by text, position) as gone
    from (
      select n, mark.position, rank, ${column} as text
      from unnest(milestone.positions, milestone.ranks) with ordinality mark (position, rank, n)
      cross join lateral (
        select ${column} from chat where chatbot_id = $1 and position = mark.position offset 0
      ) chat
      union all
      select null, position, null, text collate "C" from unnest($2::int8[], $3::text[]) gone (position, text)
      where position <= milestone.reached
    ) merged
  ) counted
)
where chatbot_id = $1 and column_name = '${column}'`;

/** Chats that were erased. */
export type Erased = { readonly position: bigint } & Readonly<Record<TextColumn, string | null>>;

/**
 * The milestones without those chats. It comes in the transaction that erases, and after the chats are gone; the tally's
 * `erasures` grow by the same number.
 */
export const takeOffErased = (
  session: Session,
  chatbot: number,
  erased: ReadonlyArray<Erased>,
  growth: number,
) =>
  Effect.forEach(
    columns,
    (column) =>
      session.query(chatbot, takeOff(column), [
        chatbot,
        array(erased, "int8", ({ position }) => position),
        array(erased, "text", (chat) => chat[column]),
        growth,
      ]),
    { discard: true },
  );

/** Sets a chatbot's milestones when it is time; if it cannot be done, lists are right without them. */
export const setMilestones = (session: Session, chatbot: number): Effect.Effect<void> =>
  Effect.forEach(
    columns,
    (column) =>
      Effect.ignore(session.query(chatbot, setMilestonesBy(column), [chatbot, spacing]), {
        log: "Warn",
        message: "Milestones could not be set",
      }),
    { discard: true },
  );

/** Sets a chatbot's milestones beside all else, when it is time. */
export type SetMilestonesSoon = (chatbot: number) => Effect.Effect<unknown>;

/** After chats were made, when it may be time. It comes when they are committed, or they would not be counted. */
export const afterChats = (
  setMilestonesSoon: SetMilestonesSoon,
  chatbot: number,
  made: ReadonlyArray<{ readonly position: number }>,
): Effect.Effect<unknown> =>
  made.some(({ position }) => position % spacing === 0) ? setMilestonesSoon(chatbot) : Effect.void;

/** One chatbot comes after the other. */
export const makeMilestones = (session: Session) =>
  Effect.map(FiberMap.make<number>(), (running) => {
    const room = Semaphore.makeUnsafe(1);
    return (chatbot: number) =>
      FiberMap.run(running, chatbot, room.withPermits(1)(setMilestones(session, chatbot)), {
        onlyIfMissing: true,
      });
  });
