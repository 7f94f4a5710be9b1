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
export const atKey = (column: string, value: string, condition = "true") =>
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
 * parameters from `$2`, followed by the other values. `textOf` gets two arguments: SQL for a relation with these
 * columns and `at` (the item's position in the batch, from 1), and whether any item has an idempotency key. The
 * statement has two versions (for one item and for several), or four with `itemHasKey`. A single item is passed as
 * scalars, which PostgreSQL reads faster than arrays. Without keys, `textOf` can leave out the change to the table of
 * keys: PostgreSQL spends time on every table that a statement may change, even if no row changes.
 */
export const batchStatement = <Item>(
  columns: ReadonlyArray<Column<Item>>,
  textOf: (items: string, hasKeys: boolean) => string,
  itemHasKey: (item: Item) => boolean = () => false,
) => {
  const parameters = (brackets: "" | "[]") =>
    columns.map(([, type], n) => `$${n + 2}::${type}${brackets}`).join(", ");
  const textsOf = (relation: string) => {
    const items = `${relation} item(${namesOf(columns)}, at)`;
    return { withoutKeys: textOf(items, false), withKeys: textOf(items, true) };
  };
  const single = textsOf(`(values (${parameters("")}, 1))`);
  const several = textsOf(`unnest(${parameters("[]")}) with ordinality`);
  return (
    items: ReadonlyArray<Item>,
    chatbot: number,
    ...others: ReadonlyArray<unknown>
  ): Statement => {
    const isSingle = items.length === 1;
    const values = columns.map(([, type, value]) =>
      isSingle ? (value(items[0]!) ?? null) : array(items, type, (item) => value(item) ?? null),
    );
    const texts = isSingle ? single : several;
    const text = items.some(itemHasKey) ? texts.withKeys : texts.withoutKeys;
    return { text, values: [chatbot, ...values, ...others] };
  };
};
