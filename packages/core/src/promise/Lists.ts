/**
 * Lists that accept the same queries and have the same shape as those of `@parley/client`.
 */
import { Effect } from "effect";
import { ArgumentInvalid } from "../model/Errors.ts";
import type { Page } from "../model/ListQuery.ts";
import type * as api from "./Interface.ts";

/** Creates the list for a query, which can be sorted by `sortable` fields; `read` reads one page of the list. */
export const makeList = <A, Query>(
  { desc, limit = 25, orderBy, page: first = 1, ...filters }: api.ListQuery<string>,
  sortable: ReadonlyArray<string>,
  read: (query: Query) => Effect.Effect<Page<A>, unknown>,
  run: <B>(effect: Effect.Effect<B, unknown>) => Promise<B>,
): api.List<A> => {
  const fields = [orderBy ?? "id"].flat();
  const directions = [desc ?? fields.map(() => orderBy === undefined)].flat();
  const order = fields.map((field, index) => ({ field, descending: directions[index] }));
  const isOrder =
    fields.length > 0 &&
    new Set(fields).size === fields.length &&
    fields.every((field) => sortable.includes(field));
  const problem = !isOrder
    ? refuse("orderBy", `must name at least one of ${sortable.join(", ")}, each at most once`)
    : directions.length !== fields.length
      ? refuse("desc", "needs one value for each field in orderBy")
      : directions.every((direction) => typeof direction === "boolean")
        ? null
        : refuse("desc", "must be true or false, or an array of these");
  const readPage = async (page: number): Promise<api.Page<A>> => {
    const query = { id: null, ...filters, limit, page, orderBy: order } as Query;
    const { items, total } = await run(problem ?? read(query));
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

const refuse = (field: string, reason: string) =>
  Effect.fail(new ArgumentInvalid({ field, reason, message: `${field}: ${reason}.` }));
