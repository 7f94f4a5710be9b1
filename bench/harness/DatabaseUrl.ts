/**
 * The database that a benchmark of the PostgreSQL store fills: named by a variable of its own, so that nobody fills by
 * mistake what a server is set up with.
 */
import { Redacted } from "effect";

const variable = "BENCH_DATABASE_URL";

export const databaseUrl = (): Redacted.Redacted => {
  const url = process.env[variable];
  if (url === undefined) {
    console.error(`Name a PostgreSQL database by ${variable}: this fills it.`);
    process.exit(2);
  }
  return Redacted.make(url);
};
