import { assert, it } from "@effect/vitest";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Layer } from "effect";
import { Reactivity } from "effect/reactivity";
import { makeClients } from "../src/Clients.ts";
import { bound, freshSchema, optionsOf } from "./PostgresUnderTest.ts";

for (const rowSecurity of [false, true]) {
  // The planner expects the statements of pages to be dear among millions of chats. They are not, and to compile
  // one takes a hundred times as long as to run it.
  it.live(`PostgreSQL compiles no statement (row security: ${rowSecurity})`, () =>
    Effect.gen(function* () {
      const options = { ...optionsOf(freshSchema()), ...(rowSecurity && bound()) };
      yield* Layer.build(layerPostgres(options));
      const { patient, passes, reads, writes } = yield* makeClients({
        ...options,
        maxConnections: 1,
        rowSecurity,
      });
      for (const [name, session] of Object.entries({ patient, passes, reads, writes })) {
        const shown = yield* session.query("operator", "select current_setting('jit') as jit");
        assert.deepStrictEqual(shown, [{ jit: "off" }], name);
      }
    }).pipe(Effect.provide(Reactivity.layer), Effect.scoped),
  );
}
