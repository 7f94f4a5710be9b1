/**
 * Compares the cost of lists for a small and a large chatbot in one database, alternating between the two. Needs
 * BENCH_DATABASE_URL, the URL of a database that it may fill; the rows stay there for the next run.
 *
 *   BENCH_DATABASE_URL=postgres://… npm run lists -- [--small 10000] [--large 10000000] [--runs 500]
 *
 * The figures are medians over --rounds rounds of --runs runs, because other work on the machine distorts some rounds.
 */
import { ChatId } from "@parley/core/ports";
import {
  defaultEntryQuery,
  defaultChatQuery,
  type ChatQuery,
  type EntryQuery,
} from "../packages/core/src/index.ts";
import { ChatStore } from "../packages/core/src/ports/index.ts";
import { layerPostgres } from "../packages/store-pg/src/index.ts";
import { fillSchema, filledChatbot } from "../packages/store-pg/test/fill.ts";
import { databaseUrl } from "./harness/DatabaseUrl.ts";
import { Effect, Layer } from "effect";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: {
    small: { type: "string", default: "10000" },
    large: { type: "string", default: "10000000" },
    runs: { type: "string", default: "500" },
    rounds: { type: "string", default: "7" },
  },
});
const url = databaseUrl();
const runs = Number(options.runs);
const rounds = Number(options.rounds);

interface Sized {
  readonly size: number;
  readonly store: ChatStore["Service"];
}
type List = readonly [
  name: string,
  read: (sized: Sized, n: number) => Effect.Effect<unknown, unknown>,
];

const chats = (name: string, query: (size: number, n: number) => Partial<ChatQuery>): List => [
  name,
  ({ size, store }, n) =>
    store.listChats(filledChatbot, { ...defaultChatQuery, ...query(size, n) }),
];
const entries = (name: string, query: (size: number) => Partial<EntryQuery>): List => [
  name,
  ({ size, store }) =>
    store.listEntries(filledChatbot, ChatId.make(1), {
      ...defaultEntryQuery,
      ...query(Math.min(size, 1_000_000)),
    }),
];
const oldest = { orderBy: [{ field: "createTime", descending: false }] } as const;
const by = (field: "name" | "userRef") => ({ orderBy: [{ field, descending: false }] }) as const;

/** Lists whose p99 among many chats may be at most one and a half times their p99 among few. */
const flatLists: ReadonlyArray<List> = [
  chats("default page", () => ({})),
  chats("middle page", (size) => ({ page: Math.floor(size / 50) })),
  chats("last page", (size) => ({ page: Math.ceil(size / 25) })),
  chats("oldest first, middle page", (size) => ({
    ...oldest,
    page: Math.floor(size / 50),
  })),
  // Both sizes read the same number of users and ids, spread over all chats, so caches help both equally.
  chats("one user's page, of 100 users", (size, n) => ({
    userRef: `user ${Math.floor(((n % 100) * size) / 10_000)}`,
  })),
  chats("one id, of 100", (size, n) => ({ id: 1 + Math.floor(((n % 100) * size) / 100) })),
  entries("history page", () => ({})),
  entries("history, middle page", (size) => ({ page: Math.floor(size / 50) })),
];

/** Lists whose cost grows with the number of chats, and the limit for their median in milliseconds. */
const growingLists: ReadonlyArray<readonly [list: List, most: (size: number) => number]> = [
  ...(["name", "userRef"] as const).flatMap((field) => [
    [chats(`by ${field}`, () => by(field)), () => 30] as const,
    [
      chats(`by ${field}, middle`, (size) => ({
        ...by(field),
        page: Math.floor(size / 50),
      })),
      () => 10_000,
    ] as const,
  ]),
  // Search terms that are frequent, rare, absent or short, or whose matches are all far from the first page.
  ...["ern", "rbo", "777", "xyz", "lantern", "e", "zq", " 1"].map(
    (search) =>
      [
        chats(`search for "${search}"`, () => ({ search })),
        (size: number) => Math.max(30, search.length < 3 ? 10_000 : size / 4_000),
      ] as const,
  ),
];

const quantile = (values: ReadonlyArray<number>, q: number) =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * q))]!;

const millis = (n: number) => n.toFixed(2).padStart(10);

/** For each size, the duration of each run in milliseconds. */
const measure = Effect.fnUntraced(function* (
  [, read]: List,
  sizes: ReadonlyArray<Sized>,
  times: number,
  from = 0,
) {
  const millisPerSize = sizes.map((): Array<number> => []);
  for (let n = from; n < from + times; n++) {
    for (const [at, sized] of sizes.entries()) {
      const start = performance.now();
      // A list that fails has reached its timeout of ten seconds, which counts as its duration.
      yield* Effect.ignore(read(sized, n));
      millisPerSize[at]!.push(performance.now() - start);
    }
  }
  return millisPerSize;
});

const program = Effect.gen(function* () {
  const sizes = yield* Effect.forEach(
    [Number(options.small), Number(options.large)],
    Effect.fnUntraced(function* (size) {
      const schema = `flat_${size}`;
      yield* fillSchema({ url, schema, chats: size, entries: Math.min(size, 1_000_000) });
      const services = yield* Layer.build(layerPostgres({ url, schema }));
      return { size, store: yield* Effect.provideContext(ChatStore, services) };
    }),
  );
  const missedTargets: Array<string> = [];

  console.log(`milliseconds; ${sizes.map(({ size }) => size).join(" and ")} chats\n`);
  console.log(`${"".padEnd(34)}       p50       p50       p99       p99   ratio of p99`);
  for (const list of flatLists) {
    yield* measure(list, sizes, 20);
    const figures: Array<ReadonlyArray<number>> = [];
    for (let round = 0; round < rounds; round++) {
      const millisPerSize = yield* measure(list, sizes, runs, round * runs);
      const [small, large] = millisPerSize.map((runMillis) => quantile(runMillis, 0.99));
      figures.push([
        ...millisPerSize.map((runMillis) => quantile(runMillis, 0.5)),
        small!,
        large!,
        large! / small!,
      ]);
    }
    const medians = figures[0]!.map((_, at) =>
      quantile(
        figures.map((round) => round[at]!),
        0.5,
      ),
    );
    console.log(list[0].padEnd(34) + medians.map(millis).join(""));
    if (medians.at(-1)! > 1.5) missedTargets.push(list[0]);
  }

  console.log(`\n${"".padEnd(34)}       p50       p50       max       max`);
  for (const [list, most] of growingLists) {
    const millisPerSize = yield* measure(list, sizes, rounds);
    const medians = millisPerSize.map((runMillis) => quantile(runMillis, 0.5));
    const longest = millisPerSize.map((runMillis) => Math.max(...runMillis));
    console.log(list[0].padEnd(34) + [...medians, ...longest].map(millis).join(""));
    if (medians.some((median, at) => median > most(sizes[at]!.size))) missedTargets.push(list[0]);
  }

  const large = sizes[1]!;
  const pages = Effect.map(measure(flatLists[0]!, [large], 10_000), ([millisPerSize]) =>
    quantile(millisPerSize!, 0.99),
  );
  const alone = yield* pages;
  let [done, refused] = [0, 0];
  const searches = yield* Effect.forkChild(
    Effect.forEach(
      Array.from("abcdefghijklmnopqrst"),
      (letter) =>
        large.store
          .listChats(filledChatbot, { ...defaultChatQuery, search: `${letter}o` })
          .pipe(
            Effect.match({ onFailure: () => refused++, onSuccess: () => done++ }),
            Effect.forever,
          ),
      { concurrency: "unbounded", discard: true },
    ),
  );
  yield* Effect.sleep("500 millis");
  const beside = yield* pages;
  yield* Effect.sync(() => searches.interruptUnsafe());
  console.log(
    `\np99 of default pages: ${millis(alone)} alone, ${millis(beside)} beside 20 searches (${done} done, ${refused} refused)`,
  );
  if (beside > 5 * alone) missedTargets.push("default pages beside 20 searches");
  console.log(
    missedTargets.length === 0 ? "\nno target missed" : `\nmissed: ${missedTargets.join("; ")}`,
  );
  process.exitCode = missedTargets.length === 0 ? 0 : 1;
});

await Effect.runPromise(Effect.scoped(program));
