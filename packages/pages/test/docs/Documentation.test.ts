import { expect, it } from "@effect/vitest";
import { generalCodes, validationCodes } from "@parley/http/contract";
import { makeDocumentation } from "@parley/pages/docs";
import { Ajv2020 } from "ajv/dist/2020.js";
import { Effect, Stream } from "effect";
import { gunzipSync } from "node:zlib";
import { makeTestHandler } from "@parley/http/test";

const makeServer = makeTestHandler(() => Stream.empty, { pages: [makeDocumentation()] });

const describeApi = Effect.gen(function* () {
  const { send } = yield* makeServer;
  const response = yield* send("/openapi.json");
  return (yield* Effect.promise(() => response.json())) as Record<string, any>;
});

type Named = readonly [string, any];

/** Every object in the document with its JSON pointer. */
const walk = (at: string, value: unknown): ReadonlyArray<Named> =>
  typeof value !== "object" || value === null
    ? []
    : [
        [at, value],
        ...Object.entries(value).flatMap(([name, child]) =>
          walk(`${at}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`, child),
        ),
      ];

it.effect("the description lists every error code under a response with that code's status", () =>
  Effect.gen(function* () {
    const { paths } = yield* describeApi;
    const codes = new Map<string, { readonly status: number; readonly code: number }>();
    for (const path of Object.values<any>(paths)) {
      for (const { responses } of Object.values<any>(path)) {
        for (const [status, { content, headers }] of Object.entries<any>(responses)) {
          expect(headers).toHaveProperty("x-request-id");
          for (const [message, { value }] of Object.entries<any>(
            content["application/json"]?.examples ?? {},
          )) {
            expect(value.status).toBe(Number(status));
            const { code } = value.errors?.[0] ?? value;
            codes.set(message, { status: value.status, code });
          }
        }
      }
    }
    const general = Object.entries(generalCodes).map(([message, { code, status }]) => [
      message,
      { status, code },
    ]);
    const validation = Object.entries(validationCodes).map(([message, code]) => [
      message,
      { status: 422, code },
    ]);
    expect(Object.fromEntries(codes)).toEqual(Object.fromEntries([...general, ...validation]));
  }).pipe(Effect.scoped),
);

it.effect("every example and default in the description is valid", () =>
  Effect.gen(function* () {
    const spec = yield* describeApi;
    const ajv = new Ajv2020({ strict: false, formats: { "date-time": true } });
    ajv.addSchema(spec, "openapi");
    let examples = 0;
    const check = (pointer: string, value: unknown) => {
      examples++;
      const isValid = ajv.compile({ $ref: `openapi#${encodeURI(pointer)}` });
      expect(isValid(value), `${pointer}: ${ajv.errorsText(isValid.errors)}`).toBe(true);
    };
    for (const [pointer, value] of walk("", spec)) {
      if ("default" in value && "type" in value) check(pointer, value.default);
      if (Array.isArray(value.examples)) {
        for (const example of value.examples) check(pointer, example);
      } else if ("schema" in value) {
        if ("example" in value) check(`${pointer}/schema`, value.example);
        for (const example of Object.values<any>(value.examples ?? {})) {
          check(`${pointer}/schema`, example.value);
        }
      }
    }
    expect(examples).toBeGreaterThan(100);
  }).pipe(Effect.scoped),
);

it.effect("the description has bounds for integers, and no `anyOf` repeats a type", () =>
  Effect.gen(function* () {
    const spec = yield* describeApi;
    const parameters = (path: string) =>
      Object.fromEntries(
        spec["paths"][path].get.parameters.map(({ name, schema }: any) => [name, schema]),
      );
    expect(parameters("/api/chats")).toMatchObject({
      limit: { type: "integer", minimum: 1, maximum: 100, default: 25 },
      page: { type: "integer", minimum: 1, default: 1 },
      id: { type: "integer" },
    });
    expect(parameters("/api/chats/{chat_id}/history")).toMatchObject({
      chat_id: { type: "integer", minimum: 1 },
    });
    for (const [pointer, { anyOf, minimum }] of walk("", spec)) {
      expect(minimum ?? 0, pointer).toBeGreaterThanOrEqual(0);
      const types = (anyOf ?? []).map((type: object) => JSON.stringify(type));
      expect(new Set(types).size, pointer).toBe(types.length);
    }
  }).pipe(Effect.scoped),
);

it.effect("the server's URL in the description is the one that the client used", () =>
  Effect.gen(function* () {
    const { send } = yield* makeServer;
    const servers = (headers: Record<string, string>) =>
      Effect.gen(function* () {
        const response = yield* send("/openapi.json", { headers });
        return ((yield* Effect.promise(() => response.json())) as any).servers;
      });
    expect(yield* servers({ host: "chat.example.org:8080" })).toEqual([
      { url: "http://chat.example.org:8080" },
    ]);
    expect(yield* servers({ host: "chat.example.org", "x-forwarded-proto": "https" })).toEqual([
      { url: "https://chat.example.org" },
    ]);
    expect(yield* servers({ host: '"><script>' })).toEqual([{ url: "/" }]);
  }).pipe(Effect.scoped),
);

it.effect(
  "the API reference and its files are under 300 kB when compressed, and may run only their own scripts",
  () =>
    Effect.gen(function* () {
      const { send } = yield* makeServer;
      const get = (path: string) =>
        Effect.gen(function* () {
          const response = yield* send(path, { headers: { "accept-encoding": "gzip" } });
          expect(response.status, path).toBe(200);
          const bytes = new Uint8Array(yield* Effect.promise(() => response.arrayBuffer()));
          return { bytes, headers: response.headers };
        });
      const { bytes, headers } = yield* get("/docs");
      const html = gunzipSync(bytes).toString();
      const named = new Set(
        [...html.matchAll(/(?:src|href)="(\/docs\/.*?)"/g)].map(([, path]) => path!),
      );
      expect(named.size).toBe(4);
      let size = bytes.length;
      for (const path of named) size += (yield* get(path)).bytes.length;
      expect(size).toBeLessThan(300_000);
      expect(headers.get("content-security-policy")).toMatch(
        /^default-src 'none'; script-src 'self'; .*require-trusted-types-for 'script'; trusted-types 'none'$/,
      );
      const head = yield* send("/docs", { method: "HEAD" });
      expect([head.status, head.headers.get("etag")]).toEqual([200, headers.get("etag")]);
    }).pipe(Effect.scoped),
);
