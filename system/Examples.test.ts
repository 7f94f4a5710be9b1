/**
 * The Express backend of the examples, on every store, with the Express from `mounts`.
 */
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { rolldown } from "rolldown";
import { afterAll, expect, inject, it } from "vitest";
import { start } from "../apps/server/test/cli/run.ts";
import { freshSchema } from "../packages/store-pg/test/PostgresUnderTest.ts";
import { root } from "../test/docs/Fences.ts";
import { requirePackages } from "./programs/requirePackages.ts";

const run = promisify(execFile);
const mounts = requirePackages("system/mounts");
const folder = mkdtempSync(join(tmpdir(), "parley-express-"));
afterAll(() => rmSync(folder, { recursive: true }));
const source = join(root, "examples/express/server.ts");

/** The stores, each with the function, package and options that replace the example's. */
const stores = {
  postgres: ["postgres", "store-pg", `{ url: process.env["DATABASE_URL"], schema: "SCHEMA" }`],
  sqlite: ["sqlite", "store-sqlite", JSON.stringify(join(folder, "chats.db"))],
  memory: ["memory", "store-memory", ""],
} as const;

/** An answerer that finishes at once, unless the question tells it to wait for its abort signal. */
const answerer = `async function* ({ question, signal }) {
  yield "You asked: ";
  if (question === "Wait.") {
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    console.log("aborted");
  }
  yield question;
}`;

const replaceOnce = (text: string, part: string | RegExp, by: string) => {
  expect(text.match(part), String(part)).not.toBeNull();
  return text.replace(part, () => by);
};

/** Bundles the example with another store and answerer and a second user, as an application would be. */
const bundle = async (name: keyof typeof stores) => {
  const [opener, module, options] = stores[name];
  const example = await readFile(source, "utf8");
  const code = [
    [/postgres\(process.*\)(?=,\n)/, `${opener}(${options.replace("SCHEMA", freshSchema())})`],
    [
      /import \{ postgres \} from "@parley\/store-pg"/,
      `import { ${opener} } from "@parley/${module}"`,
    ],
    [/\(\{ question \}\) => `.*`(?=,)/, answerer],
    [/(?<=users = new Map\(\[)/, `["Bearer token-of-bob", "bob"], `],
  ] as const;
  const adaptedSource = code.reduce((text, [part, by]) => replaceOnce(text, part, by), example);
  const build = await rolldown({
    input: source,
    platform: "node",
    // The `paths` in the tsconfig lead only to types.
    tsconfig: false,
    external: ["express"],
    plugins: [{ name: "store", load: (id) => (id === source ? adaptedSource : null) }],
  });
  const file = join(mounts, `dist/example-over-${name}.mjs`);
  await build.write({ file, format: "es" });
  await build.close();
  return file;
};

it("the Express example has no type errors, and at most 35 lines", async () => {
  const tsc = join(root, "node_modules/.bin/tsc");
  const { stdout } = await run(tsc, ["-p", join(root, "examples/express")]).catch((error) => error);
  expect(stdout).toBe("");
  expect((await readFile(source, "utf8")).trimEnd().split("\n").length).toBeLessThanOrEqual(35);
});

it.each(Object.keys(stores) as Array<keyof typeof stores>)(
  "the Express example over %s creates and lists chats, streams and cancels answers, and keeps users apart",
  async (name) => {
    const settings = { DATABASE_URL: inject("postgresUrl"), PORT: "0" };
    const server = start([await bundle(name)], settings, [process.execPath]);
    try {
      const [, port] = await server.untilPrinted(/port: (\d+)/);
      const send = (path: string, init: RequestInit & { readonly user?: string } = {}) =>
        fetch(`http://127.0.0.1:${port}${path}`, {
          ...init,
          headers: {
            authorization: `Bearer token-of-${init.user ?? "ann"}`,
            "content-type": "application/json",
          },
        });
      const post = (path: string, body: unknown, init: Parameters<typeof send>[1] = {}) =>
        send(path, { method: "POST", body: JSON.stringify(body), ...init });

      expect((await send("/chats", { user: "eve" })).status).toBe(401);
      const chat = (await (await post("/chats", {})).json()) as any;
      expect(chat.userRef).toBe("ann");

      const streamed = await post(`/chats/${chat.id}`, { question: "Are you open?" });
      const events = (await streamed.text())
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line));
      expect(events.at(-1).entry.answer).toBe("You asked: Are you open?");
      expect(events[0]).toMatchObject({ type: "delta" });

      const hangUp = new AbortController();
      const abandonedStream = await post(
        `/chats/${chat.id}`,
        { question: "Wait." },
        { signal: hangUp.signal },
      );
      await abandonedStream.body!.getReader().read();
      hangUp.abort();
      await server.untilPrinted(/aborted/);

      expect((await post(`/chats/${chat.id}`, {})).status).toBe(422);
      expect((await send("/chats/999")).status).toBe(404);
      expect((await send("/chats/abc")).status).toBe(422);
      const history = (await (await send(`/chats/${chat.id}`)).json()) as any;
      expect(history.data.map(({ question }: any) => question)).toEqual(["Are you open?", ""]);
      expect(((await (await send("/chats")).json()) as any).total).toBe(1);
      const bob = { user: "bob" };
      expect((await send(`/chats/${chat.id}`, bob)).status).toBe(404);
      expect((await post(`/chats/${chat.id}`, { question: "Hi" }, bob)).status).toBe(404);
      expect(((await (await send("/chats", bob)).json()) as any).total).toBe(0);
    } finally {
      server.child.kill("SIGTERM");
    }
    expect(await server.exit, server.output.stderr).toBe(0);
  },
);
