import { layer } from "@effect/vitest";
import { storeChecks } from "@parley/core/testing";
import { granted, layerPostgresUnderTest } from "./PostgresUnderTest.ts";

layer(layerPostgresUnderTest(granted()), { excludeTestServices: true })(
  "PostgreSQL store whose role has only the documented grants",
  (it) => {
    for (const { name, run } of storeChecks) it.effect(name, () => run, 60_000);
  },
);
