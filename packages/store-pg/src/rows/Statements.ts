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

export const namesOf = (columns: ReadonlyArray<Column<never>>) =>
  columns.map(([name]) => name).join(", ");

/**
 * Makes a statement about items of the chatbot `$1`. Their columns are the parameters from `$2`, and other values follow.
 * `textOf` gets SQL for a relation of these columns and `at`, the place of the item from 1, and whether an item has an
 * idempotency key. There are four texts: PostgreSQL takes longer to read a dozen arrays than a dozen values, and
 * prepares for each table that a statement may change.
 */
export const batchStatement = <Item>(
  columns: ReadonlyArray<Column<Item>>,
  textOf: (items: string, isKeyed: boolean) => string,
  hasKey: (item: Item) => boolean = () => false,
) => {
  const parameters = (brackets: "" | "[]") =>
    columns.map(([, type], n) => `$${n + 2}::${type}${brackets}`).join(", ");
  const textsOf = (relation: string) => {
    const items = `${relation} item(${namesOf(columns)}, at)`;
    return { unkeyed: textOf(items, false), keyed: textOf(items, true) };
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
    const text = items.some(hasKey) ? texts.keyed : texts.unkeyed;
    return { text, values: [chatbot, ...values, ...others] };
  };
};
