import { readFileSync } from "node:fs";
import { quoteName } from "../src/connections/PgParams.ts";

/** Returns the documented statements that grant a server's role its privileges on a schema. */
export const grantsTo = (role: string, schema: string): ReadonlyArray<string> => {
  const page = readFileSync(new URL("../../../docs/operations.md", import.meta.url), "utf8");
  const [, block] = /```sql\n(grant usage on schema parley to [^`]*)```/.exec(page)!;
  return block!
    .replaceAll("parley_server", role)
    .replaceAll("parley.", `${quoteName(schema)}.`)
    .replaceAll("schema parley", `schema ${quoteName(schema)}`)
    .split(/;$/m)
    .filter((statement) => statement.trim() !== "");
};
