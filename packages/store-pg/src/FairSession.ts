/**
 * A session whose connections are lent to its subjects by turn: nobody waits for the crowd of another.
 */
import { Context, Effect } from "effect";
import { makeFairSemaphore } from "./FairSemaphore.ts";
import type { Session, Subject } from "./Session.ts";

let sessions = 0;

/** Lends at most so many connections at a time. */
export const fairSession = (session: Session, connections: number): Session => {
  const room = makeFairSemaphore<Subject>(connections);
  /** Whether a statement is part of a transaction, which has its connection. */
  const Inside = Context.Reference(`@parley/store-pg/FairSession/${++sessions}`, {
    defaultValue: () => false,
  });
  const lent = <A, E, R>(subject: Subject, effect: Effect.Effect<A, E, R>) =>
    Effect.flatMap(Inside, (isInside) => (isInside ? effect : room.withPermit(subject)(effect)));
  return {
    ...session,
    query: (subject, text, values) => lent(subject, session.query(subject, text, values)),
    transaction: (subject, effect) =>
      lent(subject, session.transaction(subject, Effect.provideService(effect, Inside, true))),
  };
};
