import { assert, describe, it } from "@effect/vitest";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Random } from "effect";
import { addHoles, positionOf } from "../src/Holes.ts";
import { settle } from "./fill.ts";
import { clientOf, freshSchema, optionsOf } from "./PostgresUnderTest.ts";

const block = 4096;
/** More than four groups of blocks. */
const blocks = 300;
/** The highest position given: the last block is not full. */
const highest = blocks * block - 1234;

/** Positions that are still taken after years of erasures: of most blocks few are left, of some all. */
const someLeft = Effect.gen(function* () {
  const left = new Set<number>();
  for (let at = 0; at < blocks; at++) {
    const many = yield* Random.nextIntBetween(0, 12);
    const full = at === 77 || at === blocks - 1;
    for (let n = 1; full && n <= block; n++) left.add(at * block + n);
    for (let n = 0; n < many; n++) {
      left.add(at * block + (yield* Random.nextIntBetween(1, block)));
    }
  }
  return [...left].filter((position) => position <= highest).toSorted((a, b) => a - b);
});

/** What another erasure takes: here and there, a stretch, or from a block everything. */
const someOf = Effect.fnUntraced(function* (left: ReadonlyArray<number>) {
  const any = Random.nextIntBetween(0, left.length - 1);
  const gone = new Set<number>();
  for (let n = 0; n < 100; n++) gone.add(left[yield* any]!);
  const from = yield* any;
  for (const position of left.slice(from, from + 300)) gone.add(position);
  const blockOf = (position: number) => Math.floor((position - 1) / block);
  const whole = blockOf(left[yield* any]!);
  for (const position of left) if (blockOf(position) === whole) gone.add(position);
  return gone;
});

describe("holes", () => {
  for (const seed of [1, Date.now()]) {
    it.live(`any rank's position is found after random erasures (seed ${seed})`, () => {
      const schema = freshSchema();
      return Effect.gen(function* () {
        const chatbot = yield* registerChatbot;
        const sql = yield* clientOf(schema);
        let left = yield* someLeft;
        yield* sql.unsafe(
          `insert into chat (chatbot_id, id, position, create_time, entries)
          select $1, position, position, 'epoch', 0 from unnest($2::int8[]) position`,
          [chatbot, `{${left.join()}}`],
        );
        yield* sql.unsafe(
          `with gone as (
            select $1::int4 as chatbot_id, position from generate_series(1, ${highest}) as gone (position)
            where not exists (select from chat where chatbot_id = $1 and chat.position = gone.position)
          )${addHoles}`,
          [chatbot],
        );
        // Of the block that is full but for its last chat, from whichever end is nearer.
        yield* sql.unsafe("delete from chat where chatbot_id = $1 and position = $2", [
          chatbot,
          78 * block,
        ]);
        yield* sql.unsafe(
          `with gone as (select $1::int4 as chatbot_id, $2::int8 as position)${addHoles}`,
          [chatbot, 78 * block],
        );
        left = left.filter((position) => position !== 78 * block);
        yield* settle(sql);
        for (const part of [0.1, 0.5, 0.9]) {
          const rank = 1 + left.indexOf(77 * block + Math.floor(part * block));
          const [plan] = yield* sql.unsafe<{ readonly "QUERY PLAN": unknown }>(
            `explain (analyze, format json) ${positionOf(String(rank), String(highest)).replaceAll("$1", String(chatbot))}`,
          );
          const rows = [...JSON.stringify(plan).matchAll(/"Actual Rows":([\d.]+)/g)];
          const most = Math.max(...rows.map(([, n]) => Number(n)));
          assert.isAtMost(most, block / 2);
          assert.isAtLeast(most, block / 16);
        }
        for (let round = 0; round < 4; round++) {
          const ranks = yield* sql.unsafe<{ readonly rank: bigint; readonly position: bigint }>(
            `select rank, (${positionOf("rank", String(highest))}) as position
            from generate_series(-1, $2::int8) rank order by rank`,
            [chatbot, left.length + 1000],
          );
          const taken = new Set(left);
          for (const { position, rank } of ranks) {
            const expected = left[Number(rank) - 1];
            if (expected !== undefined) assert.strictEqual(Number(position), expected);
            else assert.isFalse(taken.has(Number(position)), `rank ${rank}`);
          }
          const gone = yield* someOf(left);
          left = left.filter((position) => !gone.has(position));
          yield* sql.unsafe(
            `with gone as (
              delete from chat where chatbot_id = $1 and position = any ($2::int8[])
              returning chatbot_id, position
            )${addHoles}`,
            [chatbot, `{${[...gone].join()}}`],
          );
        }
      }).pipe(
        Random.withSeed(seed),
        Effect.provide(layerPostgres(optionsOf(schema))),
        Effect.scoped,
      );
    });
  }
});
