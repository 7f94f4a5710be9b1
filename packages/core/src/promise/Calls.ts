/**
 * Runs effects and streams as promises and async iterables. A signal ends them at once, and `close` waits for them.
 */
import { Context, Effect, Stream, type Layer } from "effect";
import { StorageUnavailable } from "../model/Errors.ts";
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
    signal?.throwIfAborted();
    const start = () => Effect.runPromiseWith(context)(effect, { signal });
    return orAborted(runtime.run(start, refuse), signal);
  };

  /** Starts the stream at the first `next`. Aborting the signal or leaving the loop ends the stream at once. */
  const iterate = <A, E>(
    stream: Stream.Stream<A, E, R>,
    { signal }: CallOptions = {},
  ): AsyncIterable<A> => ({
    [Symbol.asyncIterator]: () => {
      let iterator: AsyncIterator<A> | undefined;
      let hasLeft = false;
      let end = () => {};
      const theEnd = new Promise<void>((resolve) => (end = resolve));
      const endIterator = () => iterator?.return?.().finally(end);
      // Unlike a generator's `return`, this does not wait for a step in progress.
      const leave = async (): Promise<IteratorResult<A>> => {
        hasLeft = true;
        signal?.removeEventListener("abort", endIterator);
        await endIterator();
        return { done: true, value: undefined };
      };
      const start = () =>
        new Promise<IteratorResult<A>>((resolve, reject) => {
          const loop = async () => {
            if (hasLeft) return resolve(leave());
            iterator = Stream.toAsyncIterableWith(stream, context)[Symbol.asyncIterator]();
            signal?.addEventListener("abort", endIterator);
            resolve(iterator.next());
            await Promise.race([theEnd, expiry]);
            // An abandoned stream must release its resources, but `close` does not wait for that.
            endIterator()?.catch(() => {});
          };
          runtime.run(loop, refuse).catch(reject);
        });
      const step = async (): Promise<IteratorResult<A>> => {
        if (hasLeft) return leave();
        try {
          signal?.throwIfAborted();
          const result = await orAborted(iterator?.next() ?? start(), signal);
          return result.done ? leave() : result;
        } catch (error) {
          void leave();
          throw error;
        }
      };
      let last: Promise<unknown> = Promise.resolve();
      const next = () => {
        const result = last.then(step, step);
        last = result;
        return result;
      };
      return { next, return: leave };
    },
  });

  return { context, run, iterate, close };
};

export type Calls = Pick<Awaited<ReturnType<typeof makeCalls<never, never>>>, "iterate" | "run">;

const refuse = () =>
  Promise.reject(new StorageUnavailable({ cause: new Error("Parley was closed") }));

/** Settles like the promise, or rejects with the signal's reason as soon as the signal is aborted. */
const orAborted = <A>(promise: Promise<A>, signal: AbortSignal | undefined): Promise<A> =>
  signal === undefined
    ? promise
    : new Promise((resolve, reject) => {
        const abort = () => reject(signal.reason);
        signal.addEventListener("abort", abort);
        promise.finally(() => signal.removeEventListener("abort", abort)).then(resolve, reject);
      });
