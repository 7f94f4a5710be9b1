/**
 * The server as readers of the documentation start it, but with an empty memory store and on free ports.
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

/** Starts the server on a terminal, where a first start prints a key. Resolves once everything has been printed. */
export const startServer = async (): Promise<StartedServer> => {
  const command = `${process.execPath} ${join(root, "apps/server/src/main.ts")} serve`;
  const child = spawn("script", ["-qec", command, "/dev/null"], {
    stdio: ["pipe", "pipe", "inherit"],
    env: {
      ...withoutSettings(),
      PARLEY_STORE: "memory",
      PARLEY_PORT: "0",
      PARLEY_MANAGEMENT_PORT: "0",
    },
  });
  const exit = once(child, "exit");
  let output = "";
  const complete = new Promise<void>((resolve, reject) => {
    const add = (chunk: Buffer) => {
      output += chunk.toString().replaceAll("\r", "");
      if (/ has started .*\n/.test(output)) resolve();
    };
    child.stdout.on("data", add);
    void exit.then(() => reject(new Error(`the server ended:\n${output}`)));
  });
  await complete;
  return {
    output: output.trimEnd(),
    origin: new URL(/http:\S+/.exec(output)![0]).origin,
    key: /prl_\w+/.exec(output)![0],
    stop: async () => {
      child.stdin.end("\x03");
      await exit;
    },
  };
};
