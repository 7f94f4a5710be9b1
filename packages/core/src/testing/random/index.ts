/** `@parley/core/testing/random`: compares a store with another by random commands. Requires `fast-check`. */
import { Clock, Effect, Layer } from "effect";
import { TestClock } from "effect/testing";
import fc from "fast-check";
import { dayMillis, dayNumber } from "../../model/Day.ts";
import type { StorePorts } from "../../ports/Store.ts";
import { CheckFailed, same, type Check } from "../Check.ts";
import { fresh, storeUnderTest, StoreUnderTest, type StoreServices } from "../StoreUnderTest.ts";
import { command, readAll, show, type Command } from "./Commands.ts";
import { openSubject } from "./Subject.ts";

export type { Command } from "./Commands.ts";

/** Options for {@link randomChecks}. */
export interface RandomOptions<E = unknown> {
  /**
   * A store that is right, such as the memory store, on the test clock. Its layer is built twice, so both builds must
   * use the same data, which nothing else uses: `layerMemoryOf(makeMemory())`.
   */
  readonly oracle: Layer.Layer<StorePorts, E>;
  /** Which commands run; by default, different ones each time. */
  readonly seed?: number;
  /** Roughly how many commands run, 5,000 by default. */
  readonly commands?: number;
  /** How long to look for a shorter sequence that fails, 15 seconds by default. */
  readonly shrinkMillis?: number;
}

const longest = 160;

/**
 * A check that random commands, run one after another on the store under test and on an oracle, have the same results,
 * ids aside, and leave the same contents. If the store reads Effect's `Clock`, times are compared, too. A failure shows
 * the seed, and the shortest sequence of commands that fast-check finds, as code. Nothing else may use the store
 * meanwhile.
 */
export const randomChecks = <E>({
  commands = 5_000,
  oracle,
  seed = Date.now() % 2 ** 31,
  shrinkMillis = 15_000,
}: RandomOptions<E>): ReadonlyArray<Check<StoreServices>> => [
  {
    name: `${commands} random commands have the same results as on the oracle (seed ${seed})`,
    run: Effect.scoped(
      Effect.gen(function* () {
        const compare = yield* comparison(oracle);
        const context = yield* Effect.context<StoreServices>();
        let shrinkUntil = Infinity;
        const isEnough = (signal: AbortSignal) => signal.aborted || performance.now() > shrinkUntil;
        const result = yield* Effect.promise((signal) =>
          fc.check(
            fc.asyncProperty(
              fc.array(command, { minLength: 1, maxLength: longest, size: "max" }),
              async (commands) => {
                if (isEnough(signal)) return;
                await Effect.runPromiseWith(context)(compare(commands)).catch((error) => {
                  shrinkUntil = Math.min(shrinkUntil, performance.now() + shrinkMillis);
                  throw error;
                });
              },
            ),
            { seed, numRuns: Math.ceil((2 * commands) / longest) },
          ),
        );
        if (!result.failed) return;
        const { counterexample, errorInstance: cause } = result;
        const difference =
          cause instanceof CheckFailed
            ? cause
            : { what: "a command", expected: "no defect", actual: String(cause) };
        return yield* new CheckFailed({
          expected: difference.expected,
          actual: difference.actual,
          what: `seed ${seed}: replay({ oracle }, ${show(counterexample![0])})\n${difference.what}`,
          cause,
        });
      }),
    ),
  },
];

/** Runs these commands on the store under test and on an oracle; fails if their results differ. */
export const replay = <E>(
  { oracle }: Pick<RandomOptions<E>, "oracle">,
  commands: ReadonlyArray<Command>,
): Effect.Effect<void, unknown, StoreServices> =>
  Effect.scoped(Effect.flatMap(comparison(oracle), (compare) => compare(commands)));

const comparison = Effect.fnUntraced(function* <E>(oracle: Layer.Layer<StorePorts, E>) {
  const { readsTestClock: isExact } = yield* StoreUnderTest;
  const onOracle = Effect.provide(
    yield* Layer.build(storeUnderTest(oracle).pipe(Layer.provideMerge(TestClock.layer()))),
  );
  // Noon: if the store's clock cannot be set, some hours pass within one day.
  const noon = (dayNumber(Date.now()) + 0.5) * dayMillis;
  const actualSubject = yield* openSubject(isExact);
  const oracleSubject = yield* onOracle(openSubject(isExact));
  return Effect.fnUntraced(function* (commands: ReadonlyArray<Command>) {
    const time = Math.max(noon, isExact ? yield* Clock.currentTimeMillis : noon);
    if (isExact) yield* TestClock.setTime(time);
    yield* onOracle(TestClock.setTime(time));
    const run = fresh("run");
    const actual = yield* actualSubject(run);
    const expected = yield* onOracle(oracleSubject(run));
    const both = Effect.fnUntraced(function* (what: string, command: Command) {
      const results = [yield* actual.answer(command), yield* onOracle(expected.answer(command))];
      yield* same(`the result of ${what}${command._tag}`, results[0], results[1]);
    });
    for (const [n, command] of commands.entries()) yield* both(`command ${n + 1}, `, command);
    for (const chatbot of expected.chatbots.keys())
      for (const command of readAll(chatbot)) yield* both("afterwards, ", command);
  });
});
