/**
 * A session whose connections are lent to its tenants by turn: nobody waits for the crowd of another.
 */
import { Context, Effect } from "effect";
import { makeFairSemaphore } from "./FairSemaphore.ts";
import type { Session, Tenant } from "./database/TenantSession.ts";

let sessions = 0;

/** Lends at most so many connections at a time. */
export const fairSession = (session: Session, connections: number): Session => {
  const room = makeFairSemaphore<Tenant>(connections);
  /** Whether a statement is part of a transaction, which has its connection. */
  const Inside = Context.Reference(`@parley/store-pg/FairSession/${++sessions}`, {
    defaultValue: () => false,
  });
  const lent = <A, E, R>(tenant: Tenant, effect: Effect.Effect<A, E, R>) =>
    Effect.flatMap(Inside, (isInside) => (isInside ? effect : room.withPermit(tenant)(effect)));
  return {
    ...session,
    query: (tenant, text, values) => lent(tenant, session.query(tenant, text, values)),
    transaction: (tenant, effect) =>
      lent(tenant, session.transaction(tenant, Effect.provideService(effect, Inside, true))),
  };
};
