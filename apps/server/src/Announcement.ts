/**
 * What a server prints when it starts: the addresses and the first key for people, and a line for the log.
 */
import { Console, Effect, FileSystem, Path, Redacted } from "effect";
import { join } from "node:path";
import { command } from "./cli/CommandErrors.ts";
import { details, type Cell } from "./cli/Output.ts";
import { loadPostgres } from "./layers/Postgres.ts";
import { makeFolder } from "./layers/StoreLayer.ts";
import { Settings } from "./Settings.ts";
import { version } from "./Version.ts";

interface Addresses {
  readonly general: string;
  readonly answers: string;
  /** The origin of the playground and the documentation; `null` if they are off. */
  readonly pages: string | null;
  readonly management: string | null;
}

/** Writes the first key to a file, because standard output may be a log that other people can read. */
const writeKey = Effect.fnUntraced(
  function* (key: Redacted.Redacted) {
    const { dataDir, store } = yield* Settings;
    const files = yield* FileSystem.FileSystem;
    // The directory may also contain the first key of a SQLite file. That key is still valid: keep it.
    const name = store === "memory" ? "memory-key" : "first-key";
    const path = (yield* Path.Path).resolve(dataDir, name);
    yield* Effect.try({ try: () => makeFolder(dataDir), catch: (cause) => cause as Error });
    yield* files.remove(path, { force: true });
    yield* files.writeFileString(path, `${Redacted.value(key)}\n`, { flag: "wx", mode: 0o600 });
    yield* Effect.logInfo(
      `The first API key is in ${path}, which only the user running the server can read`,
    );
  },
  Effect.catch(({ message }) =>
    Effect.flatMap(Settings, ({ store }) => {
      const advice =
        store === "memory"
          ? "Set PARLEY_DATA_DIR to another directory, and restart the server"
          : `Create another key with "${command} key create"`;
      return Effect.logError(`Could not save the first API key: ${message}. ${advice}`);
    }),
  ),
);

/** Logs the start. On a terminal, prints the addresses and the first key; otherwise writes the key to a file. */
export const announceStart = Effect.fnUntraced(function* (
  { answers, general, management, pages }: Addresses,
  firstKey: Redacted.Redacted | null,
) {
  const { databaseUrl, dataDir, knowledgeDir, llms, provision, store } = yield* Settings;
  const security = store === "postgres" ? (yield* loadPostgres).securityOf(databaseUrl!) : null;
  const models = llms.map(({ options, provider }) => `${options.model} at ${provider}`).join(", ");
  if (firstKey !== null && !process.stdout.isTTY) yield* writeKey(firstKey);
  if (process.stdout.isTTY) {
    const key = firstKey && Redacted.value(firstKey);
    const create = `${command} key create --name playground`;
    const keyHint =
      provision === null
        ? `shown when the server first started; create another: ${create}`
        : `create one: ${create}`;
    const keyText = store === "memory" ? null : keyHint;
    const stores = {
      sqlite: join(dataDir, "parley.db"),
      postgres: `PostgreSQL at DATABASE_URL (${security})`,
      memory: "memory (chats are lost when the server stops)",
    };
    const rows: ReadonlyArray<readonly [string, Cell]> = [
      ["Playground", pages && `${pages}/${key === null ? "" : `#key=${key}`}`],
      ["General interface", general],
      ["Answers interface", answers],
      ["Guide", pages && `${pages}/docs/guide`],
      ["API reference", pages && `${pages}/docs`],
      ["Store", stores[store]],
      ["Model", models || null],
      ["Documents", knowledgeDir ?? (models === "" ? "Parley's own documentation" : null)],
      ["Management", management],
      ["API key", key === null ? keyText : `${key} (shown only once)`],
    ];
    yield* Console.log(details(rows.filter(([, value]) => value !== null)));
    yield* Console.log("\nCtrl-C stops the server.");
  }
  yield* Effect.annotateLogs(Effect.logInfo(`Parley ${version} has started`), {
    general,
    answers,
    management: management ?? "off",
    store,
    ...(security === null ? {} : { security }),
    models: models || "none",
  });
});
