import { layer } from "@effect/vitest";
import { turnStoreChecks } from "@parley/core/testing";
import { layerPostgresUnderTest } from "./PostgresUnderTest.ts";

layer(layerPostgresUnderTest({ listen: false }), { excludeTestServices: true })(
  "PostgreSQL store without LISTEN",
  (it) => {
    for (const { name, run } of turnStoreChecks) it.effect(name, () => run);
  },
);
