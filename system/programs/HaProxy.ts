/**
 * Debian's HAProxy in front of servers, whose readiness it checks at their management listeners.
 */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { start } from "../../apps/server/test/cli/run.ts";
import { freePort } from "../../apps/server/test/FreePort.ts";
import { read } from "../../test/docs/Fences.ts";

export type HaProxy = Awaited<ReturnType<typeof startHaProxy>>;

/** Starts HAProxy with the sample `deploy/haproxy.cfg`, in front of servers on this machine. */
export const startHaProxy = async (
  servers: ReadonlyArray<{ readonly port: number; readonly management: number }>,
) => {
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
  /** Whether HAProxy has found every server ready. */
  const isComplete = async () => {
    const csv = await (await fetch(`http://127.0.0.1:${stats}/;csv`)).text();
    return csv.match(/^parley,(one|two),.*,UP,/gm)?.length === servers.length;
  };
  const { child, exit, output } = start(["-db", "-f", file], {}, ["/usr/sbin/haproxy"]);
  const close = async () => {
    child.kill();
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
    if (child.exitCode !== null) throw new Error(`HAProxy did not start: ${output.stderr}`);
    await sleep(50);
  }
};
