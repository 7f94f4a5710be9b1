import { gzipSync } from "node:zlib";
import { rolldown } from "rolldown";
import { expect, it } from "vitest";

it("the core, the memory store and the handler do not need Node.js, and compress to under 230 kB", async () => {
  const entry = "embedded-parley.js";
  const packages = ["core", "store-memory", "http"];
  const build = await rolldown({
    input: entry,
    cwd: import.meta.dirname,
    platform: "neutral",
    plugins: [
      {
        name: "embedded",
        resolveId: (id) => (id === entry ? `${import.meta.dirname}/${entry}` : null),
        load: (id) =>
          id.endsWith(entry)
            ? packages.map((name) => `export * from "@parley/${name}";`).join("\n")
            : null,
      },
    ],
  });
  const { output } = await build.generate({ format: "es", minify: true });
  expect(output.flatMap((file) => (file.type === "chunk" ? file.imports : []))).toEqual([]);
  const sizes = output.map((file) => gzipSync(file.type === "chunk" ? file.code : "").length);
  const size = sizes.reduce((sum, bytes) => sum + bytes, 0);
  expect(size).toBeGreaterThan(50_000);
  expect(size).toBeLessThan(230_000);
});
