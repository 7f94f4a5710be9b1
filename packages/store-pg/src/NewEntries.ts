/**
 * What a store is given of an entry, and the columns that it is kept in.
 */
import type { NewEntry, Usage } from "@parley/core";
import { array, big, type ArrayType } from "./Parameters.ts";

/** The rest of `entry` is the store's own. */
const columns: ReadonlyArray<
  readonly [name: string, type: ArrayType, valueOf: (entry: NewEntry) => Value | undefined]
> = [
  ["question", "text", ({ question }) => question],
  ["answer", "text", ({ answer }) => answer],
  ["moderation", "text", ({ moderation }) => moderation],
  ["flagged", "bool", ({ flagged }) => flagged],
  ["provider", "text", ({ usage }) => usage?.provider],
  ["model", "text", ({ usage }) => usage?.model],
  ["prompt_tokens", "int8", ({ usage }) => big(usage?.promptTokens)],
  ["completion_tokens", "int8", ({ usage }) => big(usage?.completionTokens)],
  ["attempts", "int4", ({ usage }) => usage?.attempts],
  ["latency_millis", "int8", ({ usage }) => big(usage?.latencyMillis)],
];
type Value = string | boolean | number | bigint | null;

export const newEntryColumns = columns.map(([name]) => name).join(", ");

/** SQL for one parameter of each column, `$first` and so on; or for an array of each. */
export const newEntryParameters = (first: number, brackets: "" | "[]" = "") =>
  columns.map(([, type], at) => `$${first + at}::${type}${brackets}`).join(", ");

/** One of each column. */
export const newEntryValues = (entry: NewEntry) =>
  columns.map(([, , valueOf]) => valueOf(entry) ?? null);

/** An array for each column; nulls for what has no entry. */
export const newEntryArrays = <A>(
  items: ReadonlyArray<A>,
  entryOf: (item: A) => NewEntry | null,
) => {
  const entries = items.map(entryOf);
  return columns.map(([, type, valueOf]) =>
    array(entries, type, (entry) => (entry === null ? null : (valueOf(entry) ?? null))),
  );
};

/** A usage is there as a whole or not at all. */
export interface UsageRow {
  readonly provider: string | null;
  readonly model: string | null;
  readonly prompt_tokens: bigint | null;
  readonly completion_tokens: bigint | null;
  readonly attempts: number | null;
  readonly latency_millis: bigint | null;
}

export const usageOf = (row: UsageRow): Usage | null =>
  row.provider === null
    ? null
    : {
        provider: row.provider,
        model: row.model!,
        promptTokens: Number(row.prompt_tokens),
        completionTokens: Number(row.completion_tokens),
        attempts: row.attempts!,
        latencyMillis: Number(row.latency_millis),
      };
