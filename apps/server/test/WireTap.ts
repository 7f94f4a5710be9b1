/**
 * A way to a PostgreSQL on which every statement that is run is noted.
 */
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

export interface WireTap {
  /** The address of the database, by this way. */
  readonly url: string;
  /**
   * The statements since the last look, in the order in which they were sent; those of a transaction
   * together.
   */
  readonly take: () => ReadonlyArray<ReadonlyArray<string>>;
  readonly close: () => void;
}

/** Understands what a client sends, as far as it says which statement is run. */
const makeReader = (note: (statement: string) => void) => {
  let bytes = Buffer.alloc(0);
  let started = false;
  let bound = "";
  const texts = new Map<string, string>();
  const stringsOf = (body: Buffer) => body.toString("latin1").split("\0");

  return (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk]);
    while (true) {
      // The first message has no type.
      const type = started ? 1 : 0;
      if (bytes.length < type + 4) return;
      const length = type + bytes.readInt32BE(type);
      if (bytes.length < length) return;
      const kind = started ? String.fromCharCode(bytes[0]!) : "startup";
      const body = bytes.subarray(type + 4, length);
      bytes = bytes.subarray(length);
      started = true;
      if (kind === "P") {
        const [name, text] = stringsOf(body);
        texts.set(name!, text!);
      } else if (kind === "B") {
        bound = texts.get(stringsOf(body)[1]!)!;
      } else if (kind === "E") {
        note(bound);
      }
    }
  };
};

export const startWireTap = async (url: string): Promise<WireTap> => {
  const target = new URL(url);
  let units: Array<Array<string>> = [];
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(Number(target.port), target.hostname);
    let transaction: Array<string> | null = null;
    const read = makeReader((statement) => {
      if (transaction === null) {
        transaction = [statement];
        units.push(transaction);
        if (statement !== "BEGIN") transaction = null;
        return;
      }
      transaction.push(statement);
      if (statement === "COMMIT" || statement === "ROLLBACK") transaction = null;
    });
    near.on("data", read);
    near.pipe(far).pipe(near);
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(socket);
      socket.setNoDelay();
      socket.on("error", () => undefined);
      socket.on("close", () => {
        sockets.delete(socket);
        other.destroy();
      });
    }
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const near = new URL(url);
  near.port = String((server.address() as AddressInfo).port);
  return {
    url: near.href,
    take: () => {
      const taken = units;
      units = [];
      return taken;
    },
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
};
