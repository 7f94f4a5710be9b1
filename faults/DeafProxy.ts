/**
 * A way to a server on which no answer ever arrives.
 */
import { startRelay, type Relay } from "../apps/server/test/Relay.ts";

export interface DeafProxy extends Relay {
  /** Settles with the first bytes that the server answers; they go nowhere. */
  readonly answered: Promise<void>;
}

export const startDeafProxy = async (url: string): Promise<DeafProxy> => {
  const answered = Promise.withResolvers<void>();
  const relay = await startRelay(url, (near, far) => {
    near.pipe(far);
    far.on("data", () => answered.resolve());
  });
  return { ...relay, answered: answered.promise };
};
