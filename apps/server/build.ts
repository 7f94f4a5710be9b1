/**
 * Bundles the server into `dist`, with its documentation and the licences of the bundled code; `pnpm pack` builds the
 * package from it. All dependencies of the package are optional, and are imported when they are needed.
 */
import { cpSync, existsSync, globSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { rolldown } from "rolldown";

const here = import.meta.dirname;
const dist = join(here, "dist");
const root = join(here, "../..");

// Not all of `dist` is removed, because the compiler's output is there, too.
for (const path of ["docs", ".cache", ...globSync("*.{js,md}", { cwd: dist })]) {
  rmSync(join(dist, path), { recursive: true, force: true });
}

const bundle = await rolldown({
  input: { parley: join(here, "src/PublishedCommand.ts") },
  platform: "node",
  external: [/^node:/],
  onLog: (level, { message }) => {
    if (level === "warn") throw new Error(message);
  },
});
const { output } = await bundle.write({ dir: dist, chunkFileNames: "[name].js" });
await bundle.close();

for (const path of ["docs", "README.md"])
  cpSync(join(root, path), join(dist, path), { recursive: true });

/** The folder of the package that contains a module. */
const packageOf = (module: string): string =>
  existsSync(join(dirname(module), "package.json")) ? dirname(module) : packageOf(dirname(module));

const modules = output.flatMap((file) => (file.type === "chunk" ? file.moduleIds : []));
const packages = new Set(
  modules.filter((module) => module.includes("/node_modules/")).map(packageOf),
);
const notices = [...packages].toSorted().map((folder) => {
  const { name, version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const [licence] = globSync("LICEN[CS]E*", { cwd: folder });
  if (licence === undefined) throw new Error(`${name} has no licence`);
  return `## ${name} ${version}\n\n${readFileSync(join(folder, licence), "utf8").trim()}\n`;
});
writeFileSync(
  join(dist, "THIRD-PARTY-NOTICES.md"),
  `# Third-party notices\n\nThe files of this package contain code of these packages.\n\n${notices.join("\n")}`,
);
