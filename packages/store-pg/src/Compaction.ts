/**
 * What is left of erased chats when their rows are deleted: dead rows in the pages, texts in statistics, and in the
 * indexes of texts those that bound a page, which VACUUM leaves where they are.
 */
import { Effect, Predicate, Schedule } from "effect";
import { texts } from "./Parameters.ts";
import type { Session } from "./Session.ts";
import { againAfterClash, isLockTimeout, isStatementTimeout } from "./Storage.ts";

/** Where anything of a chat is. */
const erasedFrom = ["chat", "entry", "request"];

const textIndexes = ["chat_name", "chat_user_ref", "request_pkey"];

/** What is tried to be rebuilt, in bytes: a MB takes some 30 ms, for which all who want the table wait. */
const largest = 8 * 2 ** 20;

export const compactErased = (session: Session) =>
  Effect.gen(function* () {
    // Skipped without an error where the role may not.
    for (const table of erasedFrom) {
      yield* session.command(`vacuum (analyze, index_cleanup on) ${table}`);
    }
    const [role] = yield* session.query<Role>("operator", mayMaintain, [texts(erasedFrom)]);
    const { reindexes, vacuums, version } = role!;
    if (!reindexes) {
      return yield* Effect.logWarning(
        vacuums
          ? "Texts of what was erased may stay in indexes until the owner of the tables REINDEXes them: the server's role may not"
          : "What was erased stays in the tables and their indexes until their owner VACUUMs and REINDEXes them: the server's role may not",
      );
    }
    if (version >= 180_000) {
      yield* session.query("operator", clearStatistics, [texts(erasedFrom)]);
    }
    const kept: Array<string> = [];
    const values = [texts(textIndexes), largest];
    for (const { name, small } of yield* session.query<TextIndex>("operator", bounded, values)) {
      if (!small || !(yield* rebuilt(session, name))) kept.push(name);
    }
    if (kept.length > 0) {
      yield* Effect.logWarning(
        `Texts of what was erased may stay in ${kept.join(", ")} as bounds of pages: their owner can REINDEX them`,
      );
    }
  });

/** In a moment when nobody uses the index, and in no more than that. */
const rebuilt = (session: Session, index: string) =>
  session
    .transaction(
      "operator",
      Effect.gen(function* () {
        yield* session.query("operator", "set local lock_timeout = '200ms'");
        yield* session.query("operator", "set local statement_timeout = '400ms'");
        yield* session.query("operator", `reindex index ${index}`);
      }),
    )
    .pipe(
      againAfterClash,
      Effect.retry({ while: isLockTimeout, times: 2, schedule: Schedule.spaced("300 millis") }),
      Effect.as(true),
      Effect.catchIf(Predicate.or(isLockTimeout, isStatementTimeout), () => Effect.succeed(false)),
    );

interface Role {
  readonly version: number;
  readonly vacuums: boolean;
  readonly reindexes: boolean;
}

const mayMaintain = `
select version, bool_and(reindexes) as reindexes, bool_and(reindexes or vacuums_all) as vacuums
from (
  select current_setting('server_version_num')::int4 as version, pg_has_role(datdba, 'usage') as vacuums_all
  from pg_database where datname = current_database()
) server cross join lateral (
  select case when version >= 170000 then has_table_privilege(oid, 'maintain') else pg_has_role(relowner, 'usage') end
    as reindexes
  from pg_class where relnamespace = current_schema()::regnamespace and relname = any ($1::text[])
) tables group by version`;

// ANALYZE leaves those of an empty table as they were.
const clearStatistics = `
select pg_clear_attribute_stats(current_schema()::text, relname::text, attname::text, false)
from pg_class join pg_attribute on attrelid = pg_class.oid
where relnamespace = current_schema()::regnamespace and relname = any ($1::text[]) and reltuples = 0
  and attnum > 0 and not attisdropped`;

interface TextIndex {
  readonly name: string;
  readonly small: boolean;
}

/** Those of more than one page of texts: what is not divided has no bounds. */
const bounded = `
select relname as name, pg_relation_size(oid) <= $2::int8 as small
from pg_class where relnamespace = current_schema()::regnamespace and relname = any ($1::text[])
  and pg_relation_size(oid) > 2 * current_setting('block_size')::int8`;
