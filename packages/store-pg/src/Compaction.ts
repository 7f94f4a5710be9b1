/**
 * What is left of erased chats when their rows are deleted: dead rows in the pages, texts in statistics, and in the
 * indexes of texts those that bound a page or are sought by parts, which VACUUM leaves where they are.
 */
import type { CompactionPace } from "@parley/core";
import { Boolean, Effect } from "effect";
import type { SqlError } from "effect/sql";
import { analyze, analyzeEmptied } from "./Analyze.ts";
import type { Clients } from "./Clients.ts";
import {
  dropUnfinished,
  rebuildAtOnce,
  rebuildInUse,
  unfinishedOf,
  type TextIndex,
} from "./IndexRebuild.ts";
import { olderEnd } from "./OlderTransactions.ts";
import { texts } from "./Parameters.ts";
import { rewriteAll, rewriteSmall, type Rewritten } from "./Rewrite.ts";
import type { Session } from "./Session.ts";
import { isInTheWay } from "./Storage.ts";
import { isBounded } from "./Untouched.ts";
import { vacuum, vacuumThoroughly, whileUnpinned } from "./Vacuum.ts";

/** Where anything of a chat is. */
const erasedFrom = ["chat", "entry", "idempotency_key"];

/** And what was gathered of it, which is rows like any other. */
const gatheredIn = "pg_catalog.pg_statistic";

const textIndexes = ["chat_name", "chat_user_ref", "chat_folded_name", "idempotency_key_pkey"];

/**
 * Bytes of what is tried to be rebuilt at once, an index or a table with its indexes: all who want the table wait for some
 * 0.2 s then.
 */
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
    const session = yield* migrator({ lockTimeout: `${patience}s` });
    const watcher = yield* migrator({ lockTimeout: "0" });
    const hasty = yield* migrator({ lockTimeout: "200ms", statementTimeout: `${longest}ms` });
    const isOver = pace === "quick" || (yield* olderEnd(session, erasedFrom, patience));
    const [found] = yield* session.query<Role>("operator", mayMaintain, [texts(erasedFrom)]);
    const role = found!;
    const isSure = pace !== "quick" && isOver && role.vacuums;
    const compact = Effect.gen(function* () {
      const isGone = isSure
        ? yield* vacuumThoroughly(session, erasedFrom, patience)
        : yield* Effect.as(vacuum(session, erasedFrom), isOver);
      yield* gatherAnew(session);
      const isLast = isSure && isGone;
      const { busy, rewritten } = isLast
        ? yield* rewriteTables(session, hasty, { isFull: pace === "full", largest, patience })
        : untried;
      const swept = yield* sweep(session, role, rewritten, { largest, longest });
      if (pace === "quick") return yield* Effect.as(vacuum(session, [gatheredIn]), true);
      const isRebuilt = isOver && (yield* rebuildLeft(session, swept, patience));
      const isForgotten = yield* forget(session, hasty, isLast && role.isOverAll, {
        largest: pace === "full" ? unlimited : largest,
        patience,
      });
      yield* mayStay("Bytes", busy, inTheWay);
      if (!isGone) return yield* stays("a transaction that began before may still read it");
      const isWhole = pace !== "full" || (yield* leavesNothing(role, rewritten));
      return isRebuilt && isForgotten && busy.length === 0 && isWhole;
    });
    return yield* whileUnpinned(watcher, patience, compact);
  }).pipe(
    Effect.catchTag("Pinned", () => stays("others hold its tables")),
    Effect.catchIf(isInTheWay, () => stays("others hold its tables")),
    Effect.scoped,
  );

/** Who asks for this by name must know if the role may not. */
const leavesNothing = Effect.fnUntraced(function* (
  { isOverAll, vacuums }: Role,
  rewritten: ReadonlyArray<string>,
) {
  if (!vacuums) yield* mayStay("Bytes", erasedFrom, "their owner can VACUUM them");
  if (!isOverAll) yield* mayStay("Statistics", [gatheredIn], "the database's owner can VACUUM it");
  return isOverAll && rewritten.length === erasedFrom.length;
});

const stays = (reason: string) =>
  Effect.as(Effect.logWarning(`What was erased stays until another erasure: ${reason}`), false);

/** What is left beside the rows when all is done that needs little time of others. */
interface Swept {
  readonly owns: boolean;
  /** What is small enough to be rebuilt at once, but others use it. */
  readonly busy: ReadonlyArray<TextIndex>;
  readonly large: ReadonlyArray<TextIndex>;
  /** Rebuildings that broke off. */
  readonly broken: ReadonlyArray<string>;
}

/** Skipped without an error where the role may not. */
const gatherAnew = Effect.fnUntraced(function* (session: Session) {
  for (const table of erasedFrom) yield* analyze(session, table);
  for (const { name } of yield* session.query<Emptied>("operator", emptied)) {
    yield* analyzeEmptied(session, name);
    yield* vacuum(session, [name]);
  }
});

/** What was gathered before; tells whether another time would do no more. */
const forget = Effect.fnUntraced(function* (
  session: Session,
  hasty: Session,
  isLast: boolean,
  { largest, patience }: { readonly largest: number; readonly patience: number },
) {
  if (!isLast) return yield* Effect.as(vacuum(session, [gatheredIn]), true);
  if (!(yield* vacuumThoroughly(session, [gatheredIn], patience, { catalog: true }))) {
    yield* mayStay("Statistics", [gatheredIn], inTheWay);
    return false;
  }
  // Everybody needs them for everything, so that they are never held for long.
  const { busy } = yield* rewriteSmallTables(session, hasty, [gatheredIn], largest);
  yield* mayStay("Bytes", busy, inTheWay);
  return busy.length === 0;
});

const unlimited = Number.MAX_SAFE_INTEGER;

const untried: Rewritten = { rewritten: [], busy: [] };

const rewriteTables = Effect.fnUntraced(function* (
  session: Session,
  hasty: Session,
  {
    isFull,
    largest,
    patience,
  }: { readonly isFull: boolean; readonly largest: number; readonly patience: number },
) {
  if (!isFull) return yield* rewriteSmallTables(session, hasty, erasedFrom, largest);
  if (yield* isBounded(session, `${patience}s`)) return yield* rewriteAll(session, erasedFrom);
  yield* mayStay("Bytes", erasedFrom, unbounded);
  return untried;
});

/** Not where whoever wants one of them would wait behind this for as long as anybody uses it. */
const rewriteSmallTables = Effect.fnUntraced(function* (
  session: Session,
  hasty: Session,
  tables: ReadonlyArray<string>,
  largest: number,
) {
  const isHasty = yield* isBounded(hasty, "200ms");
  return isHasty ? yield* rewriteSmall(session, hasty, tables, largest) : untried;
});

const sweep = Effect.fnUntraced(function* (
  session: Session,
  { owns, reindexes, vacuums }: Role,
  /** Tables that need nothing more. */
  rewritten: ReadonlyArray<string>,
  { largest, longest }: { readonly largest: number; readonly longest: number },
): Effect.fn.Return<Swept, SqlError.SqlError> {
  const broken = yield* dropBroken(session, owns);
  const indexes = (yield* session.query<TextIndex & { readonly small: boolean }>(
    "operator",
    withTexts,
    [texts(textIndexes), largest],
  )).filter(({ table }) => !rewritten.includes(table));
  if (!reindexes) {
    if (indexes.length > 0) {
      yield* Effect.logWarning(
        vacuums
          ? "Texts of what was erased may stay in indexes until the owner of the tables REINDEXes them: the server's role may not"
          : "What was erased stays in the tables and their indexes until their owner VACUUMs and REINDEXes them: the server's role may not",
      );
    }
    return { owns, busy: [], large: [], broken };
  }
  const busy = yield* Effect.filter(
    indexes.filter(({ small }) => small),
    (index) => Effect.map(rebuildAtOnce(session, index, longest), Boolean.not),
  );
  const large = indexes.filter(({ small }) => !small);
  return { owns, busy, large, broken };
});

/** Gives those rebuildings that broke off and are left. */
const dropBroken = Effect.fnUntraced(function* (session: Session, owns: boolean) {
  const broken = yield* unfinishedOf(session, erasedFrom);
  if (!owns || broken.length === 0) return broken;
  for (const table of erasedFrom) yield* Effect.ignore(dropUnfinished(session, table));
  return yield* unfinishedOf(session, erasedFrom);
});

/** Rebuilds what is left beside those who use it, if the role may. Tells whether another time would do no more. */
const rebuildLeft = Effect.fnUntraced(function* (
  session: Session,
  { broken, busy, large, owns }: Swept,
  patience: number,
) {
  if (busy.length + large.length + broken.length === 0) return true;
  if (!owns || !(yield* isBounded(session, `${patience}s`))) {
    yield* mayStay("Texts", namesOf(large), owns ? unbounded : "their owner can REINDEX them");
    yield* mayStay("Texts", broken, "their owner can DROP them");
    yield* mayStay("Texts", namesOf(busy), inTheWay);
    return busy.length === 0;
  }
  let left: ReadonlyArray<TextIndex> = [...busy, ...large];
  for (const index of left) {
    // What is in the way of one is in that of the next, too.
    if (!(yield* rebuildInUse(session, index))) break;
    left = left.slice(1);
  }
  const names = [...namesOf(left), ...(yield* dropBroken(session, owns))];
  yield* mayStay("Texts", names, inTheWay);
  return names.length === 0;
});

const unbounded = "lock_timeout cannot be set, perhaps because of a pooler";

const inTheWay = "others in the database are in the way";

const namesOf = (indexes: ReadonlyArray<TextIndex>) => indexes.map(({ name }) => name);

const mayStay = (what: string, where: ReadonlyArray<string>, reason: string) =>
  where.length === 0
    ? Effect.void
    : Effect.logWarning(`${what} of what was erased may stay in ${where.join(", ")}: ${reason}`);

interface Emptied {
  readonly name: "chat" | "entry";
}

interface Role {
  /** Of the database, and so what PostgreSQL keeps of it, too. */
  readonly isOverAll: boolean;
  readonly vacuums: boolean;
  readonly reindexes: boolean;
  readonly owns: boolean;
}

const mayMaintain = `
select bool_and(owns) as owns, bool_and(reindexes) as reindexes, bool_and(reindexes or over_all) as vacuums,
  bool_and(over_all) as "isOverAll"
from (
  select current_setting('server_version_num')::int4 as version, pg_has_role(datdba, 'usage') as over_all
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
