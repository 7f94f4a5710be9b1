/**
 * The database that a benchmark of the PostgreSQL store fills. Its URL has a separate environment variable, so that
 * nobody fills a server's database by mistake.
 */
import { Redacted } from "effect";

const variable = "BENCH_DATABASE_URL";

export const databaseUrl = (): Redacted.Redacted => {
  const url = process.env[variable];
  if (url === undefined) {
    console.error(`Set ${variable} to the URL of a PostgreSQL database, which this command fills.`);
    process.exit(2);
  }
  return Redacted.make(url);
};
