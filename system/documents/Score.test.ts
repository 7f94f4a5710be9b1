/**
 * How often the page that answers a question is among the first three: in folders that npm packages ship, and in two
 * small ones beside this file. It measures the search; nothing in the search may be there because of these questions.
 */
import { openParley } from "@parley/core/promise";
import { documents } from "@parley/llm";
import { memory } from "@parley/store-memory";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
const run = promisify(execFile);

/** The packages with the folders of their documents. */
const packages = {
  fastify: ["fastify@5.12.8", "docs"],
  pino: ["pino@9.14.0", "docs"],
  npm: ["npm@11.21.2", "docs/content"],
} as const;

let home: string;
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), "parley-score-"));
});
afterAll(() => rm(home, { recursive: true, force: true }));

const folderOf = async (name: string): Promise<string> => {
  if (!(name in packages)) return join(import.meta.dirname, name);
  const [specifier, documents] = packages[name as keyof typeof packages];
  const { stdout } = await run("npm", ["pack", specifier, "--silent"], { cwd: home });
  await mkdir(join(home, name));
  await run("tar", ["xzf", stdout.trim(), "-C", name, "--strip-components=1"], { cwd: home });
  return join(home, name, documents);
};

/** Ten percent below the 91 that the search reached when the questions were written. */
const gate = 82;

it("the right page is among the first three for at least 82 of 100 questions", async () => {
  const text = await readFile(join(import.meta.dirname, "questions.txt"), "utf8");
  let [hits, count] = [0, 0];
  for (const [, name, lines] of text.matchAll(/^\[(.+)\]\n([^[]+)/gm)) {
    const answerer = documents(await folderOf(name!));
    const parley = await openParley({ store: memory(), answerer, log: false });
    const bot = await parley.chatbot({ workspace: "Score", name: name!, sourceUrl: "/{path}" });
    const questions = lines!.trim().split("\n");
    const misses: Array<string> = [];
    for (const line of questions) {
      const [question, pages] = line.split(" -> ") as [string, string];
      const { entry } = await bot.ask(null, question, { include: ["metadata"] });
      const sources = (entry.metadata?.["sources"] ?? []) as ReadonlyArray<{
        readonly url: string;
      }>;
      const paths = sources.map(({ url }) => url.slice(1));
      if (!pages.split(", ").some((page) => paths.includes(page)))
        misses.push(`  ${question}: ${paths.join(", ")}`);
    }
    await parley.close();
    const right = questions.length - misses.length;
    hits += right;
    count += questions.length;
    console.log([`${name}: ${right} of ${questions.length}`, ...misses].join("\n"));
  }
  console.log(`All folders: ${hits} of ${count}`);
  expect(count).toBe(100);
  expect(hits).toBeGreaterThanOrEqual(gate);
}, 300_000);
