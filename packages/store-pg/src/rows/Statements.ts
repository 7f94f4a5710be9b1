/**
 * Builds parts of statements: the look-up of a row, and the parameters for a batch of items, one row per item.
 */
import { array, type ArrayType } from "../connections/PgParams.ts";
import type { Statement } from "../connections/Session.ts";

/**
 * Returns SQL that finds a row of chatbot `$1` by the rest of its primary key, if the row meets the condition. For an
 * equality, PostgreSQL might choose any index whose first column is `chatbot_id`. If it chose one while the table was
 * small, or from statistics of a time when chatbots had fewer rows, it would later read all of the chatbot's rows. Only
 * the primary key's index has the order of this `order by`.
 */
export const byPrimaryKey = (column: string, value: string, condition = "true") =>
  `where chatbot_id = $1 and ${column} between ${value} and ${value} and ${condition} order by ${column} limit 1`;

/** A column with one value for each item. An `undefined` value becomes null. */
export type Column<Item> = readonly [
  name: string,
  type: ArrayType,
  value: (item: Item) => string | boolean | number | bigint | null | undefined,
];

export const namesOf = (columns: ReadonlyArray<Column<never>>) =>
  columns.map(([name]) => name).join(", ");

/**
 * Creates a function that builds a statement for a batch of items of chatbot `$1`. The items' columns are the
 * parameters from `$2`, as arrays, followed by the other values. `textOf` gets SQL for a relation with these columns
 * and `index` (the item's position in the batch, from 1).
 */
export const batchStatement = <Item>(
  columns: ReadonlyArray<Column<Item>>,
  textOf: (items: string) => string,
) => {
  const arrays = columns.map(([, type], n) => `$${n + 2}::${type}[]`).join(", ");
  const text = textOf(`unnest(${arrays}) with ordinality item(${namesOf(columns)}, index)`);
  return (
    items: ReadonlyArray<Item>,
    chatbot: number,
    ...others: ReadonlyArray<unknown>
  ): Statement => {
    const values = columns.map(([, type, value]) =>
      array(items, type, (item) => value(item) ?? null),
    );
    return { text, values: [chatbot, ...values, ...others] };
  };
};
