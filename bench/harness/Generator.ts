/**
 * The load generator, which is its own process. It parses no more of HTTP than it must, because it shares the machine
 * with the server that it measures.
 */
import { randomUUID } from "node:crypto";
import { connect, type Socket } from "node:net";
import { cpuMicros } from "./Cpu.ts";
import type { Expected, Load, Reply } from "./Load.ts";

const headEnd = Buffer.from("\r\n\r\n");
const lastChunk = Buffer.from("\r\n0\r\n\r\n");
const lastAnswersMillis = 20_000;

/** Returns a function that checks whether a response's body is as expected. */
const bodyCheck = ({ body, match }: Expected): ((actual: Buffer) => boolean) => {
  if (match === "bytes") {
    const bytes = Buffer.from(body);
    return (actual) => bytes.equals(actual);
  }
  const relevant = (text: string) =>
    match === "last event" ? text.slice(text.lastIndexOf("\ndata: ")) : text;
  const literal = relevant(body).replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const pattern = new RegExp(`^${literal.replace(/[0-9]+/g, "[0-9]+")}$`);
  return (actual) => pattern.test(relevant(actual.toString()));
};

/** Decodes a chunked body. */
const unchunk = (data: Buffer): Buffer => {
  const chunks: Array<Buffer> = [];
  for (let at = 0; ;) {
    const line = data.indexOf("\r\n", at);
    const size = parseInt(data.toString("latin1", at, line), 16);
    if (!(size > 0)) return Buffer.concat(chunks);
    chunks.push(data.subarray(line + 2, line + 2 + size));
    at = line + 2 + size + 2;
  }
};

const endsIn = (data: Buffer, end: Buffer) => data.subarray(-end.length).equals(end);

const percentile = (sorted: Float64Array, share: number): number =>
  sorted[Math.floor(sorted.length * share)] ?? 0;

interface Connection {
  sentAt: number;
  isCounted: boolean;
  socket: Socket;
  /** The index of the request to send next. */
  next: number;
}

const run = ({
  connections,
  expected,
  leadMillis,
  millis,
  pids,
  port,
  requests,
  staggerMillis = 0,
}: Load): Promise<Reply> =>
  new Promise((resolve) => {
    const texts = requests.map((request) => {
      const [before, after] = request.split("{key}");
      const bytes = Buffer.from(request, "latin1");
      return () =>
        after === undefined ? bytes : Buffer.from(before + randomUUID() + after, "latin1");
    });
    const bodyIsRight = bodyCheck(expected);
    const latencies: Array<number> = [];
    /** While `pausing`, the requests from `lead` complete before the first that counts. */
    let phase: "lead" | "pausing" | "counting" | "ending" | "over" = "lead";
    let unanswered = 0;
    const all: Array<Connection> = [];
    const timers: Array<NodeJS.Timeout> = [];

    const clocks = () => ({
      millis: performance.now(),
      server: cpuMicros(pids.server),
      postgres: cpuMicros(pids.postgres),
      generator: process.cpuUsage(),
    });
    let from: ReturnType<typeof clocks>;

    const stop = (reply: Reply): void => {
      if (phase === "over") return;
      phase = "over";
      for (const timer of timers) clearTimeout(timer);
      for (const { socket } of all) socket.destroy();
      resolve(reply);
    };
    const fail = (failure: string): void => stop({ failure });

    const finish = (): void => {
      const to = clocks();
      const seconds = (to.millis - from.millis) / 1000;
      const cpu = process.cpuUsage(from.generator);
      const sorted = Float64Array.from(latencies).sort();
      stop({
        perSecond: sorted.length / seconds,
        p50Millis: percentile(sorted, 0.5),
        p99Millis: percentile(sorted, 0.99),
        serverMicros: (to.server - from.server) / sorted.length,
        postgresMicros: (to.postgres - from.postgres) / sorted.length,
        generatorBusy: (cpu.user + cpu.system) / 1e6 / seconds,
      });
    };

    const send = (connection: Connection): void => {
      unanswered += 1;
      connection.sentAt = performance.now();
      connection.isCounted = phase === "counting";
      connection.socket.write(texts[connection.next]!());
      connection.next = (connection.next + connections) % texts.length;
    };

    const begin = (): void => {
      phase = "counting";
      from = clocks();
      timers.push(setTimeout(end, millis));
      for (const [n, connection] of all.entries()) {
        const delay = (staggerMillis * n) / connections;
        if (delay === 0) send(connection);
        else timers.push(setTimeout(send, delay, connection));
      }
    };
    const end = (): void => {
      phase = "ending";
      const giveUp = () => fail(`${unanswered} responses did not arrive`);
      timers.push(setTimeout(giveUp, lastAnswersMillis));
      if (unanswered === 0) finish();
    };

    /** Called when the connection's response has arrived. */
    const proceed = (connection: Connection): void => {
      unanswered -= 1;
      if (connection.isCounted) latencies.push(performance.now() - connection.sentAt);
      if (phase === "lead" || phase === "counting") send(connection);
      else if (phase === "pausing" && unanswered === 0) begin();
      else if (phase === "ending" && unanswered === 0) finish();
    };

    const open = (connection: Connection): void => {
      /** The bytes of the response so far. */
      let parts: Array<Buffer> = [];
      let isChunked = false;
      const judge = (status: number, body: Buffer, data: Buffer): void => {
        parts = [];
        isChunked = false;
        if (status === expected.status && bodyIsRight(body)) return proceed(connection);
        fail(`an unexpected response: ${data.toString("utf8", 0, 2000)}`);
      };
      const read = (chunk: Buffer): void => {
        parts.push(chunk);
        if (isChunked && chunk.length >= lastChunk.length && !endsIn(chunk, lastChunk)) return;
        const data = parts.length === 1 ? chunk : Buffer.concat(parts);
        parts = [data];
        const end = data.indexOf(headEnd);
        if (end < 0) return;
        const head = data.toString("latin1", 0, end + 2).toLowerCase();
        const status = Number(head.slice(9, 12));
        const body = data.subarray(end + 4);
        const at = head.indexOf("\r\ncontent-length:");
        if (at >= 0) {
          const size = parseInt(head.slice(at + 17), 10);
          if (body.length === size) return judge(status, body, data);
          if (body.length > size) fail(`more than a response: ${data.toString("utf8", 0, 1000)}`);
        } else if (/\r\ntransfer-encoding: *chunked\r\n/.test(head)) {
          isChunked = true;
          if (endsIn(data, lastChunk)) judge(status, unchunk(body), data);
        } else fail(`a response of unknown length: ${head}`);
      };
      const buffer = Buffer.allocUnsafe(1 << 16);
      const socket = connect({
        host: "127.0.0.1",
        port,
        noDelay: true,
        onread: {
          buffer,
          callback: (size) => {
            // Copied, because the buffer is reused, but the bytes are kept until the response is complete.
            if (phase !== "over") read(Buffer.from(buffer.subarray(0, size)));
            return true;
          },
        },
      });
      connection.socket = socket;
      socket.once("connect", () => send(connection));
      socket.on("error", (error) => fail(error.message));
      socket.on("close", () => fail("the server closed a connection"));
    };

    timers.push(setTimeout(() => (phase = "pausing"), leadMillis));
    for (let n = 0; n < connections; n++) {
      const connection = { sentAt: 0, isCounted: false, socket: null!, next: n % texts.length };
      all.push(connection);
      open(connection);
    }
  });

process.on("message", (load: Load) => void run(load).then((reply) => process.send!(reply)));
process.on("disconnect", () => process.exit());
