import * as NodeServices from "@effect/platform-node/NodeServices";
import { assert, it } from "@effect/vitest";
import { readKnowledge } from "@parley/llm";
import { makeGuide } from "@parley/pages/guide";
import { Effect } from "effect";
import { HttpServerRequest, HttpServerResponse } from "effect/http";
import { readdir } from "node:fs/promises";
import { join } from "node:path";

const root = join(import.meta.dirname, "../../../..");
const readme = join(root, "README.md");
const folder = join(root, "docs");

/** Makes a function that reads a page of the guide. It returns `undefined` for a path that is not in the guide. */
const makeReader = Effect.gen(function* () {
  const knowledge = yield* readKnowledge(folder, [readme]);
  const search = (question: string, limit: number) =>
    Effect.succeed(knowledge.search(question, limit));
  const guide = yield* makeGuide({ readme, folder, search });
  const basePaths = { general: "/api", answers: "/ask" } as const;
  const listener = {
    basePaths,
    serves: ["general"],
    corsOrigins: [],
    questionLength: 200,
  } as const;
  const respond = yield* guide(listener);
  return (path: string, headers: Record<string, string> = {}) => {
    const request = new Request(`http://parley.test${path}`, { headers });
    const response = respond(HttpServerRequest.fromWeb(request));
    return response === undefined
      ? Effect.undefined
      : Effect.flatMap(response, (sent) => {
          const web = HttpServerResponse.toWeb(sent);
          return Effect.promise(async () => ({
            headers: web.headers,
            status: web.status,
            text: await web.text(),
          }));
        });
  };
});

it.effect("every link and picture in the guide refers to an existing page, file or heading", () =>
  Effect.gen(function* () {
    const read = yield* makeReader;
    const pages = new Map<string, string>();
    const open = ["/docs/guide"];
    const anchors: Array<string> = [];
    for (let address = open.pop(); address !== undefined; address = open.pop()) {
      if (pages.has(address) || address === "/docs") continue;
      const page = yield* read(address);
      assert.isDefined(page, address);
      assert.notInclude(
        page!.text,
        ` src=""`,
        `${address} has a picture that the guide does not serve`,
      );
      pages.set(address, page!.text);
      for (const [, link] of page!.text.matchAll(/ (?:href|src)="([^"]*)"/g)) {
        if (/^https?:/.test(link!)) continue;
        const [path, anchor] = link!.split("#");
        open.push(path || address);
        if (anchor !== undefined) anchors.push(`${path || address}#${anchor}`);
      }
    }
    assert.isAbove(pages.size, 16);
    for (const link of anchors) {
      const [path, anchor] = link.split("#");
      assert.include(pages.get(path!), ` id="${anchor}"`, link);
    }
  }).pipe(Effect.provide(NodeServices.layer)),
);

it.effect(
  "a search of the guide finds passages, says if there are none, and escapes the question",
  () =>
    Effect.gen(function* () {
      const read = yield* makeReader;
      const results = yield* read("/docs/guide?q=change+the+port");
      assert.include(results!.text, `<a href="/docs/settings#change-the-port">`);
      const none = yield* read("/docs/guide?q=%22%3E%3Czzyzx%3Exyzzy");
      assert.include(none!.text, `value="&quot;&gt;&lt;zzyzx&gt;xyzzy"`);
      assert.notInclude(none!.text, "<zzyzx>");
      assert.include(none!.text, "<p>No results.</p>");
      assert.match(none!.headers.get("content-security-policy")!, /^default-src 'none'; /);
    }).pipe(Effect.provide(NodeServices.layer)),
);

it.effect("the guide finds a document by a word, and has a page for a wrong address", () =>
  Effect.gen(function* () {
    const read = yield* makeReader;
    const results = (yield* read("/docs/guide?q=docker"))!;
    assert.include(results.text, `<a href="/docs/install`);
    const missing = (yield* read("/docs/nowhere", { accept: "text/html,*/*" }))!;
    assert.strictEqual(missing.status, 404);
    assert.include(missing.text, `<a href="/docs/faq"`);
    assert.isUndefined(yield* read("/docs/nowhere", { accept: "application/json" }));
    const page = (yield* read("/docs/install"))!;
    assert.match(page.text, /<h2 id="([^"]+)">.*<a class="anchor" href="#\1"/);
    assert.match(page.text, /Previous: <a/);
    assert.strictEqual(page.headers.get("cross-origin-opener-policy"), "same-origin");
  }).pipe(Effect.provide(NodeServices.layer)),
);

it.effect("the guide lists every document with a summary, and each page links to the next", () =>
  Effect.gen(function* () {
    const read = yield* makeReader;
    const { text } = (yield* read("/docs/guide"))!;
    const main = text.slice(text.indexOf("<main"));
    const listed = [...main.matchAll(/<a href="(\/docs\/[^"#]*)">[^<]*<\/a><span class="quiet">/g)];
    const names = (yield* Effect.promise(() => readdir(folder, { recursive: true })))
      .filter((name) => name.endsWith(".md"))
      .map((name) => `/docs/${name.slice(0, -3)}`);
    const documents = ["/docs/README", ...names].toSorted();
    assert.deepStrictEqual(listed.map(([, address]) => address).toSorted(), documents);
    const visited: Array<string> = [];
    for (let next: string | undefined = "/docs/README"; next;) {
      visited.push(next);
      const text: string = (yield* read(next))!.text;
      next = /Next: <a href="([^"]*)"/.exec(text)?.[1];
    }
    assert.deepStrictEqual(visited.toSorted(), documents);
    assert.include((yield* read("/docs/operations"))!.text, '<a href="#upgrade">');
  }).pipe(Effect.provide(NodeServices.layer)),
);

it.effect("an address that ends in .md leads to the same page, and /docs/ leads to the guide", () =>
  Effect.gen(function* () {
    const read = yield* makeReader;
    assert.include((yield* read("/docs/"))!.text, "<h1>Guide</h1>");
    assert.include((yield* read("/docs/faq.md"))!.text, "Questions and answers</h1>");
    assert.include((yield* read("/docs/library/client.md"))!.text, "The client</h1>");
  }).pipe(Effect.provide(NodeServices.layer)),
);

it.effect("a document's comments are not shown", () =>
  Effect.gen(function* () {
    const read = yield* makeReader;
    const { text } = (yield* read("/docs/faq"))!;
    assert.notMatch(text, /<!--|&lt;!--/);
  }).pipe(Effect.provide(NodeServices.layer)),
);

it.effect("a path that is not a document in the folder is not in the guide", () =>
  Effect.gen(function* () {
    const read = yield* makeReader;
    for (const path of ["/docs/nowhere", "/docs/nowhere.md", "/docs/%2e%2e/package.json"]) {
      assert.isUndefined(yield* read(path), path);
    }
  }).pipe(Effect.provide(NodeServices.layer)),
);
