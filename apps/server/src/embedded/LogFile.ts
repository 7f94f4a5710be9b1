/**
 * What PostgreSQL writes to its standard error, in a file that does not grow without bound.
 */
import { Duration, Effect } from "effect";
import { closeSync, copyFileSync, openSync, readSync, statSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { oneLine } from "./EmbeddedFailed.ts";

const largest = 8 * 1024 * 1024;

export const logFile = (dataDir: string) => join(dataDir, "postgres.log");

export const logSize = (file: string) => {
  try {
    return statSync(file).size;
  } catch {
    return 0;
  }
};

/** PostgreSQL appends to the file, so emptying it beneath a running server is safe. */
const rotate = (file: string) => {
  if (logSize(file) < largest) return;
  copyFileSync(file, `${file}.1`);
  truncateSync(file);
};

/** Keeps the file and its predecessor small for as long as it runs. */
export const keepLogSmall = (file: string) =>
  Effect.sync(() => rotate(file)).pipe(
    Effect.catchDefect((cause) => Effect.logWarning(`${file} cannot be rotated`, cause)),
    Effect.andThen(Effect.sleep(Duration.minutes(1))),
    Effect.forever,
  );

/** The last lines since the file had the size `from`, as one line. */
export const lastLines = (file: string, from: number) => {
  const size = logSize(file);
  const start = Math.max(size < from ? 0 : from, size - 4096);
  const text = Buffer.alloc(Math.max(size - start, 0));
  try {
    const descriptor = openSync(file, "r");
    readSync(descriptor, text, 0, text.length, start);
    closeSync(descriptor);
  } catch {
    return "";
  }
  return oneLine(text.toString("utf8").trim().split("\n").slice(-5).join("\n"));
};
