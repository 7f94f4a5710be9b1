/**
 * Runs effects and streams as promises and async iterables. A signal ends them at once, and `close` waits for them.
 */
import { Context, Effect, Stream, type Layer } from "effect";
import { ArgumentInvalid, StorageUnavailable } from "../model/Errors.ts";
import { makeDrainingRuntime } from "../services/DrainingRuntime.ts";
import type { CallOptions } from "./Interface.ts";

/**
 * Builds the services of the layer, and rejects with the layer's error if that fails.
 *
 * @param patience the maximum time that `close` waits for iterators to end, in milliseconds
 */
export const makeCalls = async <R, E>(layer: Layer.Layer<R, E>, patience: number) => {
  const runtime = makeDrainingRuntime(layer);
  const context: Context.Context<R> = await runtime
    .run(async (services) => services, refuse)
    .catch((error: unknown) => runtime.dispose().then(() => Promise.reject(error)));

  let expire = () => {};
  const expiry = new Promise<void>((resolve) => (expire = resolve));
  const close = () => {
    const timer = setTimeout(expire, patience);
    return runtime.dispose().finally(() => clearTimeout(timer));
  };

  const run = async <A, E>(
    effect: Effect.Effect<A, E, R>,
    { signal }: CallOptions = {},
  ): Promise<A> => {
    checkSignal(signal);
    const start = () => Effect.runPromiseWith(context)(effect, { signal });
    return orAborted(runtime.run(start, refuse), signal);
  };

  /** Resolves once `close` waits for `call`, or rejects after `close`. */
  const register = (call: Promise<void>): Promise<void> =>
    new Promise((resolve, reject) => {
      runtime.run(() => (resolve(), call), refuse).catch(reject);
    });

  /** Starts the stream at the first `next`. Aborting the signal or leaving the loop ends the stream at once. */
  const iterate = <A, E>(
    stream: Stream.Stream<A, E, R>,
    { signal }: CallOptions = {},
  ): AsyncIterable<A> => ({
    [Symbol.asyncIterator]: () => {
      const iterator = Stream.toAsyncIterableWith(stream, context)[Symbol.asyncIterator]();
      const end = () => iterator.return!();
      // Nobody awaits the ends that these cause.
      const abandon = () => void end().catch(() => {});
      async function* read() {
        checkSignal(signal);
        signal?.addEventListener("abort", abandon);
        let finish = () => {};
        const reading = new Promise<void>((resolve) => (finish = resolve));
        try {
          await register(Promise.race([reading, expiry]).then(abandon));
          while (true) {
            const { done, value } = await iterator.next();
            signal?.throwIfAborted();
            if (done) return;
            yield value;
          }
        } finally {
          signal?.removeEventListener("abort", abandon);
          finish();
          await end();
        }
      }
      const steps = read();
      return {
        next: () => steps.next(),
        // A generator's own `return` waits for a step in progress, which this ends.
        return: () => (abandon(), steps.return()),
      };
    },
  });

  return { context, run, iterate, close };
};

export type Calls = Pick<Awaited<ReturnType<typeof makeCalls<never, never>>>, "iterate" | "run">;

const refuse = () =>
  Promise.reject(new StorageUnavailable({ cause: new Error("Parley was closed") }));

/** Throws the signal's reason if it is aborted, and `ArgumentInvalid` if it is not a signal. */
const checkSignal = (signal: AbortSignal | undefined): void => {
  if (signal === undefined) return;
  // A signal from another realm or a polyfill is no instance of this realm's class.
  if (typeof signal?.throwIfAborted === "function") return signal.throwIfAborted();
  const reason = "must be an AbortSignal, such as the signal of an AbortController";
  throw new ArgumentInvalid({ field: "signal", reason, message: `signal: ${reason}.` });
};

/** Settles like the promise, or rejects with the signal's reason as soon as the signal is aborted. */
const orAborted = <A>(promise: Promise<A>, signal: AbortSignal | undefined): Promise<A> =>
  signal === undefined
    ? promise
    : new Promise((resolve, reject) => {
        const abort = () => reject(signal.reason);
        signal.addEventListener("abort", abort);
        promise.finally(() => signal.removeEventListener("abort", abort)).then(resolve, reject);
      });
