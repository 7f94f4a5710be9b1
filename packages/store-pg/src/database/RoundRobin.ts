/**
 * A session whose connections serve chatbots by turn, so that a crowd of one chatbot's statements does not delay another's.
 * (Effect's PartitionedSemaphore leaves a partition in its place after it was served: one behind it can wait forever.)
 */
import { Context, Deferred, Effect, type Duration } from "effect";
import { SqlError } from "effect/sql";
import type { Session, Subject } from "../Session.ts";

let sessions = 0;

/**
 * At most so many statements and transactions run at a time. A statement that waits for longer than `queueTimeout` fails
 * as one does that runs for too long.
 */
export const roundRobin = (
  session: Session,
  connections: number,
  queueTimeout?: Duration.Input,
): Session => {
  let free = connections;
  /** Those that wait, by subject; the first subject is served next. */
  const queues = new Map<Subject, Set<Deferred.Deferred<void>>>();

  const serveNext = () => {
    const [next] = queues;
    if (next === undefined) {
      free++;
      return;
    }
    const [subject, queue] = next;
    const [turn] = queue;
    queue.delete(turn!);
    queues.delete(subject);
    if (queue.size > 0) queues.set(subject, queue);
    Deferred.doneUnsafe(turn!, Effect.void);
  };

  // A statement can end while it is being served, and so within this very loop: recursion would overflow the stack.
  let released = 0;
  const release = () => {
    if (released++ > 0) return;
    for (; released > 0; released--) serveNext();
  };

  const inTime = (turn: Effect.Effect<void>): Effect.Effect<void, SqlError.SqlError> =>
    queueTimeout === undefined
      ? turn
      : Effect.timeoutOrElse(turn, { duration: queueTimeout, orElse: () => Effect.fail(late) });

  const queued = <A, E, R>(subject: Subject, effect: Effect.Effect<A, E, R>) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.suspend(() => {
        const turn = Deferred.makeUnsafe<void>();
        const queue = queues.get(subject) ?? new Set();
        queues.set(subject, queue.add(turn));
        if (free > 0) {
          free--;
          serveNext();
        }
        return Effect.ensuring(
          restore(Effect.andThen(inTime(Deferred.await(turn)), effect)),
          Effect.sync(() => {
            // Its turn may have come at the moment at which it stopped waiting.
            if (!queue.delete(turn)) release();
            else if (queue.size === 0) queues.delete(subject);
          }),
        );
      }),
    );

  /** Whether a statement is part of a transaction, which has its connection. */
  const Inside = Context.Reference(`@parley/store-pg/RoundRobin/${++sessions}`, {
    defaultValue: () => false,
  });
  const unlessInside = <A, E, R>(subject: Subject, effect: Effect.Effect<A, E, R>) =>
    Effect.flatMap(Inside, (isInside) => (isInside ? effect : queued(subject, effect)));
  return {
    ...session,
    query: (subject, text, values) => unlessInside(subject, session.query(subject, text, values)),
    transaction: (subject, effect) =>
      unlessInside(
        subject,
        session.transaction(subject, Effect.provideService(effect, Inside, true)),
      ),
  };
};

const late = new SqlError.SqlError({
  reason: new SqlError.StatementTimeoutError({
    cause: new Error("no connection was free in time"),
  }),
});
