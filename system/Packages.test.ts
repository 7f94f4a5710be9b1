/**
 * The packages, built with the Dockerfile's steps, in projects outside this workspace: the libraries and the server,
 * installed from tarballs, on the oldest Node that each supports and on the newest.
 */
import { storeChecks } from "@parley/core/testing";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { chmod, cp, mkdtemp, readFile, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { basename, delimiter, dirname, join, relative } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { freePort } from "../apps/server/test/FreePort.ts";
import { start } from "../apps/server/test/cli/run.ts";
import { withoutSettings } from "../apps/server/test/withoutSettings.ts";
import { fencesOf, read, root, sectionOf } from "../test/docs/Fences.ts";

const run = promisify(execFile);

const newest = process.execPath;
/** The oldest Node that the server supports, and the oldest that the libraries support. */
let oldest: { readonly server: string; readonly libraries: string };
const nodeOf = async (version: string) =>
  (
    await run("npx", ["--yes", `--package=node@${version}`, "-c", "node -p process.execPath"])
  ).stdout.trim();

/** Returns an environment in which `node` is the given one. */
const on = (
  node: string,
  settings: Readonly<Record<string, string>> = {},
): Record<string, string> => ({
  ...(withoutSettings() as Record<string, string>),
  PATH: [dirname(node), process.env["PATH"]].join(delimiter),
  // pnpm sets this for its commands, which would then find this workspace's packages.
  NODE_PATH: "",
  PARLEY_PORT: "0",
  PARLEY_MANAGEMENT_PORT: "0",
  ...settings,
});

/** The folder that stands in for the image's root directory. */
let image: string;
let project: string;

const instructions = [
  ...read("deploy/Dockerfile")
    .replaceAll("\\\n", "")
    .matchAll(/^([A-Z]+) (.*)$/gm),
].map(([, name, rest]) => ({ name: name!, rest: rest! }));
const inImage = (text: string) =>
  text.replaceAll(/(?<=^|[\s"])\/(src|opt\/parley)\b/g, `${image}/$1`);
const instructionsOf = (instruction: string) =>
  instructions.flatMap(({ name, rest }) => (name === instruction ? [rest] : []));
const variablesOf = (name: string) =>
  Object.fromEntries(
    instructionsOf(name)
      .flatMap((rest) => [...rest.matchAll(/(\w+)=("[^"]*"|\S+)/g)])
      .map(([, name, value]) => [name!, value!.replaceAll('"', "")]),
  );

/** Copies the checkout without the files that deploy/Dockerfile.dockerignore names. */
const copyCheckout = (target: string) => {
  const ignored = read("deploy/Dockerfile.dockerignore").trim().split("\n");
  return cp(root, target, {
    recursive: true,
    filter: (path) => {
      const inside = relative(root, path);
      const name = basename(path);
      return !ignored.some((line) =>
        line.startsWith("**/*.")
          ? name.endsWith(line.slice(4))
          : line === (line.startsWith("**/") ? `**/${name}` : inside),
      );
    },
  });
};

const buildImage = async () => {
  for (const { name, rest } of instructions) {
    if (name === "COPY" && !rest.startsWith("--from=build /opt/parley /opt/parley")) {
      expect(rest).toBe(". /src");
      await copyCheckout(join(image, "src"));
    }
    // The image's user and its volume are not on this machine.
    if (name === "RUN" && !rest.startsWith("install --directory --owner=node ")) {
      const env = { ...on(newest), ...variablesOf("ARG") };
      await run("/bin/sh", ["-c", inImage(rest)], { env, maxBuffer: 2 ** 26 });
    }
  }
};

/** The lines of the code blocks in docs/install.md. */
const documented = fencesOf(read("docs/install.md")).flatMap(({ text }) => text.split("\n"));

/** Runs one or more of the documented commands in the project, combined into one. */
const install = (...commands: ReadonlyArray<string>) => {
  expect(documented).toEqual(expect.arrayContaining([...commands]));
  const packages = commands.map((command) => command.replace(/^npm install/, "")).join("");
  const command = `npm install --no-audit --no-fund ${packages}`;
  return run("/bin/bash", ["-c", command], { cwd: project });
};

/** The packages in the project, ours included. */
let packages: ReadonlyArray<string>;

beforeAll(async () => {
  image = await mkdtemp(join(tmpdir(), "parley-image-"));
  project = await mkdtemp(join(tmpdir(), "parley-project-"));
  await chmod(image, 0o755);
  const [server, libraries] = await Promise.all([
    nodeOf("22.19.0"),
    nodeOf("20.19.0"),
    buildImage(),
  ]);
  oldest = { server, libraries };
  await writeFile(join(project, "package.json"), '{ "private": true, "type": "module" }');
  await symlink(join(image, "src/dist"), join(project, "dist"));
  await install(...documented.filter((line) => /^npm install .*dist\/parley-/.test(line)));
  const lock = await readFile(join(project, "node_modules/.package-lock.json"), "utf8");
  packages = Object.keys(JSON.parse(lock).packages);
  const catalog = read("pnpm-workspace.yaml");
  const tools = ["typescript", '"@types/node"', "fast-check"].map((name) => {
    const version = new RegExp(`^  ${name}: (\\S+)$`, "m").exec(catalog)![1];
    return `${name.replaceAll('"', "")}@${version}`;
  });
  await run("npm", ["install", "--no-audit", "--no-fund", ...tools], { cwd: project });
}, 300_000);
afterAll(async () => {
  await rm(image, { recursive: true, force: true });
  await rm(project, { recursive: true, force: true });
});

describe("the libraries", () => {
  beforeAll(async () => {
    for (const name of ["promise", "own-keys", "client/stream", "handler", "mount", "kit"]) {
      const file = `examples/${name}.ts`;
      await writeFile(join(project, basename(file)), read(file));
    }
    const compilerOptions = {
      target: "ES2022",
      lib: ["ES2024", "DOM", "DOM.Iterable", "DOM.AsyncIterable"],
      types: ["node"],
      module: "NodeNext",
      strict: true,
      outDir: "out",
      rewriteRelativeImportExtensions: true,
    };
    await writeFile(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions }));
    const compiler = join(project, "node_modules/.bin/tsc");
    const { stdout } = await run(compiler, ["-p", "."], { cwd: project }).catch((failed) => failed);
    // A third-party package may lack types that it needs.
    const ours = /^(?!\s|node_modules\/(?!@parley\/))/;
    expect(stdout.split("\n").filter((line: string) => line !== "" && ours.test(line))).toEqual([]);
  });

  const output = async (name: string) =>
    (await run(oldest.libraries, [join(project, "out", `${name}.js`)])).stdout.trim();

  it("promise.ts compiles against the libraries, and prints what docs/library/embedding.md shows", async () => {
    const section = fencesOf(sectionOf(read("docs/library/embedding.md"), "## Without Effect"));
    expect(await output("promise")).toBe(section.find(({ info }) => info === "text")!.text);
  });

  it("the libraries include the conformance kit, which prints the name of each check that passes", async () => {
    expect((await output("kit")).split("\n")).toEqual([
      ...storeChecks.map(({ name }) => name),
      expect.stringMatching(/^5000 random commands /),
    ]);
  });

  it("the SQLite store opens on Node 22.13, and its error on an older Node names that version", async () => {
    const script = `const { openParley } = require("@parley/core/promise"), { sqlite } = require("@parley/store-sqlite");
      const options = { store: sqlite("chats.db"), answerer: () => "Yes." };
      openParley(options).then((parley) => parley.close()).then(() => console.log("open"), ({ message }) => console.log(message))`;
    await writeFile(join(project, "sqlite.cjs"), script);
    const open = async (node: string) =>
      (await run(node, ["sqlite.cjs"], { cwd: project })).stdout.trim();
    expect(await open(await nodeOf("22.13.0"))).toBe("open");
    expect(await open(oldest.libraries)).toMatch(/needs Node 22\.13 or later; this is v20\./);
  });

  it("every entry point of the libraries can be loaded with require", async () => {
    const entries = readdirSync(join(root, "packages")).flatMap((name) => {
      const { publishConfig } = JSON.parse(read(`packages/${name}/package.json`));
      return Object.keys(publishConfig.exports).map((path) => join("@parley", name, path));
    });
    const script = `for (const name of ${JSON.stringify(entries)}) if (Object.keys(require(name)).length === 0) throw name`;
    await writeFile(join(project, "every.cjs"), script);
    await run(oldest.libraries, ["every.cjs"], { cwd: project });
  });
});

describe("the tarballs", () => {
  it("the tarballs contain a README, the changelog and the license", async () => {
    const folder = join(image, "src/dist");
    const tarballs = (await readdir(folder)).filter((name) => name.endsWith(".tgz"));
    expect(tarballs.length).toBeGreaterThan(8);
    for (const tarball of tarballs) {
      const { stdout } = await run("tar", ["-tzf", join(folder, tarball)]);
      for (const file of ["README.md", "CHANGELOG.md", "LICENSE"]) {
        expect(stdout.split("\n"), tarball).toContain(`package/${file}`);
      }
    }
  });

  /** README.md quotes this example. */
  const example = read("examples/quick.ts");

  /** A project whose registry has a stranger's packages under our names, and the requests for the stranger's files. */
  const makeProject = async () => {
    const folder = await mkdtemp(join(tmpdir(), "parley-project-"));
    const downloads: Array<string> = [];
    const registry = createServer(({ url }, response) => {
      const name = decodeURIComponent(url!).slice(1);
      if (name.endsWith(".tgz")) downloads.push(name);
      const dist = { tarball: `${origin}/${name}-${version}.tgz`, shasum: "0".repeat(40) };
      const stranger = {
        name,
        "dist-tags": { latest: version },
        versions: { [version]: { name, version, dist } },
        time: { [version]: "2020-01-01T00:00:00.000Z" },
      };
      response.setHeader("content-type", "application/json").end(JSON.stringify(stranger));
    }).listen(0, "127.0.0.1");
    await once(registry, "listening");
    const origin = `http://127.0.0.1:${(registry.address() as AddressInfo).port}`;
    const files = {
      "package.json": '{ "private": true, "type": "module" }',
      ".npmrc": `@parley:registry=${origin}/`,
      ".yarnrc.yml": `npmScopes: { parley: { npmRegistryServer: "${origin}" } }\nunsafeHttpWhitelist: ["127.0.0.1"]`,
      "yarn.lock": "",
      "quick.ts": example,
    };
    for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
    // Yarn caches tarballs by name and version, even those from an earlier run.
    const cache = join(folder, ".yarn");
    const env = { ...on(newest), YARN_CACHE_FOLDER: cache, YARN_GLOBAL_FOLDER: cache };
    await symlink(join(image, "src/dist"), join(folder, "dist"));
    return {
      folder,
      downloads,
      run: (command: string) =>
        run("/bin/bash", ["-c", command], { cwd: folder, env, timeout: 60_000 }),
      [Symbol.asyncDispose]: async () => {
        registry.close();
        await rm(folder, { recursive: true });
      },
    };
  };

  const all = documented.flatMap(
    (line) => /^npm install (.*dist\/parley-.*)/.exec(line)?.[1] ?? [],
  );
  const { version } = JSON.parse(read("package.json"));
  const yarn = "npx --yes --package=@yarnpkg/cli-dist@4.18.1 yarn";

  it.each([
    ["npm", "npm install", "node"],
    ["pnpm", "npx --yes pnpm@12 add", "node"],
    ["Yarn 1", "npx --yes yarn@1.22.22 add", "node"],
    ["Yarn 4", `${yarn} add`, `${yarn} node`],
  ])(
    "%s installs the tarballs, runs README.md's example, and never fetches our packages from a registry",
    async (_, add, node) => {
      await using project = await makeProject();
      await project.run(`${add} ${all.join(" ")}`);
      const { stdout } = await project.run(`${node} quick.ts`);
      expect(stdout.trim()).toBe(/console\.log\(.*\/\/ (.*)/.exec(example)![1]);
      // Those on which other packages of ours depend are missing.
      await using part = await makeProject();
      await part.run(
        `${add} ./dist/parley-{llm,pages,store-memory,store-pg,store-sqlite}-${version}.tgz`,
      );
      for (const { downloads } of [project, part]) expect(downloads).toEqual([]);
      // A package requested by name does come from the stranger. Most package managers reject its contents. npm and pnpm
      // would ask for them again and again for a minute.
      const variables = "npm_config_fetch_retries=0 pnpm_config_fetch_retries=0";
      await part.run(`${variables} ${add} @parley/core`).catch(() => {});
      expect(part.downloads).not.toEqual([]);
    },
    180_000,
  );

  it("a bundler accepts the libraries without their optional packages, and the program names a missing package only when it needs it", async () => {
    await using project = await makeProject();
    await project.run(`npm install --no-audit --no-fund ${all.join(" ")}`);
    const program = `import { openParley } from "@parley/core/promise";
      import { documents } from "@parley/llm";
      import { memory } from "@parley/store-memory";
      await openParley({ store: memory(), answerer: documents(".") })
        .catch(({ message }) => console.log(message));`;
    await writeFile(join(project.folder, "program.js"), program);
    const options = "--bundle --platform=node --format=esm --outfile=bundle.mjs";
    await project.run(`npx --yes esbuild@0.27.3 program.js ${options}`);
    const { stdout } = await project.run("node bundle.mjs");
    expect(stdout).toMatch(/npm install @effect\/platform-node@4/);
  }, 120_000);

  it("installing the client installs no other package", async () => {
    await using project = await makeProject();
    await project.run(`npm install ./dist/parley-client-${version}.tgz`);
    const lock = await readFile(join(project.folder, "node_modules/.package-lock.json"), "utf8");
    expect(Object.keys(JSON.parse(lock).packages)).toEqual(["node_modules/@parley/client"]);
  });
});

describe("the server", () => {
  it("installing the server installs the libraries and few third-party packages", () => {
    expect(packages.length).toBeLessThanOrEqual(60);
    expect(packages.filter((path) => path.includes("@parley/"))).toHaveLength(9);
  });

  it.each([
    ["22.19", () => oldest.server],
    ["24", () => newest],
  ] as const)(
    "the server answers requests, and its commands run, on Node %s",
    async (version, node) => {
      const data = join(project, `data-${version}`);
      const env = on(node(), { PARLEY_DATA_DIR: data });
      // npx does not pass signals on.
      const options = { cwd: project, detached: true };
      const npx = start([], env, ["npx", "parley", "serve"], options);
      try {
        const [, origin] = await npx.untilPrinted(/has started.*?(http:\/\/[\d.:]+)/);
        const key = (await readFile(join(data, "first-key"), "utf8")).trim();
        expect((await fetch(`${origin}/docs`)).status).toBe(200);
        const askResponse = await fetch(`${origin}/ask/`, {
          method: "POST",
          headers: { "x-api-key": key, "content-type": "application/json" },
          body: '{"query":"How do I change the port?"}',
        });
        expect(await askResponse.text()).toContain("PARLEY_PORT");
        const parley = async (command: string) => {
          const line = `node_modules/.bin/parley ${command}`;
          return (await run("/bin/sh", ["-c", line], { cwd: project, env })).stdout;
        };
        expect(await parley("doctor")).not.toContain("failed");
        await parley("chatbot create --workspace Acme --name Second");
        await Promise.all([
          parley("migrate --dry-run"),
          parley("audit"),
          parley("usage --chatbot Second"),
          parley("key create --chatbot Second --name web"),
          parley("chats export --chatbot Second > /dev/null"),
        ]);
        expect(await parley("chat --chatbot Second < /dev/null")).toBe("");
        await writeFile(join(project, "chatbots.json"), '{ "chatbots": [] }');
        await parley("provision chatbots.json --dry-run");
      } finally {
        if (npx.child.exitCode === null) process.kill(-npx.child.pid!, "SIGTERM");
        await npx.exit;
      }
    },
  );
});

it("the image runs as an unprivileged user, and passes its health check", async () => {
  const command = (name: string) =>
    JSON.parse(inImage(instructionsOf(name)[0]!.replace(/^.*?CMD (?=\[)/, "")));
  const data = await mkdtemp(join(tmpdir(), "parley-image-"));
  await chmod(data, 0o777);
  const env = {
    ...on(newest, variablesOf("ENV")),
    PARLEY_DATA_DIR: data,
    PARLEY_MANAGEMENT_PORT: `0.0.0.0:${await freePort()}`,
    DATABASE_URL: inject("postgresUrl"),
    PARLEY_SCHEMA: `image_${Date.now()}`,
  };
  expect(instructionsOf("USER")).toEqual(["node"]);
  const nobody = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};
  const [node, ...check] = command("HEALTHCHECK");
  const options = { ...nobody, cwd: "/" };
  const server = start(command("CMD"), env, command("ENTRYPOINT"), options);
  try {
    const [output] = await server.untilPrinted(/[^]*has started.*\n/);
    expect(output).toContain("http://0.0.0.0:");
    expect(await readFile(join(data, "first-key"), "utf8")).toMatch(/^prl_/);
    await run(node, check, { env });
  } finally {
    server.child.kill();
    expect(await server.exit).toBe(0);
    await rm(data, { recursive: true });
  }
  await expect(run(node, check, { env })).rejects.toThrow();
  await run(node, check, { env: { ...env, PARLEY_MANAGEMENT_PORT: "0.0.0.0:0" } });
});
