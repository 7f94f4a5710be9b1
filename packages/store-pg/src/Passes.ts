/**
 * Lists that must read much: they have connections of their own, so that no other statement queues
 * behind them, and of those that read a whole tenant only a few run at once.
 */
import { Overloaded, type StorageUnavailable } from "@parley/core";
import { Cache, Duration, Effect, Semaphore } from "effect";
import type { Statement } from "./Pages.ts";
import type { Session } from "./Session.ts";
import { getShared, makeShared } from "./Shared.ts";
import { isStatementTimeout, orUnavailable } from "./Storage.ts";

/** How many lists of either kind run at once; together, as many as there are connections. */
const searches = 4;
const passes = 2;
export const passConnections = searches + passes;

/** How long one waits for another to end. */
const patience = Duration.seconds(1);

type Wanted = Statement & { readonly chatbot: number };

export const makePasses = Effect.fnUntraced(function* (session: Session) {
  const busy = new Overloaded({ retryAfterSeconds: 2 });

  /** Runs at most so many at once; who cannot begin soon is told to come again. `begins` is run before. */
  const lane = (most: number) => {
    const room = Semaphore.makeUnsafe(most);
    return <Row extends object>(
      chatbot: number,
      { text, values }: Statement,
      begins: Effect.Effect<void> = Effect.void,
    ) =>
      Effect.uninterruptibleMask((restore) =>
        room.take(1).pipe(
          Effect.timeoutOrElse({ duration: patience, orElse: () => Effect.fail(busy) }),
          restore,
          Effect.andThen(
            Effect.ensuring(
              begins.pipe(
                Effect.andThen(session.query<Row>(chatbot, text, values)),
                Effect.catchIf(isStatementTimeout, () => Effect.fail(busy)),
                restore,
              ),
              room.release(1),
            ),
          ),
        ),
      ).pipe(orUnavailable);
  };

  const run = lane(passes);
  // Only until it begins: who comes later must see what was written meanwhile.
  const waiting: Cache.Cache<
    Wanted,
    ReadonlyArray<object>,
    Overloaded | StorageUnavailable
  > = yield* makeShared(
    (wanted: Wanted) =>
      // What begins at once has to be in the cache before it can leave it.
      Effect.andThen(
        Effect.yieldNow,
        run<object>(wanted.chatbot, wanted, Cache.invalidate(waiting, wanted)),
      ),
    { most: Number.POSITIVE_INFINITY, keep: Duration.zero },
  );

  return {
    /** What may be slow, but reads no more than it must. */
    search: lane(searches),
    /** What reads all of a tenant's chats, or of a chat's entries; once for all who wait for the same. */
    pass: <Row extends object>(chatbot: number, statement: Statement) =>
      getShared(waiting, { chatbot, ...statement }) as Effect.Effect<
        ReadonlyArray<Row>,
        Overloaded | StorageUnavailable
      >,
  };
});
