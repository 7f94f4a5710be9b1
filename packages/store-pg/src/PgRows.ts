/**
 * The part of the store that the rules of the core make: chatbots, keys, the audit log, erasures, exports and imports.
 */
import {
  bytesPerRow,
  daysOf,
  type ChatbotSize,
  type ColdRows,
  type ColdTx,
  type Scope,
  type UsageGroup,
  type UsageSum,
} from "@parley/core/ports";
import { Effect, Stream } from "effect";
import type { SqlError } from "effect/sql";
import { makeErasure } from "./archive/ChatErasure.ts";
import { exportFeedback, exportRecords } from "./archive/ChatExport.ts";
import { importVerbs, makeImportTransaction } from "./archive/ChatImport.ts";
import { isLockTimeout, toStorageUnavailable } from "./connections/PgErrors.ts";
import { millisNow, texts, time } from "./connections/PgParams.ts";
import type { PgPools } from "./connections/PgPools.ts";
import type { DedicatedSession, Session, VerbQuery } from "./connections/Session.ts";
import { chatVerbs } from "./rows/ChatRows.ts";
import { recordUses, registryVerbs } from "./rows/ChatbotRows.ts";

// Statements that read chatbots, find keys or refer to a chatbot do not wait for this lock.
const lockRegistry = "lock table chatbot in share row exclusive mode";

export const makeRows = (pools: PgPools): ColdRows => {
  const { reads, writes } = pools;
  /** Runs statements that no deadline ends. */
  const onOwnSession = <A>(
    run: (session: DedicatedSession) => Effect.Effect<A, SqlError.SqlError>,
  ) => Effect.scoped(Effect.flatMap(pools.exportSession, run)) as Effect.Effect<A>;
  const verbsOf = (session: Pick<Session, "query">) => {
    const query = session.query as VerbQuery;
    const registry = registryVerbs(query);
    return {
      ...registry,
      ...chatVerbs(query),
      ...importVerbs(query),
      // Searching the log may take long.
      auditLog: (limit, userRef) =>
        userRef === undefined
          ? registry.auditLog(limit, userRef)
          : onOwnSession((own) => registryVerbs(own.query as VerbQuery).auditLog(limit, userRef)),
      usage: (chatbot, { by = null, since, until = null }) => {
        const { before, first } = daysOf({ since, until });
        const values = [chatbot, time(since), time(until), first, before];
        return onOwnSession((own) => own.query<UsageSum>(chatbot, usageBy(by), values));
      },
      sizes: () => onOwnSession((own) => own.query<ChatbotSize>("operator", sizesOfChatbots)),
    } satisfies Omit<ColdTx, "now">;
  };
  const readVerbs = verbsOf(reads);
  const readNow = ({ query }: Pick<Session, "query">) =>
    Effect.map(
      query<{ readonly now: number }>("operator", `select ${millisNow} as now`),
      ([row]) => row!.now,
    );
  const inImport = makeImportTransaction(pools);
  const inExport = <A>(read: (session: DedicatedSession) => Stream.Stream<A, SqlError.SqlError>) =>
    Stream.unwrap(Effect.map(pools.exportSession, read)).pipe(
      Stream.catch((error) => Stream.fromEffect(toStorageUnavailable(Effect.fail(error)))),
    );

  const run = <A, E, R>(
    session: Pick<Session, "query">,
    body: (tx: ColdTx) => Effect.Effect<A, E, R>,
  ): Effect.Effect<A, E | SqlError.SqlError, R> =>
    Effect.flatMap(readNow(session), (now) => body({ now, ...verbsOf(session) }));

  const write = <A, E, R>(
    scope: Scope,
    body: (tx: ColdTx) => Effect.Effect<A, E, R>,
  ): Effect.Effect<A, E | SqlError.SqlError, R> => {
    switch (scope._tag) {
      case "Registry":
        return writes
          .transaction(
            "operator",
            Effect.andThen(writes.query("operator", lockRegistry), run(writes, body)),
          )
          .pipe(
            // Together, the attempts outlast the transaction of a frozen process.
            Effect.retry({ while: isLockTimeout, times: 3 }),
          );
      case "Chatbot":
        // Without a lock: each of these bodies writes with a single statement, which checks what it needs.
        return writes.transaction(scope.chatbot, run(writes, body));
      case "Import":
        return inImport(scope.chatbot, (session) => run(session, body));
    }
  };

  return {
    recordsAtOnce: null,
    write: (scope, body) => toStorageUnavailable(write(scope, body)),
    read: (body) => toStorageUnavailable(body(readVerbs)),
    now: toStorageUnavailable(readNow(reads)),
    recordUse: (keyIds) =>
      writes
        .query("operator", recordUses, [texts(keyIds)])
        .pipe(Effect.asVoid, toStorageUnavailable),
    erase: makeErasure(pools),
    records: (...values) => inExport((session) => exportRecords(session, ...values)),
    feedback: (...values) => inExport((session) => exportFeedback(session, ...values)),
  };
};

const groups: Readonly<Record<UsageGroup, readonly [stored: string, erased: string]>> = {
  day: ["to_char(create_time at time zone 'UTC', 'YYYY-MM-DD')", "to_char(day, 'YYYY-MM-DD')"],
  key: ["key_id", "key_id"],
  userRef: [
    "(select user_ref from chat where chat.chatbot_id = $1 and chat.id = entry.chat_id)",
    "null::text",
  ],
};

const usageBy = (by: UsageGroup | null) => {
  const [stored, erased] = by === null ? ["null::text", "null::text"] : groups[by];
  return `
select "group", provider, model, sum(answers)::float8 as answers, coalesce(sum(attempts), 0)::float8 as attempts,
  coalesce(sum(prompt_tokens), 0)::float8 as "promptTokens",
  coalesce(sum(completion_tokens), 0)::float8 as "completionTokens"
from (
  select ${stored} as "group", provider, model, 1 as answers, attempts, prompt_tokens, completion_tokens
  from entry
  where chatbot_id = $1 and create_time >= $2::timestamptz and question <> '' and not flagged
    and ($3::timestamptz is null or create_time < $3::timestamptz)
  union all
  select ${erased}, provider, model, answers, attempts, prompt_tokens, completion_tokens from erased_usage
  where chatbot_id = $1 and day >= $4::text::date and ($5::text is null or day < $5::text::date)
) costs
group by "group", provider, model`;
};

/** Some 2,000 pages of the entries, whatever the size of the table; all pages of a smaller one. */
const samplePercent =
  "least(100, 2000 * 100.0 * current_setting('block_size')::int / greatest(pg_relation_size('entry'), 1))";

export const sizesOfChatbots = `
with sample as (
  select chatbot_id, 100 / ${samplePercent} * count(*) as entries,
    100 / ${samplePercent} * sum(pg_column_size(question) + pg_column_size(answer)
      + coalesce(pg_column_size(metadata), 0) + ${bytesPerRow}) as bytes
  from entry tablesample system (${samplePercent}) group by chatbot_id
)
select id as chatbot, coalesce(chats, 0)::float8 as chats, round(coalesce(entries, 0))::float8 as entries,
  round(coalesce(bytes, 0) + ${bytesPerRow} * coalesce(chats, 0))::float8 as bytes
from chatbot left join chat_counter on chat_counter.chatbot_id = id left join sample on sample.chatbot_id = id`;
