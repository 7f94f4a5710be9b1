/**
 * Seeks the chat with a given rank, even though erasures leave gaps between positions. Positions are divided into
 * ranges of {@link parts} parts each, at {@link partSizes three levels}, the widest first. A range with gaps has a row
 * in `position_gap`, which holds the number of chats before each part, and in the whole range.
 */

const parts = 256;

/** The number of positions in a part, at each level. The first, widest level has a single range: all positions. */
export const partSizes = [512 * parts * parts, 512 * parts, 512] as const;

/**
 * Returns SQL that finds, given a range and a rank within it, the part that contains the rank: a range of the next
 * level. `level_n` is the range found after n levels. `before` is the number of positions before the range, and the
 * last element of `chats_before` is the number of chats in the whole range.
 */
const descend = (level: number): string => {
  const [from, size] = [`level_${level}`, partSizes[level]!];
  return `
left join lateral (
  select ${from}.before + (part - 1) * ${size}::int8 as before, ${from}.rank - chats_before[part] as rank
  from (
    select chats_before, width_bucket(${from}.rank - 1, chats_before) as part from position_gap
    where chatbot_id = $1 and part_size = ${size} and number = ${from}.before / ${size * parts}
    -- Without this fence the planner would inline the expressions, and they would be computed many times.
    offset 0
  ) range_row offset 0
) level_${level + 1} on true`;
};

/**
 * Returns SQL for the position of the chat with the given rank in chatbot `$1`; the oldest chat has rank 1. If no chat
 * has the rank, the position is null or belongs to no chat. Reads one range of each level, and at most 512 chats.
 */
export const positionOf = (rank: string): string => `
select case
  -- A range without a row has no gaps.
  when level_3.before is null then
    coalesce(level_2.before + level_2.rank, level_1.before + level_1.rank, level_0.rank)
  else (
    select position from chat
    where chatbot_id = $1 and position > level_3.before
    order by position offset level_3.rank - 1 limit 1
  )
end
from (select 0::int8 as before, ${rank} as rank) level_0${partSizes.map((_, level) => descend(level)).join("")}`;

/**
 * SQL that follows a CTE `gone` with the chatbots and positions of erased chats, and counts the gaps that they leave.
 * Ranges are locked in a fixed order, the largest first, because concurrent erasures may update the same ranges.
 */
export const addGaps = `
insert into position_gap as gap (chatbot_id, part_size, number, chats_before)
select chatbot_id, part_size, number, array(
  select n * part_size - width_bucket(n * part_size - 1, places) from generate_series(0, ${parts}) n order by n
)
from (
  select chatbot_id, part_size, (position - 1) / (part_size * ${parts}) as number,
    array_agg((position - 1) % (part_size * ${parts}) order by position) as places
  from gone cross join unnest('{${partSizes.join()}}'::int8[]) part_size
  group by 1, 2, 3
) gaps
order by chatbot_id, part_size desc, number
on conflict (chatbot_id, part_size, number) do update set chats_before = array(
  select before + added - (n - 1) * gap.part_size
  from unnest(gap.chats_before, excluded.chats_before) with ordinality both_of (before, added, n) order by n
)`;
