/**
 * Lists that must read much: they have connections of their own, so that no other statement queues behind them, of each
 * kind only a few run at once, and chatbots take turns.
 */
import type { Overloaded, StorageUnavailable } from "@parley/core";
import { Cache, Duration, Effect } from "effect";
import { makeFairSemaphore } from "./FairSemaphore.ts";
import type { Statement } from "./Pages.ts";
import type { Session } from "./database/TenantSession.ts";
import { getShared, makeShared } from "./Shared.ts";
import { busy, isStatementTimeout, orUnavailable } from "./Storage.ts";

/** How many lists of each kind run at once; together, as many as there are connections. */
const searches = 4;
const sorted = 2;
const passes = 2;
export const passConnections = searches + sorted + passes;

/** How long one waits for another to end. */
const patience = Duration.seconds(1);

interface Wanted extends Statement {
  readonly chatbot: number;
  readonly sizeOf: Statement | null;
}

type Failure = Overloaded | StorageUnavailable;

export const makePasses = Effect.fnUntraced(function* (
  session: Session,
  /** For what reads little. */
  light: <Row extends object>(
    chatbot: number,
    statement: Statement,
  ) => Effect.Effect<ReadonlyArray<Row>, Failure>,
  /** A pass over fewer rows is none that others must wait for. */
  { few = 10_000 } = {},
) {
  /** Runs at most so many at once; who cannot begin soon is told to come again. `begins` is run before. */
  const lane = (most: number) => {
    const room = makeFairSemaphore<number>(most);
    return <Row extends object>(
      chatbot: number,
      { text, values }: Statement,
      begins: Effect.Effect<void> = Effect.void,
    ) =>
      Effect.uninterruptibleMask((restore) =>
        room.take(chatbot).pipe(
          Effect.timeoutOrElse({ duration: patience, orElse: () => Effect.fail(busy) }),
          restore,
          Effect.andThen(
            Effect.ensuring(
              begins.pipe(
                Effect.andThen(session.query<Row>(chatbot, text, values)),
                Effect.catchIf(isStatementTimeout, () => Effect.fail(busy)),
                restore,
              ),
              room.release,
            ),
          ),
        ),
      ).pipe(orUnavailable);
  };

  const search = lane(searches);
  const sort = lane(sorted);
  const pass = lane(passes);

  const laneOf = Effect.fnUntraced(function* ({ sizeOf, chatbot }: Wanted) {
    if (sizeOf === null) return sort;
    if (few === 0) return pass;
    const [size] = yield* light<{ readonly size: bigint }>(chatbot, sizeOf);
    return size === undefined || size.size < few ? search : pass;
  });

  // Only until it begins: who comes later must see what was written meanwhile.
  const waiting: Cache.Cache<Wanted, ReadonlyArray<object>, Failure> = yield* makeShared(
    (wanted: Wanted) =>
      // What begins at once has to be in the cache before it can leave it.
      Effect.yieldNow.pipe(
        Effect.andThen(laneOf(wanted)),
        Effect.flatMap((run) =>
          run<object>(wanted.chatbot, wanted, Cache.invalidate(waiting, wanted)),
        ),
      ),
  );
  const once = <Row extends object>(wanted: Wanted) =>
    getShared(waiting, wanted) as Effect.Effect<ReadonlyArray<Row>, Failure>;

  return {
    /** What may be slow, but reads no more than it must. */
    search,
    /** A page in the order of an index that must be walked; once for all who wait for the same. */
    sort: <Row extends object>(chatbot: number, statement: Statement) =>
      once<Row>({ chatbot, sizeOf: null, ...statement }),
    /**
     * What reads all of a tenant's chats, or of a chat's entries; once for all who wait for the same. A statement gives its
     * `size`, in rows like those of chats.
     */
    pass: <Row extends object>(chatbot: number, statement: Statement, sizeOf: Statement) =>
      once<Row>({ chatbot, sizeOf, ...statement }),
  };
});
