import { assert, it } from "@effect/vitest";
import { TurnStore } from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Stream } from "effect";
import { clientOf, freshSchema, optionsOf } from "../PostgresUnderTest.ts";

it.live("a process ignores the notifications of another schema", () =>
  Effect.gen(function* () {
    const schema = freshSchema();
    yield* Effect.gen(function* () {
      const turns = yield* TurnStore;
      const sql = yield* clientOf("public", 1);
      const heard: Array<number> = [];
      yield* Effect.forkScoped(
        Stream.runForEach(turns.freed, (freed) =>
          Effect.sync(() => freed && heard.push(freed.chat)),
        ),
        { startImmediately: true },
      );
      const notify = (chat: number, of: string) =>
        sql.unsafe("select pg_notify($1, $2)", [of, `freed:7:${chat}`]);
      yield* Effect.repeat(Effect.andThen(notify(1, schema), Effect.sleep("20 millis")), {
        until: () => heard.length > 0,
      });
      // Notifications arrive in the order of their commits.
      yield* notify(2, "another");
      yield* notify(3, schema);
      yield* Effect.repeat(Effect.sleep("5 millis"), { until: () => heard.includes(3) });
      assert.notInclude(heard, 2);
    }).pipe(Effect.provide(layerPostgres(optionsOf(schema))));
  }).pipe(Effect.scoped),
);
