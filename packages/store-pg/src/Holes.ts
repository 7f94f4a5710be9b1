/**
 * Erasures leave holes among the positions of a chatbot's chats. Their number per block of positions is
 * kept, so that the chat of any rank is still found by a seek.
 */

/** Positions of a block. */
export const blockSize = 4096;

/**
 * SQL for the position of the chat with the given rank among chatbot `$1`'s chats, from 1 for the
 * oldest; a rank that no chat has gives a position that none has. Reads one row per block with holes
 * and at most one block of chats.
 */
export const positionOf = (rank: string): string => `
select case
  when before is null then ${rank}
  when ${rank} > block * ${blockSize} - before + ${blockSize} - missing then ${rank} + before + missing
  else (
    select position from chat
    where chatbot_id = $1 and position > block * ${blockSize}
    order by position offset ${rank} - (block * ${blockSize} - before) - 1 limit 1
  )
end
from (values (1)) one left join (
  select block, missing, (sum(missing) over (order by block))::int8 - missing as before
  from hole where chatbot_id = $1
) holes on block * ${blockSize} - before < ${rank}
order by block desc nulls last limit 1`;

/** SQL that adds the holes of the erased positions in `gone`, each of a chatbot. */
export const addHoles = `
insert into hole (chatbot_id, block, missing)
select chatbot_id, (position - 1) / ${blockSize}, count(*) from gone group by 1, 2
on conflict (chatbot_id, block) do update set missing = hole.missing + excluded.missing`;
