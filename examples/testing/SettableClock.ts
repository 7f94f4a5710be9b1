import { Clock, Effect, Layer } from "effect";

/** A clock that stands still until the test moves it. Timeouts still run in real time. */
export const makeSettableClock = (start: string) => {
  let now = Date.parse(start);
  const real = Clock.Clock.defaultValue();
  const nanos = () => BigInt(now) * 1_000_000n;
  const layer = Layer.succeed(Clock.Clock, {
    currentTimeMillisUnsafe: () => now,
    currentTimeMillis: Effect.sync(() => now),
    currentTimeNanosUnsafe: nanos,
    currentTimeNanos: Effect.sync(nanos),
    monotonicTimeNanosUnsafe: () => real.monotonicTimeNanosUnsafe(),
    monotonicTimeNanos: real.monotonicTimeNanos,
    sleep: (duration) => real.sleep(duration),
  });
  return { layer, move: (millis: number) => void (now += millis) };
};
