/**
 * The server as its readers start it, over an empty memory store, on free ports.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { withoutSettings } from "../../apps/server/test/withoutSettings.ts";
import { root } from "./Fences.ts";

export interface StartedServer {
  readonly output: string;
  readonly origin: string;
  readonly key: string;
  readonly stop: () => Promise<void>;
}

/** Resolves once the server has printed everything that a first start prints. */
export const startServer = async (): Promise<StartedServer> => {
  const child = spawn(process.execPath, [join(root, "apps/server/src/main.ts"), "serve"], {
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      ...withoutSettings(),
      PARLEY_STORE: "memory",
      PARLEY_PORT: "0",
      PARLEY_MANAGEMENT_PORT: "0",
    },
  });
  const exited = once(child, "exit");
  let output = "";
  const complete = new Promise<void>((resolve, reject) => {
    const add = (chunk: Buffer) => {
      output += chunk.toString();
      if (/"query":.*\n/.test(output)) resolve();
    };
    child.stdout.on("data", add);
    child.stderr.on("data", add);
    void exited.then(() => reject(new Error(`the server ended:\n${output}`)));
  });
  await complete;
  return {
    output: output.trimEnd(),
    origin: new URL(/http:\S+/.exec(output)![0]).origin,
    key: /prl_\w+/.exec(output)![0],
    stop: async () => {
      child.kill("SIGINT");
      await exited;
    },
  };
};
