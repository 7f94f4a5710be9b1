import { layer } from "@effect/vitest";
import { storeChecks } from "@parley/core/testing";
import { layerPostgresUnderTest } from "./PostgresUnderTest.ts";

layer(layerPostgresUnderTest(), { excludeTestServices: true })("PostgreSQL store", (it) => {
  for (const { name, run } of storeChecks) it.effect(name, () => run, 60_000);
});
