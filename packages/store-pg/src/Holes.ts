/**
 * Erasures leave holes among the positions of a chatbot's chats. So that the chat of any rank is still found
 * by a seek, positions are divided into spans of {@link parts} parts each, at {@link partSizes three levels},
 * and a span with holes keeps how many of its chats come before each part, and before its end.
 */

const parts = 256;

/** Positions of a part, at the level of all of a chatbot's positions first: there is one span of that level. */
export const partSizes = [512 * parts * parts, 512 * parts, 512] as const;

/** Goes from a level's span, by the rank among its chats, to the span of the next level and the rank there. */
const descend = (level: number): string => {
  const [from, size] = [`level_${level}`, partSizes[level]!];
  return `
left join lateral (
  select ${from}.first + (part - 1) * ${size}::int8 as first, ${from}.rank - chats_before[part] as rank
  from (
    select chats_before, width_bucket(${from}.rank - 1, chats_before) as part from position_gap
    where chatbot_id = $1 and part_size = ${size} and number = ${from}.first / ${size * parts}
    -- The planner would put the expressions into each other, and calculate them many times.
    offset 0
  ) found offset 0
) level_${level + 1} on true`;
};

/**
 * SQL for the position of the chat with the given rank among chatbot `$1`'s chats, from 1 for the
 * oldest; a rank that no chat has gives null or a position that none has. Reads one span of each level and
 * less than ${partSizes[2]} chats.
 */
export const positionOf = (rank: string): string => `
select case
  -- From where on there are no holes, positions are counted.
  when level_3.first is null then
    coalesce(level_2.first + level_2.rank, level_1.first + level_1.rank, level_0.rank)
  else (
    select position from chat
    where chatbot_id = $1 and position > level_3.first
    order by position offset level_3.rank - 1 limit 1
  )
end
from (select 0::int8 as first, ${rank} as rank) level_0${partSizes.map((_, level) => descend(level)).join("")}`;

/** SQL that goes on after a CTE `gone`, which gives chatbot and position of what was erased: adds the holes. */
export const addHoles = `
insert into position_gap as held (chatbot_id, part_size, number, chats_before)
select chatbot_id, part_size, number, array(
  select n * part_size - width_bucket(n * part_size - 1, places) from generate_series(0, ${parts}) n order by n
)
from (
  select chatbot_id, part_size, (position - 1) / (part_size * ${parts}) as number,
    array_agg((position - 1) % (part_size * ${parts}) order by position) as places
  from gone cross join unnest('{${partSizes.join()}}'::int8[]) part_size
  group by 1, 2, 3
) gaps
on conflict (chatbot_id, part_size, number) do update set chats_before = array(
  select before + added - (n - 1) * held.part_size
  from unnest(held.chats_before, excluded.chats_before) with ordinality both_of (before, added, n) order by n
)`;
