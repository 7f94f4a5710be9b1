import { expect, it } from "vitest";
import { Schema } from "effect";
import { assertCodes } from "../../src/serve/ValidationErrors.ts";

it("assertCodes rejects a schema in which a check has no problem, or a problem has no public code", () => {
  const body = (query: Schema.Top) => Schema.Struct({ body: Schema.Struct({ query }) });
  const tooLong = Schema.String.check(Schema.isMaxLength(9, { problem: "TOO_LONG" }));
  assertCodes("ASK_DTO", body(tooLong));
  expect(() => assertCodes("ASK_DTO", body(Schema.Int))).toThrow("ASK_DTO_QUERY_");
  for (const query of [Schema.NullOr(Schema.Array(tooLong)), Schema.optional(tooLong)]) {
    expect(() => assertCodes("OTHER_DTO", body(query))).toThrow("OTHER_DTO_QUERY_TOO_LONG");
  }
});
