/**
 * Lists with the queries and the form of those of `@parley/client`.
 */
import { Effect, Schema } from "effect";
import { Limit, PageNumber, type ListQuery, type Page } from "../model/ListQuery.ts";
import { makeCheck } from "../model/SchemaErrors.ts";
import { Text } from "../model/Text.ts";
import type * as api from "./Parley.ts";

const makeRules = (fields: ReadonlyArray<string>, filters: Schema.Struct.Fields = {}) =>
  makeCheck(
    Schema.Struct({
      ...filters,
      limit: Limit,
      page: PageNumber,
      id: Schema.NullOr(Schema.Int),
      orderBy: Schema.Array(Schema.Literals(fields)).check(Schema.isNonEmpty(), Schema.isUnique()),
      desc: Schema.Array(Schema.Boolean),
    }).check(
      Schema.makeFilter(({ desc, orderBy }) =>
        desc.length === orderBy.length
          ? undefined
          : { path: ["desc"], issue: "needs one value for each field of orderBy" },
      ),
    ),
  );

export const checkChats = makeRules(["id", "name", "userRef", "createTime"], {
  search: Schema.NullOr(Text),
  userRef: Schema.NullOr(Text),
});
export const checkEntries = makeRules(
  ["id", "chatId", "question", "answer", "moderation", "flagged", "createTime"],
  { chatId: Schema.Int },
);

/** The fields that have another name in the queries of the core. */
const coreNames: Readonly<Record<string, string>> = {
  createTime: "_createTime",
  chatId: "chat_id",
};

/** The list of a query. `read` reads a page of the core's query. */
export const makeList = <A, Query extends ListQuery<any>>(
  { desc, limit = 25, orderBy, page: first = 1, ...filters }: api.ListQuery<string>,
  check: (query: object) => Effect.Effect<void, unknown>,
  read: (query: Query) => Effect.Effect<Page<A>, unknown>,
  run: <B>(effect: Effect.Effect<B, unknown>) => Promise<B>,
): api.List<A> => {
  const fields = [orderBy ?? "id"].flat();
  const directions = [desc ?? fields.map(() => orderBy === undefined)].flat();
  const order = fields.map((field, at) => ({
    field: coreNames[field] ?? field,
    descending: directions[at]!,
  }));
  const readPage = async (page: number): Promise<api.Page<A>> => {
    const rest = { id: null, ...defined(filters), limit, page };
    const checked = check({ ...rest, orderBy: fields, desc: directions });
    const query = { ...rest, orderBy: order } as never;
    const { items, total } = await run(Effect.andThen(checked, () => read(query)));
    return { data: items, total, page };
  };
  async function* pages() {
    for (let number = first; ; number++) {
      const page = await readPage(number);
      yield page;
      if (number * limit >= page.total) return;
    }
  }
  return {
    page: () => readPage(first),
    pages,
    async *[Symbol.asyncIterator]() {
      for await (const { data } of pages()) yield* data;
    },
  };
};

/** The fields that are not `undefined`. */
export const defined = <A extends object>(fields: A): A =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as A;
