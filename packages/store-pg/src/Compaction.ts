/**
 * What is left of erased chats when their rows are deleted: dead rows in the pages, texts in statistics, and in the
 * indexes of texts those that bound a page or are sought by parts, which VACUUM leaves where they are.
 */
import type { CompactionPace } from "@parley/core";
import { Boolean, Effect } from "effect";
import type { Clients } from "./Clients.ts";
import { rebuildAtOnce, rebuildInUse, type TextIndex } from "./IndexRebuild.ts";
import { texts } from "./Parameters.ts";
import { againAfterClash } from "./Storage.ts";
import { analyze } from "./Untouched.ts";

/** Where anything of a chat is. */
const erasedFrom = ["chat", "entry", "request"];

const textIndexes = ["chat_name", "chat_user_ref", "chat_folded_name", "request_pkey"];

/** Bytes of an index that is tried to be rebuilt at once: all who want the table wait for some 0.2 s then. */
const largestAtOnce = 8 * 2 ** 20;

/** As the owner of the tables, if that is known. */
export const compactErased = ({ owner }: Clients, pace: CompactionPace, largest = largestAtOnce) =>
  Effect.gen(function* () {
    const session = yield* owner({ lockTimeout: "0" });
    // Skipped without an error where the role may not.
    for (const table of erasedFrom) {
      yield* againAfterClash(session.command(`vacuum (index_cleanup on) ${table}`));
      yield* analyze(session, table);
    }
    const [role] = yield* session.query<Role>("operator", mayMaintain, [texts(erasedFrom)]);
    const { owns, reindexes, vacuums, version } = role!;
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
    const indexes = yield* session.query<TextIndex & { readonly small: boolean }>(
      "operator",
      withTexts,
      [texts(textIndexes), largest],
    );
    const kept = yield* Effect.filter(indexes, (index) =>
      index.small ? Effect.map(rebuildAtOnce(session, index), Boolean.not) : Effect.succeed(true),
    );
    if (kept.length === 0 || pace === "quick") return;
    let left = kept;
    if (owns) {
      const rebuilding = yield* owner({ lockTimeout: "30s" });
      // What keeps one waiting does the next, too.
      for (const index of kept) {
        if (!(yield* rebuildInUse(rebuilding, index))) break;
        left = left.slice(1);
      }
    }
    if (left.length > 0) {
      yield* Effect.logWarning(
        `Texts of what was erased may stay in ${left.map(({ name }) => name).join(", ")}: ${
          owns
            ? "others in the database kept them from being rebuilt"
            : "their owner can REINDEX them"
        }`,
      );
    }
  }).pipe(Effect.scoped);

interface Role {
  readonly version: number;
  readonly vacuums: boolean;
  readonly reindexes: boolean;
  readonly owns: boolean;
}

const mayMaintain = `
select version, bool_and(owns) as owns, bool_and(reindexes) as reindexes, bool_and(reindexes or vacuums_all) as vacuums
from (
  select current_setting('server_version_num')::int4 as version, pg_has_role(datdba, 'usage') as vacuums_all
  from pg_database where datname = current_database()
) server cross join lateral (
  select pg_has_role(relowner, 'usage') as owns,
    case when version >= 170000 then has_table_privilege(oid, 'maintain') else pg_has_role(relowner, 'usage') end
      as reindexes
  from pg_class where oid = any ($1::text[]::regclass[])
) tables group by version`;

// ANALYZE leaves those of an empty table as they were.
const clearStatistics = `
select pg_clear_attribute_stats(current_schema()::text, relname::text, attname::text, false)
from pg_class join pg_attribute on attrelid = pg_class.oid
where pg_class.oid = any ($1::text[]::regclass[]) and reltuples = 0
  and attnum > 0 and not attisdropped`;

/** A B-tree of one page of texts has no bounds; the other keeps parts of texts in any case. */
const withTexts = `
select relname as name, indrelid::regclass::text as table,
  pg_relation_size(found.oid) <= $2::int8 as small
from pg_class found join pg_index on indexrelid = found.oid join pg_am on pg_am.oid = relam
where found.oid = any ($1::text[]::regclass[])
  and (amname = 'gin' or pg_relation_size(found.oid) > 2 * current_setting('block_size')::int8)`;
