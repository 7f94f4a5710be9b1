import { readFileSync } from "node:fs";
import { searchPathOf } from "../src/Parameters.ts";

/** The statements of the documentation that let a role serve a schema that row security guards. */
export const grantsTo = (role: string, schema: string): ReadonlyArray<string> => {
  const page = readFileSync(new URL("../../../docs/operations.md", import.meta.url), "utf8");
  const [, block] = /```sql\n(create role parley_server[^`]*)```/.exec(page)!;
  return block!
    .replaceAll("parley_server", role)
    .replaceAll("parley.", `${searchPathOf(schema)}.`)
    .replaceAll("schema parley", `schema ${searchPathOf(schema)}`)
    .split(/;$/m)
    .filter((statement) => /^\s*grant/.test(statement));
};
