/**
 * The parts that statements for pages have in common, and how they are run.
 */
import type { OrderBy, Overloaded, StorageUnavailable } from "@parley/core";
import { Effect } from "effect";
import type { PgPools } from "../database/PgPools.ts";
import { busy, isStatementTimeout, orBusy, orUnavailable } from "../database/PgErrors.ts";

export interface Statement {
  readonly text: string;
  readonly values: ReadonlyArray<unknown>;
}

/** Rows to skip; there is nothing past the range of int8. */
export const offsetOf = ({ limit, page }: { readonly limit: number; readonly page: number }) =>
  Math.min((page - 1) * limit, Number.MAX_SAFE_INTEGER);

/** The direction if the order is that of positions, which ids and times of creation follow. */
export const positionOrder = (
  orderBy: readonly [OrderBy<string>, ...Array<OrderBy<string>>],
): "asc" | "desc" | undefined => {
  const [{ descending, field }, ...rest] = orderBy;
  return field === "id" || (field === "_createTime" && rest.length === 0)
    ? directionOf(descending)
    : undefined;
};

/** The list of an ORDER BY. PostgreSQL puts nulls last ascending and first descending, as the contract does. */
export const orderOf = <Field extends string>(
  orderBy: ReadonlyArray<OrderBy<NoInfer<Field>>>,
  columns: Readonly<Record<Field, string>> & { readonly id: string },
): string =>
  [...orderBy, { field: "id" as const, descending: orderBy.at(-1)!.descending }]
    .map(({ descending, field }) => `${columns[field]} ${directionOf(descending)}`)
    .join(", ");

const directionOf = (descending: boolean) => (descending ? "desc" : "asc");

/** Runs a statement about a chatbot's chats. */
type Read = <Row extends object>(
  chatbot: number,
  statement: Statement,
) => Effect.Effect<ReadonlyArray<Row>, Overloaded | StorageUnavailable>;

export interface Reads {
  /** For statements whose cost does not depend on the number of chats. */
  readonly quick: Read;
  /** For all others: few run at a time, and one that waits or runs for longer than ten seconds is refused. */
  readonly bulk: Read;
}

export const makeReads = ({ bulk, reads }: Pick<PgPools, "bulk" | "reads">): Reads => ({
  quick: <Row extends object>(chatbot: number, { text, values }: Statement) =>
    orUnavailable(reads.query<Row>(chatbot, text, values)),
  bulk: <Row extends object>(chatbot: number, { text, values }: Statement) =>
    bulk.query<Row>(chatbot, text, values).pipe(
      Effect.catchIf(isStatementTimeout, () => Effect.fail(busy)),
      orBusy,
    ),
});
