/**
 * Bundles programs, and runs Workers in workerd, as the platform would.
 */
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { rolldown } from "rolldown";
import { requirePackages } from "../programs/requirePackages.ts";

/** This folder, which is not part of the workspace. */
export const runtimes = requirePackages("system/runtimes");

/** Bundles a program of this folder, or one whose path is given, and returns its modules, the program's first. */
export const bundle = async (
  program: string,
  platform: "node" | "neutral",
  dir?: string,
): Promise<ReadonlyArray<{ readonly fileName: string; readonly code: string }>> => {
  const build = await rolldown({
    input: join(runtimes, program),
    platform,
    external: /^(node|cloudflare):/,
    ...(platform === "neutral" && {
      resolve: { conditionNames: ["workerd", "import", "default"], mainFields: ["module", "main"] },
    }),
  });
  const names = { entryFileNames: "[name].mjs", chunkFileNames: "[name].mjs" };
  const { output } = await (dir === undefined
    ? build.generate({ format: "es", ...names })
    : build.write({ format: "es", ...names, dir }));
  return output.flatMap((file) => (file.type === "chunk" ? file : []));
};

/**
 * Starts a Worker with classes of Durable Objects, by their bindings. Their storage is SQLite in a folder, or in memory.
 * Its modules are loaded as a Worker's are: what they may not do during import, such as set a timer, makes this fail.
 */
export const startWorker = async (
  program: string,
  classes: Readonly<Record<string, string>>,
  { bindings = {}, storage }: { readonly bindings?: object; readonly storage?: string } = {},
) => {
  const modules = await bundle(program, "neutral");
  const { Miniflare } = await import(
    pathToFileURL(join(runtimes, "node_modules/miniflare/dist/src/index.js")).href
  );
  const miniflare = new Miniflare({
    modulesRoot: "/",
    modules: modules.map(({ code, fileName }) => ({
      type: "ESModule",
      path: `/${fileName}`,
      contents: code,
    })),
    compatibilityDate: "2026-07-30",
    compatibilityFlags: ["nodejs_compat"],
    durableObjects: Object.fromEntries(
      Object.entries(classes).map(([name, className]) => [name, { className, useSQLite: true }]),
    ),
    ...(storage !== undefined && { durableObjectsPersist: storage }),
    bindings,
  });
  const origin: URL = await miniflare.ready;
  return {
    origin: origin.origin,
    fetch: (path: string, init?: RequestInit) => fetch(new URL(path, origin), init),
    [Symbol.asyncDispose]: (): Promise<void> => miniflare.dispose(),
  };
};
