/**
 * What a list of chats or entries may be asked for (sections 4.3 and 4.4), after decoding.
 */
import { Schema } from "effect";
import { Text } from "./Text.ts";

export const chatFields = ["id", "name", "userRef", "_createTime"] as const;
export type ChatField = (typeof chatFields)[number];

export const entryFields = [
  "id",
  "chat_id",
  "question",
  "answer",
  "moderation",
  "flagged",
  "_createTime",
] as const;
export type EntryField = (typeof entryFields)[number];

/** One field to sort by. */
export interface OrderBy<Field extends string> {
  readonly field: Field;
  readonly descending: boolean;
}

/**
 * One page of a list. Texts sort by code point (`compareText`), `false` comes before `true`, and what is absent after
 * all else, or first in a descending list. Rows that tie in every field follow `id` in the direction of the last.
 */
export interface ListQuery<Field extends string> {
  /** Rows a page, 1 to 100. */
  readonly limit: number;
  /** From 1. */
  readonly page: number;
  /** At least one field, none twice. */
  readonly orderBy: readonly [OrderBy<Field>, ...Array<OrderBy<Field>>];
  /** Only the row with this id. */
  readonly id: number | null;
}

/** Rows a page. */
export const Limit = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 100 }));

/** From 1. */
export const PageNumber = Schema.Int.check(
  Schema.isBetween({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
);

const rules = <const Fields extends ReadonlyArray<string>>(fields: Fields) => ({
  limit: Limit,
  page: PageNumber,
  orderBy: Schema.NonEmptyArray(
    Schema.Struct({ field: Schema.Literals(fields), descending: Schema.Boolean }),
  ).check(
    Schema.makeFilter(
      (order) =>
        new Set(order.map(({ field }) => field)).size === order.length || "repeats a field",
    ),
  ),
  id: Schema.NullOr(Schema.Int),
});

/** One page of chats; a schema for values from outside. */
export const ChatQuery = Schema.Struct({
  ...rules(chatFields),
  /** A literal, case-insensitive part of the name; `null` or empty filters nothing. */
  search: Schema.NullOr(Text),
  /** Matches exactly. */
  userRef: Schema.NullOr(Text),
});
export interface ChatQuery extends Schema.Schema.Type<typeof ChatQuery> {}

/** One page of a chat's entries; a schema for values from outside. */
export const EntryQuery = Schema.Struct(rules(entryFields));
export interface EntryQuery extends Schema.Schema.Type<typeof EntryQuery> {}

/** Rows of one page and how many match in all, both of one snapshot. */
export interface Page<A> {
  readonly items: ReadonlyArray<A>;
  readonly total: number;
}

/** The default page of every list: the newest 25. */
export const newest = {
  limit: 25,
  page: 1,
  orderBy: [{ field: "id", descending: true }],
  id: null,
} as const satisfies ListQuery<"id">;

/** The default page of {@link ChatQuery}, to spread changes over. */
export const newestChats: ChatQuery = { ...newest, search: null, userRef: null };
