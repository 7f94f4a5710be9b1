/**
 * The server as readers of the documentation start it, but with an empty memory store and on free ports.
 */
import { join } from "node:path";
import { start } from "../../apps/server/test/cli/run.ts";
import { root } from "./Fences.ts";

export type StartedServer = Awaited<ReturnType<typeof startServer>>;

/** Starts the server on a terminal, where a first start prints a key. Resolves once everything has been printed. */
export const startServer = async () => {
  const command = `${process.execPath} ${join(root, "apps/server/src/main.ts")} serve`;
  const settings = { PARLEY_STORE: "memory", PARLEY_PORT: "0", PARLEY_MANAGEMENT_PORT: "0" };
  const { child, exit, untilPrinted } = start(["-qec", command, "/dev/null"], settings, ["script"]);
  const [text] = await untilPrinted(/[^]* has started .*\r?\n/);
  const output = text.replaceAll("\r", "").trimEnd();
  return {
    output,
    origin: new URL(/http:\S+/.exec(output)![0]).origin,
    key: /prl_\w+/.exec(output)![0],
    stop: async () => {
      child.stdin!.end("\x03");
      await exit;
    },
  };
};
