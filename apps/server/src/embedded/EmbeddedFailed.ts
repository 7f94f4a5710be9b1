import { Data } from "effect";

/** The embedded PostgreSQL cannot be used. `message` is one line that says what to do about it. */
export class EmbeddedFailed extends Data.TaggedError("EmbeddedFailed")<{
  readonly message: string;
}> {}

/** Turns whatever was thrown into an {@link EmbeddedFailed} that says what was being done. */
export const failedTo = (what: string) => (cause: unknown) =>
  new EmbeddedFailed({
    message: `${what}: ${oneLine(String((cause as Error)?.message ?? cause))}`,
  });

export const oneLine = (text: string) => text.trim().replaceAll(/\s*\n\s*/g, " | ");
