/**
 * What is left of erased chats when their rows are deleted: dead rows in the pages, texts in statistics, and in the
 * indexes of texts those that bound a page or are sought by parts, which VACUUM leaves where they are.
 */
import type { CompactionPace } from "@parley/core";
import { Boolean, Duration, Effect, Schedule } from "effect";
import { analyze, analyzeEmptied } from "./Analyze.ts";
import type { Clients } from "./Clients.ts";
import {
  dropUnfinished,
  rebuildAtOnce,
  rebuildInUse,
  unfinishedOf,
  type TextIndex,
} from "./IndexRebuild.ts";
import { texts } from "./Parameters.ts";
import type { Session } from "./Session.ts";
import { againAfterClash } from "./Storage.ts";

/** Where anything of a chat is. */
const erasedFrom = ["chat", "entry", "request"];

const textIndexes = ["chat_name", "chat_user_ref", "chat_folded_name", "request_pkey"];

/** Bytes of an index that is tried to be rebuilt at once: all who want the table wait for some 0.2 s then. */
const largestAtOnce = 8 * 2 ** 20;

/** Milliseconds that such a rebuilding may take. */
const longestAtOnce = 400;

/** As the role that migrates, which owns the tables if any known one does. */
export const compactErased = (
  { migrator }: Clients,
  pace: CompactionPace,
  { largest = largestAtOnce, longest = longestAtOnce, patience = 30 } = {},
) =>
  Effect.gen(function* () {
    const { broken, kept, owns, waiting } = yield* migrator({ lockTimeout: "0" }).pipe(
      Effect.flatMap((session) =>
        Effect.gen(function* () {
          const quiet = pace === "quick" || (yield* othersEnd(session, patience));
          return { waiting: !quiet, ...(yield* sweep(session, largest, longest)) };
        }),
      ),
      Effect.scoped,
    );
    if (pace === "quick") return true;
    const left =
      owns && !waiting && kept.length > 0
        ? yield* migrator({ lockTimeout: `${patience}s` }).pipe(
            Effect.flatMap((session) => rebuildAll(session, kept, patience)),
            Effect.scoped,
          )
        : [...kept.map(({ name }) => name), ...broken];
    if (waiting) {
      yield* Effect.logWarning(
        "What was erased stays until another erasure: a transaction that began before may still read it",
      );
    } else if (left.length > 0) {
      yield* Effect.logWarning(
        `Texts of what was erased may stay in ${left.join(", ")}: ${
          owns ? "others in the database are in the way" : "their owner can REINDEX them"
        }`,
      );
    }
    return !waiting && (left.length === 0 || !owns);
  });

/** Whether all transactions end, within that time, that can still read what was erased, or that use its tables. */
const othersEnd = Effect.fnUntraced(function* (session: Session, patience: number) {
  const others = yield* session.query<{ readonly name: string }>("operator", transactions, [
    texts(erasedFrom),
  ]);
  const names = texts(others.map(({ name }) => name));
  return yield* session.query<{ readonly over: boolean }>("operator", areOver, [names]).pipe(
    Effect.repeat({ until: ([found]) => found!.over, schedule: Schedule.spaced("50 millis") }),
    Effect.as(true),
    Effect.timeoutOrElse({
      duration: Duration.seconds(patience),
      orElse: () => Effect.succeed(false),
    }),
  );
});

/** What needs little time of others; gives the indexes that are to be rebuilt beside them, and those that broke off. */
const sweep = Effect.fnUntraced(function* (session: Session, largest: number, longest: number) {
  // Skipped without an error where the role may not.
  for (const table of erasedFrom) {
    yield* vacuum(session, table);
    yield* analyze(session, table);
  }
  for (const { name } of yield* session.query<Emptied>("operator", emptied)) {
    yield* analyzeEmptied(session, name);
    yield* vacuum(session, name);
  }
  const [role] = yield* session.query<Role>("operator", mayMaintain, [texts(erasedFrom)]);
  const { owns, reindexes, vacuums } = role!;
  if (!reindexes) {
    yield* Effect.logWarning(
      vacuums
        ? "Texts of what was erased may stay in indexes until the owner of the tables REINDEXes them: the server's role may not"
        : "What was erased stays in the tables and their indexes until their owner VACUUMs and REINDEXes them: the server's role may not",
    );
    return { owns, kept: [], broken: [] };
  }
  let broken = yield* unfinishedOf(session, erasedFrom);
  if (owns && broken.length > 0) {
    for (const table of erasedFrom) yield* Effect.ignore(dropUnfinished(session, table));
    broken = yield* unfinishedOf(session, erasedFrom);
  }
  const indexes = yield* session.query<TextIndex & { readonly small: boolean }>(
    "operator",
    withTexts,
    [texts(textIndexes), largest],
  );
  const kept = yield* Effect.filter(indexes, (index) =>
    index.small
      ? Effect.map(rebuildAtOnce(session, index, longest), Boolean.not)
      : Effect.succeed(true),
  );
  return { owns, kept, broken };
});

/** Gives the names of those that are left. */
const rebuildAll = Effect.fnUntraced(function* (
  session: Session,
  indexes: ReadonlyArray<TextIndex>,
  patience: number,
) {
  let left = indexes;
  // A pooler may have dropped the setting, without which nothing would end the waiting.
  const [granted] = yield* session.query<{ readonly lock_timeout: string }>(
    "operator",
    "show lock_timeout",
  );
  for (const index of granted!.lock_timeout === `${patience}s` ? indexes : []) {
    // What is in the way of one is in that of the next, too.
    if (!(yield* rebuildInUse(session, index))) break;
    left = left.slice(1);
  }
  return [...left.map(({ name }) => name), ...(yield* unfinishedOf(session, erasedFrom))];
});

const vacuum = (session: Session, table: string) =>
  againAfterClash(session.command(`vacuum (index_cleanup on) ${table}`));

interface Emptied {
  readonly name: "chat" | "entry";
}

interface Role {
  readonly vacuums: boolean;
  readonly reindexes: boolean;
  readonly owns: boolean;
}

const mayMaintain = `
select bool_and(owns) as owns, bool_and(reindexes) as reindexes, bool_and(reindexes or vacuums_all) as vacuums
from (
  select current_setting('server_version_num')::int4 as version, pg_has_role(datdba, 'usage') as vacuums_all
  from pg_database where datname = current_database()
) server cross join lateral (
  select pg_has_role(relowner, 'usage') as owns,
    case when version >= 170000 then has_table_privilege(oid, 'maintain') else pg_has_role(relowner, 'usage') end
      as reindexes
  from pg_class where oid = any ($1::text[]::regclass[])
) tables`;

// Of retry keys no statistics are kept.
const emptied = `
select relname as name from pg_class
where oid = any ('{chat,entry}'::text[]::regclass[]) and reltuples = 0`;

/** A B-tree of one page of texts has no bounds; the other keeps parts of texts in any case. */
const withTexts = `
select relname as name, indrelid::regclass::text as table,
  pg_relation_size(found.oid) <= $2::int8 as small
from pg_class found join pg_index on indexrelid = found.oid join pg_am on pg_am.oid = relam
where found.oid = any ($1::text[]::regclass[])
  and (amname = 'gin' or pg_relation_size(found.oid) > 2 * current_setting('block_size')::int8)`;

// VACUUM and REINDEX CONCURRENTLY wait for none that does the same.
const transactions = `
select virtualxid as name from pg_stat_activity other join pg_locks using (pid)
where datname = current_database() and pid <> pg_backend_pid() and locktype = 'virtualxid' and mode = 'ExclusiveLock'
  and (backend_xmin is not null or exists (
    select from pg_locks where pid = other.pid and granted and relation = any ($1::text[]::regclass[])))
  and pid not in (select pid from pg_stat_progress_vacuum union all select pid from pg_stat_progress_create_index)`;

const areOver = `
select not exists (
  select from pg_locks where virtualxid = any ($1::text[]) and mode = 'ExclusiveLock'
) as over`;
