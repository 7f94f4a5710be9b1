import { Context, Duration, Effect } from "effect";

/** How background work waits for its next run. By default, waiting keeps the process alive. */
export const BackgroundSleep = Context.Reference("@parley/core/BackgroundSleep", {
  defaultValue: () => Effect.sleep as (duration: Duration.Duration) => Effect.Effect<void>,
});

/**
 * Waits on a timer that does not keep the process alive. Where every timer does, as in a Worker, this waits forever: the
 * host calls `eraseExpired`.
 */
export const unreferencedSleep: typeof BackgroundSleep.Service = (duration) =>
  Effect.callback<void>((resume) => {
    const timer = setTimeout(() => resume(Effect.void), Duration.toMillis(duration));
    // In a browser and in a Worker, a timer is a number.
    if (typeof timer === "number") clearTimeout(timer);
    else timer.unref();
    return Effect.sync(() => clearTimeout(timer));
  });
