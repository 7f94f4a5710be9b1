/**
 * What a store is given of an entry, and the columns that it is kept in.
 */
import type { NewEntry, Usage } from "@parley/core";
import { array, big } from "./Parameters.ts";

/** The rest of `entry` is the store's own. */
export const newEntryColumns =
  "question, answer, moderation, flagged, " +
  "provider, model, prompt_tokens, completion_tokens, attempts, latency_millis";

/** One of each column. */
export const newEntryValues = ({ answer, flagged, moderation, question, usage }: NewEntry) => [
  question,
  answer,
  moderation,
  flagged,
  usage?.provider ?? null,
  usage?.model ?? null,
  usage?.promptTokens ?? null,
  usage?.completionTokens ?? null,
  usage?.attempts ?? null,
  usage?.latencyMillis ?? null,
];

/** An array for each column; nulls for what has no entry. */
export const newEntryArrays = <A>(
  items: ReadonlyArray<A>,
  entryOf: (item: A) => NewEntry | null,
) => {
  const entries = items.map(entryOf);
  return [
    array(entries, "text", (entry) => entry?.question ?? null),
    array(entries, "text", (entry) => entry?.answer ?? null),
    array(entries, "text", (entry) => entry?.moderation ?? null),
    array(entries, "bool", (entry) => entry?.flagged ?? null),
    array(entries, "text", (entry) => entry?.usage?.provider ?? null),
    array(entries, "text", (entry) => entry?.usage?.model ?? null),
    array(entries, "int8", (entry) => big(entry?.usage?.promptTokens)),
    array(entries, "int8", (entry) => big(entry?.usage?.completionTokens)),
    array(entries, "int4", (entry) => entry?.usage?.attempts ?? null),
    array(entries, "int8", (entry) => big(entry?.usage?.latencyMillis)),
  ];
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
