/**
 * Pieces of statements: the look-up of a row, and a batch of items, each of which is a row of the parameters.
 */
import { array, type ArrayType } from "../database/PgParams.ts";
import type { Statement } from "../database/TenantSession.ts";

/**
 * SQL that finds the row of the chatbot `$1` by the rest of its primary key, if it meets the condition. An equation would
 * find it by any index that begins with the chatbot, if PostgreSQL makes the plan while the table is small or its
 * statistics are of smaller chatbots, and would then read all rows of the chatbot. Only the primary key has this order.
 */
export const atKey = (column: string, value: string, condition = "true") =>
  `where chatbot_id = $1 and ${column} between ${value} and ${value} and ${condition} order by ${column} limit 1`;

/** A column of items. An `undefined` value is a null. */
export type Column<Item> = readonly [
  name: string,
  type: ArrayType,
  value: (item: Item) => string | boolean | number | bigint | null | undefined,
];

/** The names of columns, as SQL. */
export const namesOf = (columns: ReadonlyArray<Column<never>>) =>
  columns.map(([name]) => name).join(", ");

/** SQL for one parameter of each column, from `$first`; with brackets for an array of each. */
export const parametersOf = (
  columns: ReadonlyArray<Column<never>>,
  first: number,
  brackets: "" | "[]",
) => columns.map(([, type], n) => `$${first + n}::${type}${brackets}`).join(", ");

/** An array of each column. */
export const arraysOf = <Item>(columns: ReadonlyArray<Column<Item>>, items: ReadonlyArray<Item>) =>
  columns.map(([, type, value]) => array(items, type, (item) => value(item) ?? null));

/**
 * Makes a statement about items, whose columns are the parameters from `$first`. `textOf` gets SQL for a relation of
 * these columns and `at`, the place of the item from 1, and whether an item has an idempotency key. There are four
 * texts: PostgreSQL takes longer to read a dozen arrays than a dozen values, and prepares for each table that a
 * statement may change.
 */
export const batchStatement = <Item>(
  columns: ReadonlyArray<Column<Item>>,
  first: number,
  textOf: (items: string, isKeyed: boolean) => string,
  hasKey: (item: Item) => boolean,
) => {
  const relation = `item(${namesOf(columns)}, at)`;
  const one = `(values (${parametersOf(columns, first, "")}, 1)) ${relation}`;
  const many = `unnest(${parametersOf(columns, first, "[]")}) with ordinality ${relation}`;
  const texts = [one, many].map((items) => [textOf(items, false), textOf(items, true)] as const);
  return (items: ReadonlyArray<Item>, ...others: ReadonlyArray<unknown>): Statement => {
    const isSingle = items.length === 1;
    const values = isSingle
      ? columns.map(([, , value]) => value(items[0]!) ?? null)
      : arraysOf(columns, items);
    const text = texts[isSingle ? 0 : 1]![items.some(hasKey) ? 1 : 0];
    return { text, values: [...others, ...values] };
  };
};
