import { expect, it } from "@effect/vitest";
import { keyId } from "@parley/core";
import { makeTestHandler } from "@parley/http/test";
import { makeWidgetPages, noWelcome, type WidgetOptions } from "@parley/pages/widget";
import { layerMemory } from "@parley/store-memory";
import { Effect, Redacted, Stream } from "effect";

const serve = (origins: ReadonlyArray<string>, options?: WidgetOptions) =>
  Effect.map(
    makeTestHandler(() => Stream.empty, { widget: makeWidgetPages(options) }, layerMemory, {
      origins,
    }),
    ({ key, send }) => ({
      window: `/widget/${keyId(Redacted.value(key))}`,
      get: (path: string, headers: Record<string, string> = {}) =>
        Effect.flatMap(
          send(path, { method: "GET", headers: { host: "chat.example:3000", ...headers } }),
          (response) =>
            Effect.map(
              Effect.promise(() => response.bytes()),
              (bytes) => ({
                bytes,
                headers: response.headers,
                status: response.status,
                text: new TextDecoder().decode(bytes),
              }),
            ),
        ),
    }),
  );

it.effect(
  "the widget's loader is at most 4 kB when compressed, its window with all files at most 40 kB, and the colours of code at most 8 kB",
  () =>
    Effect.gen(function* () {
      const { get, window } = yield* serve(["https://shop.example"]);
      const sizeOf = (path: string) =>
        Effect.map(get(path, { "accept-encoding": "gzip" }), ({ bytes, status }) => {
          expect([path, status]).toEqual([path, 200]);
          return bytes.length;
        });
      expect(yield* sizeOf("/widget.js")).toBeLessThanOrEqual(4000);
      const { text } = yield* get(window);
      const named = [...text.matchAll(/(?:src|href)="(.*?)"/g)].map(
        ([, path]) => `/widget/${path}`,
      );
      expect(named).toEqual(["/widget/widget.css", "/widget/window.js"]);
      const sizes = yield* Effect.forEach([window, ...named], sizeOf);
      expect(sizes.reduce((sum, size) => sum + size)).toBeLessThanOrEqual(40_000);
      expect(yield* sizeOf("/widget/highlight.js")).toBeLessThanOrEqual(8000);
    }).pipe(Effect.scoped),
);

it.effect(
  "the policy of the widget's window lets only the key's origins frame it, and allows no inline scripts or other hosts",
  () =>
    Effect.gen(function* () {
      const origins = ["https://shop.example", "https://WWW.shop.example:443"];
      const { get, window } = yield* serve(origins);
      const { headers, text } = yield* get(window);
      expect(headers.get("content-security-policy")).toBe(
        "default-src 'none'; script-src 'self'; style-src 'self'; " +
          "img-src 'self' https://shop.example https://www.shop.example; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors https://shop.example https://www.shop.example; " +
          "require-trusted-types-for 'script'; trusted-types 'none'",
      );
      expect(headers.get("set-cookie")).toBeNull();
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(text).toContain("https://www.shop.example&quot;");
      const apart = yield* serve(origins, { answersPort: 3002 });
      const policy = (yield* apart.get(apart.window)).headers.get("content-security-policy");
      expect(policy).toContain("connect-src 'self' chat.example:3002; ");
    }).pipe(Effect.scoped),
);

it.effect("a key without origins has no widget window", () =>
  Effect.gen(function* () {
    const { get, window } = yield* serve([]);
    expect((yield* get(window)).status).toBe(404);
    expect((yield* get("/widget/other.js")).status).toBe(404);
  }).pipe(Effect.scoped),
);

it.effect("the widget greets and offers questions only to the holder of a token", () =>
  Effect.gen(function* () {
    const shop = { greeting: "Hello!", questions: ["Which sizes?"], mayDelete: false };
    const welcome = (token: string) => Effect.succeed(token === "t" ? shop : noWelcome);
    const { get } = yield* serve(["https://shop.example"], { welcome });
    const read = (headers?: Record<string, string>) =>
      Effect.map(get("/widget/questions", headers), ({ headers, text }) => [
        headers.get("cache-control"),
        JSON.parse(text),
      ]);
    expect(yield* read({ "x-api-key": "t" })).toEqual(["no-store", shop]);
    expect(yield* read()).toEqual(["no-store", noWelcome]);
  }).pipe(Effect.scoped),
);

it.effect("a page that requires isolation can show the window without a logo", () =>
  Effect.gen(function* () {
    const { get, window } = yield* serve(["https://shop.example"]);
    const embedder = (path: string) =>
      Effect.map(get(path), ({ headers }) => headers.get("cross-origin-embedder-policy"));
    expect(yield* embedder(window)).toBe("require-corp");
    expect(yield* embedder(`${window}?logo`)).toBe("credentialless");
  }).pipe(Effect.scoped),
);

it.effect("the widget's window knows how long a question may be", () =>
  Effect.gen(function* () {
    const { get, window } = yield* serve(["https://shop.example"]);
    expect((yield* get(window)).text).toContain("&quot;questionLength&quot;:200,");
  }).pipe(Effect.scoped),
);
