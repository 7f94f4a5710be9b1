import { type Socket } from "node:net";
export interface Relay {
  /** The server's address, by this way. */
  readonly url: string;
  readonly close: () => void;
}
/** `join` connects the two ends of each connection, the client's first, as it likes. */
export declare const startRelay: (
  url: string,
  join: (near: Socket, far: Socket) => void,
) => Promise<Relay>;
//# sourceMappingURL=Relay.d.ts.map
