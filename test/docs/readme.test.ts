import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { documents, fencesOf, read, sectionOf } from "./Fences.ts";
import { withoutSettings } from "../../apps/server/test/withoutSettings.ts";
import { startServer, type StartedServer } from "./StartedServer.ts";

const run = promisify(execFile);

const minutes = fencesOf(sectionOf(read("README.md"), "## The first five minutes"));

/** The text without the parts that differ from run to run. */
const plain = (text: string): string =>
  text
    .replace(/prl_\w+/g, "prl_KEY")
    .replace(/http:\/\/127\.0\.0\.1:\d+/g, "http://127.0.0.1:3000")
    .replace(/^.* INFO Parley .*$/m, "STARTED")
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, "TIME")
    .replace(/^(Management|Store) .*\n/gm, "")
    .replace(/^id: [^.]+\./gm, "id: TURN.")
    .trim();

describe("the first five minutes", () => {
  let server: StartedServer;
  beforeAll(async () => {
    server = await startServer();
  });
  afterAll(() => server?.stop());

  it("starting for the first time prints what README.md shows", () => {
    expect(minutes[0]!.text.split("\n")[0]).toBe("$ npx --yes pnpm@12 start");
    expect(plain(server.output)).toBe(plain(minutes[0]!.text.replace(/^.*\n/, "")));
  });

  const commands = minutes.flatMap(({ info, text }, at) =>
    info === "sh" && text.startsWith("curl ")
      ? [{ command: text, documented: minutes[at + 1]!.text }]
      : [],
  );
  it("the first five minutes in README.md have three commands", () =>
    expect(commands.length).toBe(3));

  // They run in order, because each builds on the previous ones.
  it.each(commands)(
    "README.md shows what is printed by $command",
    async ({ command, documented }) => {
      const here = command.replaceAll("http://127.0.0.1:3000", server.origin);
      expect(here).not.toBe(command);
      const { stdout } = await run("/bin/sh", ["-c", here], {
        env: { ...withoutSettings(), KEY: server.key },
        timeout: 10_000,
      });
      expect(plain(stdout)).toBe(plain(documented));
    },
  );
});

describe("TypeScript in the documentation", () => {
  const quotes = documents.flatMap((document) =>
    fencesOf(read(document))
      .filter(({ info }) => /^(ts|typescript)\b/.test(info))
      .map((fence) => ({ document, ...fence })),
  );
  it("this test finds the TypeScript in the documentation", () =>
    expect(quotes.length).toBeGreaterThan(0));

  it.each(quotes)("$document quotes $info verbatim", ({ info, text }) => {
    const file = /^ts file=(\S+)$/.exec(info)?.[1];
    expect(file, "every block names its file").toBeDefined();
    expect(text.trim()).not.toBe("");
    expect(`\n${read(file!)}`).toContain(`\n${text}\n`);
  });
});

/** Removes the fenced blocks, because links in what a server prints lead to the server's own documents. */
const withoutFences = (text: string) => text.replace(/^(`{3,})[^`\n]*\n[^]*?\n\1$/gm, "");

describe("links in the documentation", () => {
  const links = documents.flatMap((document) =>
    [...withoutFences(read(document)).matchAll(/\]\(([^)\s]+)\)/g)].map((match) => ({
      document,
      to: match[1]!,
    })),
  );
  const anchorsOf = (markdown: string) =>
    [...markdown.matchAll(/^#+ (.*)$/gm)].map((match) =>
      match[1]!
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, "")
        .replaceAll(" ", "-"),
    );

  it.each(links.filter(({ to }) => !to.startsWith("https:")))(
    "the link to $to in $document resolves",
    ({ document, to }) => {
      const [path, anchor] = to.split("#");
      const target = path === "" ? document : join(document, "..", path!);
      const text = read(target);
      if (anchor !== undefined) expect(anchorsOf(text)).toContain(anchor);
    },
  );
});
