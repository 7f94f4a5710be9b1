/**
 * Whether the database can be reached and is what the server needs. Nothing is written.
 */
import { inspectPostgres } from "@parley/store-pg";
import { Effect, Option } from "effect";
import { databaseOptions } from "../Database.ts";
import { hasDatabase } from "../postgres/Cluster.ts";
import { runningPostgres } from "../postgres/EmbeddedPostgres.ts";
import { Settings } from "../Settings.ts";
import { told } from "../Told.ts";
import { failed, ok, warning, type Finding } from "./Finding.ts";

export const checkDatabase = Effect.gen(function* () {
  const { dataDir, rowSecurity, store } = yield* Settings;
  if (store === "memory") {
    return [
      warning(
        "database",
        "PARLEY_STORE is memory: everything is forgotten when the server ends.",
        "Leave PARLEY_STORE unset for an embedded database, or set DATABASE_URL.",
      ),
    ];
  }
  if (store === "embedded" && !(yield* hasDatabase(dataDir))) {
    return [ok("database", `There is none in ${dataDir} yet; the first start makes it.`)];
  }
  const isRunning = store === "embedded" ? Option.isSome(yield* runningPostgres(dataDir)) : null;
  const { current, encoding, refusal, version, writing } = yield* Effect.flatMap(
    databaseOptions,
    inspectPostgres,
  );
  const where = isRunning === null ? "" : isRunning ? ", of a running server" : ", embedded";
  const hint = "docs/operations.md explains what the roles of the database need.";
  const findings: Array<Finding> = [
    ok("database", `PostgreSQL ${version} with ${encoding} answers${where}.`),
  ];
  if (writing.readOnly) {
    findings.push(
      warning(
        "database",
        "It takes no writes: it is a standby, or transactions only read by default.",
        "Let DATABASE_URL lead to the primary, and look at default_transaction_read_only.",
      ),
    );
  }
  if (refusal !== null) {
    findings.push(failed("database", refusal, hint));
    return findings;
  }
  if (current && writing.closed !== null) {
    const message = `The server's role may not write to "${writing.closed}" as a server does.`;
    findings.push(failed("database", message, hint));
  }
  findings.push(
    current
      ? ok("migrations", "The schema is up to date.")
      : warning(
          "migrations",
          "The schema is not up to date; a start brings it there.",
          'Run "parley migrate"; "parley migrate --dry-run" prints what it does.',
        ),
  );
  if (current && rowSecurity) {
    findings.push(ok("row security", "It binds the server in every table."));
  }
  return findings;
}).pipe(
  Effect.scoped,
  Effect.catch((error) => {
    const { message } = told(error);
    return Effect.succeed([failed("database", message, hintFor(message))]);
  }),
);

const hints: ReadonlyArray<readonly [RegExp, string]> = [
  [/ECONNREFUSED/, "Start PostgreSQL, or correct host and port in DATABASE_URL."],
  [/ENOTFOUND|EAI_AGAIN/, "Correct the host in DATABASE_URL."],
  [
    /ETIMEDOUT|EHOSTUNREACH|timeout/i,
    "See that nothing between here and DATABASE_URL's host blocks it.",
  ],
  [/password|authentication|no pg_hba/i, "Correct user and password in DATABASE_URL."],
  [/database .* does not exist/, "Make that database, or correct its name in DATABASE_URL."],
  [/Invalid URL/, "DATABASE_URL is written postgres://user:password@host:5432/database."],
  [/encoding|needs 15/, "Name another database in DATABASE_URL."],
];

const hintFor = (message: string): string =>
  hints.find(([pattern]) => pattern.test(message))?.[1] ??
  "docs/operations.md explains what a database needs.";
