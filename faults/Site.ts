/**
 * Everything a server needs beside its program, in a directory of its own: documents, a chatbot with a
 * key, and room for the database. It outlives the servers that are started on it.
 */
import { execFileSync } from "node:child_process";
import { chmod, mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { withoutSettings } from "../apps/server/test/withoutSettings.ts";

export interface Site {
  readonly directory: string;
  readonly dataDir: string;
  readonly key: string;
  readonly environment: NodeJS.ProcessEnv;
  /** Removes the files; nothing may run on them any more. */
  readonly remove: () => Promise<void>;
}

export const main = fileURLToPath(new URL("../apps/server/src/main.ts", import.meta.url));

export const helloMessage = "Hello! What would you like to know?";

/** What the questions are answered with. */
const passage = "The server listens on port 3000. Set PARLEY_PORT to change the port.";

export const makeSite = async (): Promise<Site> => {
  const directory = await mkdtemp(join(tmpdir(), "parley-faults-"));
  // As root, PostgreSQL runs as another user, who must get through.
  await chmod(directory, 0o711);
  const dataDir = join(directory, "data");
  const knowledge = join(directory, "knowledge");
  const provision = join(directory, "provision.json");
  const environment = {
    ...withoutSettings(),
    PARLEY_STORE: "embedded",
    PARLEY_DATA_DIR: dataDir,
    PARLEY_PORT: "0",
    PARLEY_MANAGEMENT_PORT: "0",
    PARLEY_KNOWLEDGE_DIR: knowledge,
    PARLEY_PROVISION: provision,
  };
  const key = execFileSync(process.execPath, [main, "key", "generate"], {
    cwd: directory,
    env: withoutSettings(),
    encoding: "utf8",
  }).trim();
  await mkdir(knowledge);
  await writeFile(join(knowledge, "ports.md"), `# Ports\n\n${passage}\n`);
  await writeFile(
    provision,
    JSON.stringify({
      chatbots: [
        {
          workspace: "Faults",
          name: "Faults bot",
          helloMessage,
          keys: [{ key, scopes: ["read", "write", "ask"] }],
        },
      ],
    }),
    { mode: 0o600 },
  );
  return {
    directory,
    dataDir,
    key,
    environment,
    remove: async () => {
      // Elsewhere, if that other user could not get through.
      const home = await realpath(join(dataDir, "postgres")).catch(() => directory);
      for (const path of [home, directory]) await rm(path, { recursive: true, force: true });
    },
  };
};
