import { assert } from "@effect/vitest";
import { registerChatbot } from "@parley/core/testing";
import { Effect, Random } from "effect";
import type { SqlClient } from "effect/sql";
import { addGaps, partSizes, positionOf } from "../../src/chats/ChatPositions.ts";
import { settle } from "../fill.ts";
import { inSchema } from "../fixtures.ts";

/** Inserts chats that have nothing but positions. */
const insertChats = (sql: SqlClient.SqlClient, chatbot: number, positions: Iterable<number>) =>
  sql.unsafe(
    `insert into chat (chatbot_id, id, position, create_time, entries)
    select $1, position, position, 'epoch', 0 from unnest($2::int8[]) position`,
    [chatbot, `{${[...positions].join()}}`],
  );

/** Finds the positions of the chats with the given ranks. */
const positionsOf = (sql: SqlClient.SqlClient, chatbot: number, ranks: Iterable<number>) =>
  Effect.map(
    sql.unsafe<{ readonly position: bigint | null }>(
      `select (${positionOf("rank")}) as position
      from unnest($2::int8[]) with ordinality ranks (rank, n) order by n`,
      [chatbot, `{${[...ranks].join()}}`],
    ),
    (rows) => rows.map(({ position }) => Number(position)),
  );

const seed = Date.now();

inSchema(
  `each rank is mapped to its chat's position among billions, whatever was erased (seed ${seed})`,
  function* (sql) {
    const chatbot = yield* registerChatbot;
    const last = 256 * partSizes[0];
    const draws = yield* Random.withSeed(Effect.replicateEffect(Random.next, 11), seed);
    const drawBelow = (bound: number) => 1 + Math.floor(draws.pop()! * (bound - 1));
    // Erased positions: the ends of parts at every level, random runs of one to ten, three whole parts of the
    // smallest level, and most of a fourth.
    const gone = new Set([1, 2, 512, 513, 131_072, 131_073, 33_554_432, 33_554_433, last]);
    for (let n = 0; n < 10; n++) {
      const first = drawBelow(last - 10);
      for (let more = 0; more <= n; more++) gone.add(first + more);
    }
    const dense = 512 * drawBelow(last / 512 - 4);
    for (let n = 1; n <= 4 * 512; n++) if (n <= 3 * 512 || n % 100 > 0) gone.add(dense + n);
    const probes = [...gone]
      .flatMap((position) => [1, 512, 131_072].flatMap((far) => [position - far, position + far]))
      .filter((position) => position > 0 && position <= last && !gone.has(position));
    // The statement counts the chats before a position within its smallest part, so those chats must exist.
    const present = new Set<number>();
    for (const position of probes) {
      for (let at = position; !present.has(at); at--) {
        if (!gone.has(at)) present.add(at);
        if ((at - 1) % 512 === 0) break;
      }
    }
    yield* insertChats(sql, chatbot, present);
    for (const part of [0, 1]) {
      yield* sql.unsafe(
        `with gone as (select $1::int4 as chatbot_id, unnest($2::int8[]) as position)${addGaps}`,
        [chatbot, `{${[...gone].filter((_, n) => n % 2 === part).join()}}`],
      );
    }
    yield* settle(sql);
    const rankOf = (position: number) =>
      position - [...gone].filter((erased) => erased < position).length;
    assert.deepStrictEqual(yield* positionsOf(sql, chatbot, probes.map(rankOf)), probes);
    // No chat has these ranks.
    for (const position of yield* positionsOf(sql, chatbot, [-1, 0, last - gone.size + 1]))
      assert.isFalse(present.has(position));
    // No level can count gaps beyond the last position, so recording one must fail.
    const beyond = yield* Effect.flip(
      sql.unsafe(`with gone as (select $1::int4 as chatbot_id, $2::int8 as position)${addGaps}`, [
        chatbot,
        last + 1,
      ]),
    );
    assert.strictEqual(beyond.reason._tag, "ConstraintError");
  },
);
