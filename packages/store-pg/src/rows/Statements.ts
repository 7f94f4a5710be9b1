/**
 * Pieces of statements: the look-up of a row, and a batch of items, each of which is a row of the parameters.
 */
import { array, type ArrayType } from "../database/PgParams.ts";
import type { Statement } from "../database/TenantSession.ts";

/**
 * SQL that finds a row of the chatbot `$1` by the rest of its primary key, if the row meets the condition. With an
 * equality, PostgreSQL might choose any index that starts with the chatbot, if it plans while the table is small or the
 * statistics describe smaller chatbots, and would later read all rows of the chatbot. Only the primary key's index has
 * the order of this `order by`.
 */
export const atKey = (column: string, value: string, condition = "true") =>
  `where chatbot_id = $1 and ${column} between ${value} and ${value} and ${condition} order by ${column} limit 1`;

/** A column of items. An `undefined` value is a null. */
export type Column<Item> = readonly [
  name: string,
  type: ArrayType,
  value: (item: Item) => string | boolean | number | bigint | null | undefined,
];

export const namesOf = (columns: ReadonlyArray<Column<never>>) =>
  columns.map(([name]) => name).join(", ");

/**
 * Creates a function that builds a statement about items of the chatbot `$1`. Their columns are the parameters from
 * `$2`, and other values follow. `textOf` gets two arguments: SQL for a relation of these columns and `at` (the place
 * of the item, from 1), and whether any item has an idempotency key. It uses two texts (one item, several items), or
 * four with `itemHasKey`. A single item is passed as values, which PostgreSQL reads faster than arrays. Without keys,
 * `textOf` can leave out the change of the table of keys: PostgreSQL spends time on each table that a statement may
 * change, even if it changes no row of it.
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
