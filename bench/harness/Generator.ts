/**
 * The load generator, a process of its own: keep-alive connections that each send the next request
 * when the answer to the last one is complete. It reads no more of HTTP than that takes, because it
 * shares the machine with what it measures.
 */
import { connect, type Socket } from "node:net";
import type { Load, Reply } from "./Load.ts";

const headEnd = Buffer.from("\r\n\r\n");
const lastAnswersMillis = 10_000;

/** A judge of answers' bodies. */
const bodyCheck = ({ body, match }: Load["expected"]): ((actual: Buffer) => boolean) => {
  if (match === "bytes") {
    const wanted = Buffer.from(body);
    return (actual) => wanted.equals(actual);
  }
  const literal = body.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const wanted = new RegExp(`^${literal.replace(/[0-9]+/g, "[0-9]+")}$`);
  return (actual) => wanted.test(actual.toString());
};

const run = ({ connections, expected, leadMillis, millis, port, request }: Load): Promise<Reply> =>
  new Promise((resolve) => {
    const bytes = Buffer.from(request, "latin1");
    const status = String(expected.status);
    const bodyIsRight = bodyCheck(expected);
    const latencies: Array<number> = [];
    let phase: "lead" | "counting" | "ending" | "over" = "lead";
    let answersDue = 0;
    let measured: Reply = { failure: "nothing was measured" };
    const sockets: Array<Socket> = [];

    const finish = (reply: Reply): void => {
      if (phase === "over") return;
      phase = "over";
      for (const timer of timers) clearTimeout(timer);
      for (const socket of sockets) socket.destroy();
      resolve(reply);
    };
    const fail = (failure: string): void => finish({ failure });

    const open = (): void => {
      let sentAt = 0;
      let rest: Buffer | null = null;
      const next = (): void => {
        answersDue += 1;
        sentAt = performance.now();
        socket.write(bytes);
      };
      // The chunk is a view of the one read buffer, so what is kept of it has to be copied.
      const keep = (data: Buffer, chunk: Buffer): void => {
        rest = data === chunk ? Buffer.from(data) : data;
      };
      const read = (chunk: Buffer): void => {
        const data: Buffer = rest === null ? chunk : Buffer.concat([rest, chunk]);
        const end = data.indexOf(headEnd);
        if (end < 0) return keep(data, chunk);
        const head = data.toString("latin1", 0, end).toLowerCase();
        const at = head.indexOf("\r\ncontent-length:");
        if (at < 0) return fail(`an answer without content-length: ${head}`);
        const size = end + 4 + parseInt(head.slice(at + 17), 10);
        if (data.length < size) return keep(data, chunk);
        rest = null;
        answersDue -= 1;
        if (
          data.length !== size ||
          head.slice(9, 12) !== status ||
          !bodyIsRight(data.subarray(end + 4))
        ) {
          return fail(`an unexpected answer: ${data.toString("utf8", 0, 1000)}`);
        }
        if (phase === "counting") latencies.push(performance.now() - sentAt);
        if (phase !== "ending") next();
        else if (answersDue === 0) finish(measured);
      };
      const buffer = Buffer.allocUnsafe(1 << 16);
      const socket = connect({
        host: "127.0.0.1",
        port,
        noDelay: true,
        onread: {
          buffer,
          callback: (size) => {
            if (phase !== "over") read(buffer.subarray(0, size));
            return true;
          },
        },
      });
      sockets.push(socket);
      socket.once("connect", next);
      socket.on("error", (error) => fail(error.message));
      socket.on("close", () => fail("the server closed a connection"));
    };

    let from = 0;
    let cpuFrom: NodeJS.CpuUsage;
    const count = (): void => {
      phase = "counting";
      from = performance.now();
      cpuFrom = process.cpuUsage();
    };
    const end = (): void => {
      phase = "ending";
      const seconds = (performance.now() - from) / 1000;
      const cpu = process.cpuUsage(cpuFrom);
      const sorted = Float64Array.from(latencies).sort();
      const percentile = (share: number): number => sorted[Math.floor(sorted.length * share)] ?? 0;
      measured = {
        requestsPerSecond: sorted.length / seconds,
        p50Millis: percentile(0.5),
        p99Millis: percentile(0.99),
        generatorBusy: (cpu.user + cpu.system) / 1e6 / seconds,
      };
      // Requests in flight would burden the other server's round.
      if (answersDue === 0) finish(measured);
    };
    const timers = [
      setTimeout(count, leadMillis),
      setTimeout(end, leadMillis + millis),
      setTimeout(
        () => fail(`${answersDue} answers did not come`),
        leadMillis + millis + lastAnswersMillis,
      ),
    ];
    for (let i = 0; i < connections; i++) open();
  });

process.on("message", (load: Load) => void run(load).then((reply) => process.send!(reply)));
process.on("disconnect", () => process.exit());
