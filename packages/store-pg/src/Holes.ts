/**
 * Erasures leave holes among the positions of a chatbot's chats. Their number is kept per block of
 * positions and per group of blocks, so that the chat of any rank is still found by a seek.
 */

/** Positions of a block. */
const blockSize = 4096;

/** Blocks of a group. */
const groupSize = 64;

/**
 * SQL for the position of the chat with the given rank among chatbot `$1`'s chats, from 1 for the
 * oldest; a rank that no chat has gives a position that none has. `positions` is the highest given. Reads one
 * row per group with holes, one per block of one group, and at most half a block of chats.
 */
export const positionOf = (rank: string, positions: string): string => `
select case
  when block is null then ${rank} + coalesce(before_group, 0)
  when ${rank} > chats_before + size then ${rank} + before + missing
  when (${rank} - chats_before) * 2 <= size then (
    select position from chat
    where chatbot_id = $1 and position > block * ${blockSize}
    order by position offset ${rank} - chats_before - 1 limit 1
  )
  else (
    select position from chat
    where chatbot_id = $1 and position <= (block + 1) * ${blockSize}
    order by position desc offset chats_before + size - (${rank}) limit 1
  )
end
from (values (1)) one left join lateral (
  select * from (
    select block_group, (sum(missing) over (order by block_group))::int8 - missing as before_group
    from hole_group where chatbot_id = $1
  ) summed
  where block_group * ${groupSize * blockSize} - before_group < ${rank}
  order by block_group desc limit 1
) groups on true left join lateral (
  select *, block * ${blockSize} - before as chats_before,
    least(${positions} - block * ${blockSize}, ${blockSize}) - missing as size
  from (
    select block, missing, before_group + (sum(missing) over (order by block))::int8 - missing as before
    from hole
    where chatbot_id = $1 and block between groups.block_group * ${groupSize}
      and groups.block_group * ${groupSize} + ${groupSize - 1}
  ) summed
) blocks on chats_before < ${rank}
order by block desc nulls last limit 1`;

/** SQL that goes on after a CTE `gone`, which gives chatbot and position of what was erased: adds the holes. */
export const addHoles = `, counted_groups as (
  insert into hole_group as g (chatbot_id, block_group, missing)
  select chatbot_id, (position - 1) / ${groupSize * blockSize}, count(*) from gone group by 1, 2
  on conflict (chatbot_id, block_group) do update set missing = g.missing + excluded.missing
)
insert into hole as h (chatbot_id, block_group, block, missing)
select chatbot_id, (position - 1) / ${groupSize * blockSize}, (position - 1) / ${blockSize}, count(*)
from gone group by 1, 2, 3
on conflict (chatbot_id, block) do update set missing = h.missing + excluded.missing`;
