import { Data } from "effect";

/** The database cannot be used; the message says why, in one line. */
export class PostgresUnusable extends Data.TaggedError("PostgresUnusable")<{
  readonly message: string;
  readonly cause?: unknown;
}> {}

/** `why` follows a colon. */
export const cannotBeUsed = (why: string, cause?: unknown) =>
  new PostgresUnusable({ message: `The database cannot be used: ${why}.`, cause });
