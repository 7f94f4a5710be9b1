/**
 * How long retry keys are remembered.
 */
import { retryKeyLifetime } from "@parley/core";

/** SQL for the time before which a key was made that is forgotten. */
export const tooOld = `clock_timestamp() - interval '${retryKeyLifetime} milliseconds'`;

/** SQL that deletes a few of chatbot `$1`'s keys that are too old; not that of `$2`, which is in use. */
export const forgetOldKeys = `
  delete from request where chatbot_id = $1 and key in (
    select key from request where chatbot_id = $1 and key <> $2 and made_at <= ${tooOld}
    order by made_at limit 10 for update skip locked
  )`;
