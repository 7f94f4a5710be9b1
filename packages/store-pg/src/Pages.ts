/**
 * What the pages of chats and of entries have in common.
 */
import type { OrderBy } from "@parley/core";

export interface Statement {
  readonly text: string;
  readonly values: ReadonlyArray<unknown>;
}

/** Rows to skip; past what int8 holds there is nothing in any case. */
export const offsetOf = ({ limit, page }: { readonly limit: number; readonly page: number }) =>
  Math.min((page - 1) * limit, Number.MAX_SAFE_INTEGER);

/**
 * Whether the order is that of positions, `true` for descending; `undefined` for any other order.
 * Ids and creation times both follow positions.
 */
export const byPosition = (orderBy: ReadonlyArray<OrderBy<string>>): boolean | undefined => {
  const { descending, field } = orderBy[0]!;
  return field === "id" || (field === "_createTime" && orderBy.length === 1)
    ? descending
    : undefined;
};

/** PostgreSQL's default puts nulls last ascending and first descending, as the contract does. */
export const orderOf = <Field extends string>(
  orderBy: ReadonlyArray<OrderBy<NoInfer<Field>>>,
  columns: Readonly<Record<Field, string>> & { readonly id: string },
): string =>
  [
    ...orderBy.map(({ descending, field }) => [columns[field], descending] as const),
    [columns.id, orderBy.at(-1)!.descending] as const,
  ]
    .map(([column, descending]) => `${column} ${descending ? "desc" : "asc"}`)
    .join(", ");
