import { expect, it } from "@effect/vitest";
import { makePlayground } from "@parley/pages/playground";
import { Effect, Stream } from "effect";
import { makeTestHandler } from "@parley/http/test";

const serve = (options?: Parameters<typeof makePlayground>[0]) =>
  Effect.map(
    makeTestHandler(() => Stream.empty, {
      corsOrigins: ["https://a.example"],
      pages: [makePlayground(options)],
    }),
    ({ send }) =>
      (path: string, headers: Record<string, string> = {}, method = "GET") =>
        Effect.flatMap(
          send(path, { method, headers: { host: "parley.test:3000", ...headers } }),
          (response) =>
            Effect.map(
              Effect.promise(() => response.bytes()),
              (bytes) => ({
                text: new TextDecoder().decode(bytes),
                size: bytes.length,
                status: response.status,
                headers: response.headers,
              }),
            ),
        ),
  );

it.effect("the playground and its files are under 60 kB when compressed", () =>
  Effect.gen(function* () {
    const get = yield* serve();
    const { text } = yield* get("/");
    const named = [...text.matchAll(/(?:src|href)="(\/playground\/.*?)"/g)].map(
      ([, path]) => path!,
    );
    let size = 0;
    for (const path of new Set(["/", ...named])) {
      size += (yield* get(path, { "accept-encoding": "gzip" })).size;
    }
    expect(size).toBeLessThan(60_000);
  }).pipe(Effect.scoped),
);

it.effect("the playground serves `/` and the files that the page names, and nothing else", () =>
  Effect.gen(function* () {
    const get = yield* serve();
    const { text } = yield* get("/");
    const named = [...text.matchAll(/(?:src|href)="(.*?)"/g)].map(([, path]) => path!);
    expect(new Set(named)).toHaveLength(5);
    for (const path of named) {
      const { headers, status } = yield* get(path);
      expect(status).toBe(200);
      const head = yield* get(path, {}, "HEAD");
      expect([head.status, head.size]).toEqual([200, 0]);
      expect(head.headers.get("etag")).toBe(headers.get("etag"));
    }
    expect((yield* get("/playground/other.js")).status).toBe(404);
    expect((yield* get("/other")).status).toBe(404);
    expect((yield* get("/robots.txt")).text).toContain("Disallow: /");
    expect((yield* get("/favicon.ico")).headers.get("content-type")).toBe("image/svg+xml");
  }).pipe(Effect.scoped),
);

it.effect("the playground's files are compressed, and sent again only when they have changed", () =>
  Effect.gen(function* () {
    const get = yield* serve();
    let otherTag = '"other"';
    for (const path of ["/", "/playground/page.js"]) {
      const first = yield* get(path, { "accept-encoding": "br, gzip" });
      expect(first.headers.get("content-encoding")).toBe("gzip");
      expect(
        (yield* get(path, { "accept-encoding": "gzip;q=0" })).headers.get("content-encoding"),
      ).toBeNull();
      expect(first.headers.get("cache-control")).toBe("no-cache");
      const etag = first.headers.get("etag")!;
      const again = yield* get(path, { "if-none-match": etag });
      expect([again.status, again.text]).toEqual([304, ""]);
      expect((yield* get(path, { "if-none-match": otherTag })).status).toBe(200);
      otherTag = etag;
    }
  }).pipe(Effect.scoped),
);

it.effect(
  "the playground's policy allows no inline script, no other host, no frame and no form",
  () =>
    Effect.gen(function* () {
      const get = yield* serve();
      const { headers, text } = yield* get("/");
      expect(headers.get("content-security-policy")).toBe(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
          "trusted-types 'none'",
      );
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("referrer-policy")).toBe("no-referrer");
      expect(headers.get("set-cookie")).toBeNull();
      expect(text).not.toContain("https://a.example");
    }).pipe(Effect.scoped),
);

it.effect(
  "the playground's policy allows the answers interface's own port, on the host that the browser uses",
  () =>
    Effect.gen(function* () {
      const get = yield* serve({ answersPort: 3002 });
      const { headers, text } = yield* get("/");
      expect(headers.get("content-security-policy")).toContain(
        "connect-src 'self' parley.test:3002; ",
      );
      expect(text).toContain("https://a.example");
      for (const host of ["a.example; script-src *", "[::1", "a b"]) {
        const policy = (yield* get("/", { host })).headers.get("content-security-policy");
        expect(policy).toContain("connect-src 'self'; ");
      }
    }).pipe(Effect.scoped),
);
