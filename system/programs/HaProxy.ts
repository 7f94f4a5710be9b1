/**
 * Debian's HAProxy in front of servers, whose readiness it checks at their management listeners.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../../apps/server/test/FreePort.ts";
import { read } from "../../test/docs/Fences.ts";

const program = "/usr/sbin/haproxy";

export interface HaProxy {
  readonly origin: string;
  /** Whether HAProxy has found every server ready. */
  readonly isComplete: () => Promise<boolean>;
  readonly close: () => Promise<void>;
}

/** Starts HAProxy with the sample `deploy/haproxy.cfg`, in front of servers on this machine. */
export const startHaProxy = async (
  servers: ReadonlyArray<{ readonly port: number; readonly management: number }>,
): Promise<HaProxy> => {
  if (!existsSync(program)) throw new Error(`${program} is missing: install Debian's haproxy`);
  const port = await freePort();
  const directory = await mkdtemp(join(tmpdir(), "parley-haproxy-"));
  const file = join(directory, "haproxy.cfg");
  const remaining = [...servers];
  const configuration = read("deploy/haproxy.cfg")
    .replace(":8080", `127.0.0.1:${port}`)
    .replace(/[\d.]+:3000 check port 3001/g, () => {
      const { management, port } = remaining.shift()!;
      return `127.0.0.1:${port} check port ${management}`;
    });
  const stats = await freePort();
  await writeFile(
    file,
    `${configuration}\nlisten stats\n  bind 127.0.0.1:${stats}\n  stats enable\n  stats uri /\n`,
  );
  const isComplete = async () => {
    const csv = await (await fetch(`http://127.0.0.1:${stats}/;csv`)).text();
    return csv.match(/^parley,(one|two),.*,UP,/gm)?.length === servers.length;
  };
  const proxy = spawn(program, ["-db", "-f", file], { stdio: ["ignore", "ignore", "pipe"] });
  const exit = once(proxy, "exit");
  let output = "";
  proxy.stderr.setEncoding("utf8").on("data", (text: string) => (output += text));
  const close = async () => {
    proxy.kill();
    await exit;
    await rm(directory, { recursive: true, force: true });
  };
  const origin = `http://127.0.0.1:${port}`;
  while (true) {
    const isUp = await fetch(origin).then(
      () => true,
      () => false,
    );
    if (isUp) return { origin, isComplete, close };
    if (proxy.exitCode !== null) {
      await close();
      throw new Error(`HAProxy did not start: ${output}`);
    }
    await sleep(50);
  }
};
