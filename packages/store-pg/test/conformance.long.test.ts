import { layer } from "@effect/vitest";
import { storeChecks } from "@parley/core/testing";
import { bound, layerPostgresUnderTest } from "./PostgresUnderTest.ts";

layer(layerPostgresUnderTest(bound()), { excludeTestServices: true })(
  "PostgreSQL store bound by row security",
  (it) => {
    for (const { name, run } of storeChecks) it.effect(name, () => run, 60_000);
  },
);

layer(layerPostgresUnderTest({ listen: false }), { excludeTestServices: true })(
  "PostgreSQL store without LISTEN",
  (it) => {
    for (const { name, run } of storeChecks) it.effect(name, () => run, 60_000);
  },
);
