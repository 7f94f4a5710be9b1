/**
 * A relay to PostgreSQL that records every statement.
 */
import { startRelay, type Relay } from "./Relay.ts";

export interface WireTap extends Relay {
  /**
   * The statements since the previous call, in the order in which they were sent. The statements of a transaction are
   * grouped, and are returned once it has ended.
   */
  readonly take: () => ReadonlyArray<ReadonlyArray<string>>;
}

/** Reads the client's messages in PostgreSQL's protocol, and records each statement that the client executes. */
const makeReader = (note: (statement: string) => void) => {
  let bytes = Buffer.alloc(0);
  let started = false;
  let bound = "";
  const texts = new Map<string, string>();
  const stringsOf = (body: Buffer) => body.toString("latin1").split("\0");

  return (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk]);
    while (true) {
      // The startup message has no type byte.
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
  let units: Array<Array<string>> = [];
  const relay = await startRelay(url, (near, far) => {
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
  });
  return {
    ...relay,
    take: () => {
      const hasEnded = (unit: ReadonlyArray<string>) =>
        unit[0] !== "BEGIN" || /^(COMMIT|ROLLBACK)$/.test(unit.at(-1)!);
      const ended = units.filter(hasEnded);
      units = units.filter((unit) => !hasEnded(unit));
      return ended;
    },
  };
};
