/**
 * Lists that must read much: they have connections of their own, so that no other statement queues
 * behind them, and of those that read a whole tenant only a few run at once.
 */
import { Overloaded, type StorageUnavailable } from "@parley/core";
import { Duration, Effect, Semaphore } from "effect";
import type { SqlError } from "effect/sql";
import type { Statement } from "./Pages.ts";
import type { Session } from "./Session.ts";
import { getShared, makeShared } from "./Shared.ts";
import { orUnavailable } from "./Storage.ts";

/** How many lists of either kind run at once; together, as many as there are connections. */
const searches = 4;
const passes = 2;
export const passConnections = searches + passes;

/** How long one waits for another to end. */
const patience = Duration.seconds(1);

export const makePasses = Effect.fnUntraced(function* (session: Session) {
  const busy = new Overloaded({ retryAfterSeconds: 2 });

  /** Runs at most so many at once; who cannot begin soon is told to come again. */
  const lane = (most: number) => {
    const room = Semaphore.makeUnsafe(most);
    return <Row extends object>(chatbot: number, { text, values }: Statement) =>
      Effect.uninterruptibleMask((restore) =>
        room
          .take(1)
          .pipe(
            Effect.timeoutOrElse({ duration: patience, orElse: () => Effect.fail(busy) }),
            restore,
            Effect.andThen(
              Effect.ensuring(
                restore(
                  Effect.catchIf(session.query<Row>(chatbot, text, values), isTimeout, () =>
                    Effect.fail(busy),
                  ),
                ),
                room.release(1),
              ),
            ),
          ),
      ).pipe(orUnavailable);
  };

  const run = lane(passes);
  const running = yield* makeShared(
    ({ chatbot, ...statement }: Statement & { readonly chatbot: number }) =>
      run<object>(chatbot, statement),
    { most: Number.POSITIVE_INFINITY, keep: Duration.zero },
  );

  return {
    /** What may be slow, but reads no more than it must. */
    search: lane(searches),
    /** What reads all of a tenant's chats, or of a chat's entries; once for all who want the same. */
    pass: <Row extends object>(chatbot: number, statement: Statement) =>
      getShared(running, { chatbot, ...statement }) as Effect.Effect<
        ReadonlyArray<Row>,
        Overloaded | StorageUnavailable
      >,
  };
});

const isTimeout = (error: SqlError.SqlError): boolean =>
  error.reason._tag === "StatementTimeoutError";
