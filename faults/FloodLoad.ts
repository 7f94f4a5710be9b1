/**
 * The load generator for `overload.ts` and `Flood.test.ts`, which runs in its own process. It sends asks at a steady
 * rate, however well the server keeps up, alongside a polite client with another key. Its HTTP client is minimal,
 * because it shares the machine with the server that it measures.
 */
import { connect, type Socket } from "node:net";

/** One measurement. */
export interface Load {
  readonly port: number;
  /** The flood's key and the polite client's key. */
  readonly keys: readonly [string, string];
  /** The flood's rate, in asks a second. */
  readonly rate: number;
  readonly millis: number;
  /** The maximum number of asks in the flood; by default, only the rate limits it. */
  readonly most?: number;
  /** The id of a server process to pause while asks are sent, so that they all reach the server at once. */
  readonly pid?: number;
  readonly sockets: number;
  /** Whether every other ask in the flood has a malformed body, which receives 400 if the server accepts the ask. */
  readonly malformed: boolean;
}

/** The outcomes of one kind of request. */
interface Tally {
  sent: number;
  /** Answered as expected. */
  ok: number;
  /** `SERVICE_OVERLOADED` with `Retry-After`. */
  refused: number;
  /** Any other outcome. */
  failed: number;
  /** Requests for which no socket was free, because the server or this process was too slow for the rate. */
  unsent: number;
  /** How many milliseconds each answer took, and each refusal. */
  readonly okMillis: Array<number>;
  readonly refusedMillis: Array<number>;
}

export interface Report {
  readonly flood: Tally;
  readonly malformed: Tally;
  readonly polite: Tally;
  readonly details: Tally;
}

const makeTally = (): Tally => ({
  sent: 0,
  ok: 0,
  refused: 0,
  failed: 0,
  unsent: 0,
  okMillis: [],
  refusedMillis: [],
});

/** The timeout for the requests that are pending when the load ends, in milliseconds. */
const patience = 40_000;

const run = async (load: Load): Promise<Report> => {
  const { keys, malformed, millis, most = Infinity, pid, port, rate, sockets } = load;
  const report: Report = {
    flood: makeTally(),
    malformed: makeTally(),
    polite: makeTally(),
    details: makeTally(),
  };
  const free: Array<Client> = [];
  let open = 0;
  let pending = 0;

  class Client {
    readonly socket: Socket;
    isClosed = false;
    #text = "";
    #end: ((text: string) => void) | null = null;
    constructor() {
      open++;
      this.socket = connect({ port, host: "127.0.0.1", noDelay: true });
      this.socket.setEncoding("latin1").on("error", () => {});
      this.socket.on("data", (text: string) => this.#read(text));
      this.socket.on("close", () => {
        open--;
        this.isClosed = true;
        this.#finish("");
      });
    }
    #read(text: string) {
      this.#text += text;
      const head = this.#text.indexOf("\r\n\r\n");
      const length = /content-length: (\d+)/i.exec(this.#text.slice(0, head))?.[1];
      if (head < 0 || this.#text.length < head + 4 + Number(length)) return;
      free.push(this);
      this.#finish(this.#text);
    }
    #finish(text: string) {
      const end = this.#end;
      this.#end = null;
      this.#text = "";
      end?.(text);
    }
    send(request: string, end: (text: string) => void) {
      this.#end = end;
      this.socket.write(request);
    }
  }

  const take = (tally: Tally): Client | null => {
    while (true) {
      const client = free.pop();
      // The polite client may exceed the limit on sockets, so that the flood cannot keep it from asking.
      if (client === undefined)
        return open < sockets || tally === report.polite || tally === report.details
          ? new Client()
          : null;
      if (!client.isClosed) return client;
    }
  };
  const send = (tally: Tally, request: string, expected: RegExp) => {
    const client = take(tally);
    if (client === null) return void tally.unsent++;
    tally.sent++;
    pending++;
    const startedAt = performance.now();
    client.send(request, (text) => {
      pending--;
      const duration = performance.now() - startedAt;
      if (expected.test(text)) {
        tally.ok++;
        tally.okMillis.push(duration);
      } else if (/^HTTP\/1.1 500 .*^retry-after: \d.*"SERVICE_OVERLOADED"/ims.test(text)) {
        tally.refused++;
        tally.refusedMillis.push(duration);
      } else tally.failed++;
    });
  };
  const ask = (key: string, body: string) =>
    `POST /ask HTTP/1.1\r\nHost: a\r\nx-api-key: ${key}\r\n` +
    `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
  const question = '{"query":"How are you?"}';
  const flood = ask(keys[0], question);
  const broken = ask(keys[0], "{");
  const polite = ask(keys[1], question);
  const details = `GET /api/details HTTP/1.1\r\nHost: a\r\nx-api-key: ${keys[1]}\r\n\r\n`;
  const isAnswered = /^HTTP\/1.1 201 /;

  // The sockets open first, so that opening them is not measured.
  for (let n = 0; n < sockets; n++) {
    const client = new Client();
    client.socket.once("connect", () => free.push(client));
    if (n % 100 === 99) await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await new Promise((resolve) => setTimeout(resolve, 500));
  const startedAt = performance.now();
  let asks = 0;
  const timers = [
    setInterval(() => {
      const due = Math.min(Math.floor(((performance.now() - startedAt) / 1000) * rate), most);
      if (asks === due) return;
      if (pid !== undefined) process.kill(pid, "SIGSTOP");
      for (; asks < due; asks++) {
        if (malformed && asks % 2 === 1) {
          send(report.malformed, broken, /^HTTP\/1.1 400 /);
        } else send(report.flood, flood, isAnswered);
      }
      if (pid !== undefined) process.kill(pid, "SIGCONT");
    }, 2),
    setInterval(() => send(report.polite, polite, isAnswered), 200),
    setInterval(() => send(report.details, details, /^HTTP\/1.1 200 /), 100),
  ];
  await new Promise((resolve) => setTimeout(resolve, millis));
  for (const timer of timers) clearInterval(timer);
  const end = performance.now() + patience;
  while (pending > 0 && performance.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  report.flood.failed += pending;
  for (const client of free) client.socket.destroy();
  return report;
};

process.on("message", (load: Load) => void run(load).then((report) => process.send!(report)));
process.on("disconnect", () => process.exit());
