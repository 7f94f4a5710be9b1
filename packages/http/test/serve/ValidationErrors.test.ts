import { expect, it } from "vitest";
import { Schema } from "effect";
import { assertCodes } from "../../src/serve/ValidationErrors.ts";

it("a schema whose checks lack a problem, or whose problems lack a public code, is refused when it is loaded", () => {
  const body = (query: Schema.Top) => Schema.Struct({ body: Schema.Struct({ query }) });
  const tooLong = Schema.String.check(Schema.isMaxLength(9, { problem: "TOO_LONG" }));
  assertCodes("ASK_DTO", body(tooLong));
  expect(() => assertCodes("ASK_DTO", body(Schema.Int))).toThrow("ASK_DTO_QUERY_");
  for (const query of [Schema.NullOr(Schema.Array(tooLong)), Schema.optional(tooLong)]) {
    expect(() => assertCodes("OTHER_DTO", body(query))).toThrow("OTHER_DTO_QUERY_TOO_LONG");
  }
});
