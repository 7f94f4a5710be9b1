/**
 * The tokens that each API key's asks cost: one row per key and UTC day, dated by the database's clock.
 */
const day = "(clock_timestamp() at time zone 'utc')::date";

/**
 * Returns CTEs that add the tokens from rows with `key_id` and `spent_tokens`, and delete the keys' earlier days. They
 * update each key once, in key order, so that concurrent statements do not deadlock.
 */
export const addSpending = (rows: string) => `spending as (
  insert into key_spending as s (chatbot_id, key_id, day, tokens)
  select $1, key_id, ${day}, sum(spent_tokens)::int8 from ${rows} group by key_id order by key_id
  on conflict (chatbot_id, key_id, day) do update set tokens = s.tokens + excluded.tokens returning key_id
), past_spending as (
  delete from key_spending where chatbot_id = $1 and key_id = any (array(select key_id from spending)) and day < ${day}
)`;

export const readSpending = `
select coalesce((select tokens from key_spending where chatbot_id = $1 and key_id = $2 and day = ${day}), 0)::float8 as tokens,
  1000 * extract(epoch from ${day} + 1 - clock_timestamp() at time zone 'utc')::float8 as "endsInMillis"`;
