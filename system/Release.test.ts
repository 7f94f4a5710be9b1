/**
 * The script that releases a version publishes it to a local registry, and a stranger installs it from there with each
 * package manager.
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { freePort } from "../apps/server/test/FreePort.ts";
import { withoutSettings } from "../apps/server/test/withoutSettings.ts";
import { read, root } from "../test/docs/Fences.ts";
import { requirePackages } from "./programs/requirePackages.ts";

const registry = requirePackages("system/registry");
const folder = mkdtempSync(join(tmpdir(), "parley-release-"));
const checkout = join(folder, "checkout");
const place = {
  GITHUB_SERVER_URL: "https://git.example",
  GITHUB_REPOSITORY: "acme/parley",
  GITHUB_REF_NAME: "v0.1.0",
};
let origin: string;
/** Our scope comes from the local registry, everything else from the default one. */
const useRegistry = (project: string) =>
  writeFileSync(
    join(project, ".npmrc"),
    `@parley:registry=${origin}/\n${origin.slice(5)}/:_authToken=anybody\n`,
  );
let server: ReturnType<typeof spawn>;

const run = async (
  file: string,
  args: ReadonlyArray<string>,
  cwd: string,
  settings: object = {},
) => {
  const env = {
    ...withoutSettings(),
    NODE_PATH: "",
    ...settings,
  };
  const options = { cwd, env, maxBuffer: 2 ** 26 };
  return await promisify(execFile)(file, args, options).catch(({ stderr, stdout }) => {
    throw new Error(`${file} ${args.join(" ")} failed:\n${stdout}${stderr}`);
  });
};

beforeAll(async () => {
  const port = await freePort();
  origin = `http://127.0.0.1:${port}`;
  cpSync(join(registry, "config.yaml"), join(folder, "config.yaml"));
  const bin = join(registry, "node_modules/verdaccio/bin/verdaccio");
  const args = [bin, "--config", join(folder, "config.yaml"), "--listen", origin];
  server = spawn(process.execPath, args, { stdio: "ignore" });
  await vi.waitFor(async () => expect((await fetch(`${origin}/-/ping`)).status).toBe(200), 30_000);
  await run("git", ["clone", "--quiet", root, checkout], folder);
  useRegistry(checkout);
}, 60_000);
afterAll(async () => {
  server.kill();
  await once(server, "exit");
  rmSync(folder, { recursive: true });
});

it("the release script refuses to publish without the place that the packages' links lead to", async () => {
  await expect(run(process.execPath, [".ci/release.mjs"], checkout)).rejects.toThrow(
    /GITHUB_SERVER_URL, GITHUB_REPOSITORY, GITHUB_REF_NAME must be set/,
  );
});

it("the release script publishes every package, with links that lead to the release", async () => {
  await run(
    "npx",
    ["--yes", "pnpm@12", "install", "--frozen-lockfile", "--prefer-offline"],
    checkout,
  );
  await run(process.execPath, [".ci/release.mjs"], checkout, place);
  const paths = readdirSync(join(root, "packages")).map((name) => `packages/${name}`);
  for (const path of [...paths, "apps/server"]) {
    const response = await fetch(`${origin}/@parley/${basename(path)}`);
    const manifest: any = await response.json();
    const { [manifest["dist-tags"].latest]: published } = manifest.versions;
    expect(published).toMatchObject({
      repository: { type: "git", url: "git+https://git.example/acme/parley.git", directory: path },
      homepage: `https://git.example/acme/parley/tree/v0.1.0/${path}#readme`,
      bugs: { url: "https://git.example/acme/parley/issues" },
    });
    const links = [...manifest.readme.matchAll(/\]\(([^)]+)\)/g)].map(([, link]) => link);
    expect(links.length).toBeGreaterThan(0);
    const site = "https://git.example/acme/parley/blob/v0.1.0/";
    for (const link of links) {
      expect(link).toContain(site);
      const [file] = link.slice(site.length).split("#");
      expect(existsSync(join(root, file)), link).toBe(true);
    }
  }
}, 300_000);

const bun = join(import.meta.dirname, "runtimes/node_modules/.bin/bun");
it.each([
  ["npm", "npm", "install"],
  ["pnpm", "npx", "--yes", "pnpm@12", "add"],
  ["Yarn", "npx", "--yes", "yarn@1.22.22", "add"],
  ["Bun", bun, "add"],
])(
  "a stranger installs the release with %s",
  async (name, file, ...args) => {
    const project = join(folder, name);
    mkdirSync(project);
    writeFileSync(join(project, "package.json"), '{ "private": true, "type": "module" }');
    useRegistry(project);
    const example = read("examples/quick.ts");
    writeFileSync(join(project, "quick.ts"), example);
    await run(file, [...args, "@parley/core", "@parley/store-memory", "effect"], project);
    const { stdout } = await run(process.execPath, ["quick.ts"], project);
    expect(stdout.trim()).toBe(/console\.log\(.*\/\/ (.*)/.exec(example)![1]);
  },
  120_000,
);
