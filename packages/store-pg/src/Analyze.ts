/**
 * Gathering what statements are planned by, some of which are texts.
 */
import { Effect } from "effect";
import type { Session } from "./Session.ts";
import { whileUntouched } from "./Untouched.ts";

/**
 * Waits for longer than it takes PostgreSQL to end an autovacuum that is in the way (`deadlock_timeout`), or this, and
 * too shortly to end a rebuilding.
 */
const untouched = <A, E, R>(session: Session, table: string, effect: Effect.Effect<A, E, R>) =>
  whileUntouched(session, table, effect, { millis: 1_500, tries: 17 });

export const analyze = (session: Session, table: string) =>
  untouched(session, table, session.query("operator", `analyze ${table}`));

/**
 * For a table in which ANALYZE found no rows, so that it left what it had found before. Here it finds one, which is gone
 * again before anybody else sees it.
 */
export const analyzeEmptied = (session: Session, table: keyof typeof nobodys) =>
  untouched(
    session,
    table,
    Effect.gen(function* () {
      // If row security binds the role.
      yield* session.query("operator", "select set_config('parley.chatbot', '0', true)");
      // It looks at so many pages that it finds the row among those of a table that was large.
      yield* session.query("operator", "set local default_statistics_target = 10000");
      yield* session.query("operator", nobodys[table]);
      yield* session.query("operator", `analyze ${table}`);
      yield* session.query("operator", `delete from ${table} where chatbot_id = 0`);
    }),
  );

/** Chatbots' numbers begin at 1. */
const nobodys = {
  chat: "insert into chat (chatbot_id, id, position, create_time, entries) values (0, 0, 0, 'epoch', 0)",
  entry: `insert into entry (chatbot_id, id, chat_id, position, question, answer, moderation, flagged, create_time)
    values (0, 0, 0, 0, '', '', '', false, 'epoch')`,
};
