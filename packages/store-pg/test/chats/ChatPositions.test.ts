import { assert, it } from "@effect/vitest";
import { registerChatbot } from "@parley/core/testing";
import { Effect, Random } from "effect";
import type { SqlClient } from "effect/sql";
import { addGaps, partSizes, positionOf } from "../../src/chats/ChatPositions.ts";
import { settle } from "../fill.ts";
import { inSchema } from "../fixtures.ts";

/** The length of a stretch of positions with one pattern of erasures: eight of the smallest parts. */
const stretch = 8 * partSizes[2];
const stretches = 60;
/** The highest position given to a chat, chosen so that the last part is not full. */
const highest = stretches * stretch - 1234;

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

/** Positions that still have chats after years of erasures: a few in most stretches, all in some. */
const survivingPositions = Effect.gen(function* () {
  const positions = new Set<number>();
  for (let at = 0; at < stretches; at++) {
    const many = yield* Random.nextIntBetween(0, 12);
    const full = at === 37 || at === stretches - 1;
    for (let n = 1; full && n <= stretch; n++) positions.add(at * stretch + n);
    for (let n = 0; n < many; n++) {
      positions.add(at * stretch + (yield* Random.nextIntBetween(1, stretch)));
    }
  }
  return [...positions].filter((position) => position <= highest).toSorted((a, b) => a - b);
});

/** Picks positions to erase next: scattered ones, those of 300 consecutive chats, and a whole stretch. */
const someOf = Effect.fnUntraced(function* (positions: ReadonlyArray<number>) {
  const any = Random.nextIntBetween(0, positions.length - 1);
  const gone = new Set<number>();
  for (let n = 0; n < 100; n++) gone.add(positions[yield* any]!);
  const from = yield* any;
  for (const position of positions.slice(from, from + 300)) gone.add(position);
  const stretchOf = (position: number) => Math.floor((position - 1) / stretch);
  const whole = stretchOf(positions[yield* any]!);
  for (const position of positions) if (stretchOf(position) === whole) gone.add(position);
  return gone;
});

const seed = Date.now();

it.live(`each rank is mapped to its chat's position after random erasures (seed ${seed})`, () =>
  inSchema(
    Effect.fnUntraced(function* (sql) {
      const chatbot = yield* registerChatbot;
      let positions = yield* survivingPositions;
      yield* insertChats(sql, chatbot, positions);
      yield* sql.unsafe(
        `with gone as (
          select $1::int4 as chatbot_id, position from generate_series(1, ${highest}) as gone (position)
          where not exists (select from chat where chatbot_id = $1 and chat.position = gone.position)
        )${addGaps}`,
        [chatbot],
      );
      for (let round = 0; round < 2; round++) {
        const ranks = Array.from({ length: positions.length + 1000 }, (_, n) => n - 1);
        const positionsWithChat = new Set(positions);
        for (const [n, position] of (yield* positionsOf(sql, chatbot, ranks)).entries()) {
          const expected = positions[ranks[n]! - 1];
          if (expected !== undefined) assert.strictEqual(position, expected);
          else assert.isFalse(positionsWithChat.has(position), `rank ${ranks[n]}`);
        }
        const gone = yield* someOf(positions);
        positions = positions.filter((position) => !gone.has(position));
        yield* sql.unsafe(
          `with gone as (
            delete from chat where chatbot_id = $1 and position = any ($2::int8[])
            returning chatbot_id, position
          )${addGaps}`,
          [chatbot, `{${[...gone].join()}}`],
        );
      }
    }, Random.withSeed(seed)),
  ),
);

it.live(
  `ranks near scattered erasures are mapped to their chats' positions among billions (seed ${seed})`,
  () =>
    inSchema(
      Effect.fnUntraced(function* (sql) {
        const chatbot = yield* registerChatbot;
        const last = 256 * partSizes[0];
        // Erased positions: at the ends of parts at every level, and in random runs of one to ten.
        const gone = new Set([1, 2, 512, 513, 131_072, 131_073, 33_554_432, 33_554_433, last]);
        for (let n = 0; n < 10; n++) {
          const first = yield* Random.nextIntBetween(1, last - 10);
          for (let more = 0; more <= n; more++) gone.add(first + more);
        }
        const probes = [...gone]
          .flatMap((position) =>
            [1, 512, 131_072].flatMap((far) => [position - far, position + far]),
          )
          .filter((position) => position > 0 && position <= last && !gone.has(position));
        // The statement counts the chats before a position within its smallest part, so those chats must exist.
        const present = new Set<number>();
        for (const position of probes) {
          for (let at = position; ; at--) {
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
        // No level can count gaps beyond the last position, so recording one must fail.
        const beyond = yield* Effect.flip(
          sql.unsafe(
            `with gone as (select $1::int4 as chatbot_id, $2::int8 as position)${addGaps}`,
            [chatbot, last + 1],
          ),
        );
        assert.strictEqual(beyond.reason._tag, "ConstraintError");
      }, Random.withSeed(seed)),
    ),
);
