/**
 * Filtering, ordering and cutting a page out of rows that are kept in ascending order of id.
 */
import { compareText, type ListQuery, type OrderBy, type Page } from "@parley/core";

type Value = string | number | boolean | Date | null;

/** One page of `rows`, all of which match; `read` gives a row's value of a field. */
export const pageOf = <Row, Field extends string>(
  rows: ReadonlyArray<Row>,
  { limit, orderBy, page }: ListQuery<Field>,
  read: (row: Row, field: NoInfer<Field> | "id") => Value,
): Page<Row> => {
  const total = rows.length;
  const start = (page - 1) * limit;
  // Rows come in the order of their ids and creation times, so those two orders cost no sort.
  const [{ field, descending }] = orderBy;
  if (field === "id" || (field === "_createTime" && orderBy.length === 1)) {
    return {
      total,
      items: descending
        ? rows.slice(Math.max(0, total - start - limit), Math.max(0, total - start)).reverse()
        : rows.slice(start, start + limit),
    };
  }
  return { total, items: rows.toSorted(by(orderBy, read)).slice(start, start + limit) };
};

const by = <Row, Field extends string>(
  orderBy: ReadonlyArray<OrderBy<Field>>,
  read: (row: Row, field: NoInfer<Field> | "id") => Value,
) => {
  const order = [...orderBy, { field: "id" as const, descending: orderBy.at(-1)!.descending }];
  return (a: Row, b: Row): number => {
    for (const { field, descending } of order) {
      const ascending = compare(read(a, field), read(b, field));
      if (ascending !== 0) return descending ? -ascending : ascending;
    }
    return 0;
  };
};

/** Absent values come after all others, `false` before `true`, text by code point. */
const compare = (a: Value, b: Value): number => {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  if (typeof a === "string") return compareText(a, b as string);
  return Number(a) - Number(b);
};
