import { expect, it } from "@effect/vitest";
import { keyId, type KeyRecord } from "@parley/core";
import { signVisitorToken, type WidgetPages } from "@parley/http";
import { layerMemory } from "@parley/store-memory";
import { Effect, Redacted, Stream } from "effect";
import { HttpServerResponse } from "effect/http";
import { makeTestHandler, usage } from "../TestHandler.ts";

const signingSecret = "5".repeat(64);
const anonymous: Partial<KeyRecord> = {
  signingSecret,
  origins: ["https://shop.example", "https://www.shop.example"],
  anonymous: true,
  tokensPerDay: 1000,
  visitorRatePerMinute: 3,
};

const pages: WidgetPages = {
  file: ({ url }) =>
    url === "/widget.js" ? Effect.succeed(HttpServerResponse.text("loader")) : undefined,
  document: (_, { origins }) => Effect.succeed(HttpServerResponse.text(origins.join(" "))),
};

/** Creates a server with one key, which takes its clients' addresses from the header `x-client`. */
const setUp = Effect.fnUntraced(function* (fields: Partial<KeyRecord> = anonymous) {
  const { handler, key, send } = yield* makeTestHandler(
    () => Stream.make({ _tag: "Delta", text: "a" }, { _tag: "Usage", usage }),
    { clientAddress: ({ headers }) => headers["x-client"], widget: pages },
    layerMemory,
    fields,
  );
  const id = keyId(Redacted.value(key))!;
  const ask = (address: string, former?: string, kid = id) =>
    Effect.promise(async () => {
      const headers = { "x-client": address, ...(former !== undefined && { "x-api-key": former }) };
      const url = `http://parley.test/widget/${kid}/token`;
      const response = await handler(new Request(url, { method: "POST", headers }));
      const body: any = await response.json();
      return { status: response.status, headers: response.headers, body };
    });
  return { id, ask, send };
});

const subOf = (token: string) =>
  JSON.parse(Buffer.from(token.split(".")[1]!, "base64url").toString()).sub as string;

it.live("an anonymous visitor receives a token, and keeps the same chats on renewing it", () =>
  Effect.gen(function* () {
    const { ask, id, send } = yield* setUp();
    const [first, second] = [yield* ask("192.0.2.1"), yield* ask("192.0.2.1")];
    expect(first.status).toBe(201);
    expect(first.headers.get("cache-control")).toBe("no-store");
    expect(Object.keys(first.body)).toEqual(["token", "expires_at"]);
    const millis = Date.parse(first.body.expires_at) - Date.now();
    expect(Math.abs(millis - 3_600_000)).toBeLessThan(10_000);
    expect(subOf(first.body.token)).toMatch(/^visitor-[\w-]{36}$/);
    expect(subOf(second.body.token)).not.toBe(subOf(first.body.token));
    const headers = { "x-api-key": first.body.token };
    const created = yield* send("/api/chats", { method: "POST", body: "{}", headers });
    const { data } = yield* Effect.promise((): Promise<any> => created.json());
    expect(data.userRef).toBe(subOf(first.body.token));
    const renewed = yield* ask("198.51.100.9", first.body.token);
    expect(subOf(renewed.body.token)).toBe(data.userRef);
    // The visitor's third request this minute: the first two created a chat and renewed the token.
    yield* send("/api/chats", { headers });
    expect((yield* ask("192.0.2.1", first.body.token)).body.message).toBe("RATE_EXCEEDED");
    const days = (n: number) =>
      signVisitorToken({
        keyId: id,
        signingSecret,
        visitor: "visitor-x",
        expiresAt: new Date(Date.now() - n * 86_400_000),
      });
    expect(subOf((yield* ask("192.0.2.1", yield* days(29.9))).body.token)).toBe("visitor-x");
    expect((yield* ask("192.0.2.1", yield* days(30.1))).status).toBe(401);
  }).pipe(Effect.scoped),
);

it.live("a token is renewed only if it belongs to an anonymous visitor of the key", () =>
  Effect.gen(function* () {
    const { ask, id } = yield* setUp();
    const expiresAt = new Date(Date.now() + 60_000);
    const claims = { keyId: id, signingSecret, visitor: "visitor-x", expiresAt };
    for (const former of [
      "",
      "x",
      yield* signVisitorToken({ ...claims, visitor: "user-7" }),
      yield* signVisitorToken({ ...claims, visitor: "Visitor-x" }),
      yield* signVisitorToken({ ...claims, signingSecret: "6".repeat(64) }),
      yield* signVisitorToken({ ...claims, keyId: "zzzzzzzzzzzz" }),
    ]) {
      const { body, status } = yield* ask("192.0.2.1", former);
      expect([status, body.message], former).toEqual([401, "API_KEY_NOT_VALID"]);
    }
  }).pipe(Effect.scoped),
);

it.live("new visitors are limited per client network, whether IPv4 or IPv6, and per key", () =>
  Effect.gen(function* () {
    const { ask } = yield* setUp();
    const began = performance.now();
    const outcomes = (addresses: ReadonlyArray<string>) =>
      Effect.forEach(addresses, (address) => Effect.map(ask(address), ({ status }) => status));
    const many = <A>(n: number, of: (at: number) => A) =>
      Array.from({ length: n }, (_, at) => of(at));
    // These are one network: their first 64 bits are equal, however they are written.
    const same = ["2001:db8::1", "2001:0DB8:0:0:ffff::", "2001:db8:0:0:1:2:3:4", "2001:db8::2"];
    expect(yield* outcomes([...same, ...same, ...same])).toEqual([
      ...many(10, () => 201),
      403,
      403,
    ]);
    const others = ["2001:db8:0:1::1", "::ffff:192.0.2.1", "192.0.2.2"];
    expect(yield* outcomes(others)).toEqual(many(3, () => 201));
    expect(yield* outcomes(many(11, (at) => `::ffff:c633:${at + 1}`))).toEqual(many(11, () => 201));
    // NAT64 puts all IPv4 clients below one prefix.
    const translated = [
      ...many(11, (at) => `64:ff9b::c0${at + 16}:201`),
      ...many(11, (at) => `64:ff9b::198.${at}.0.1`),
    ];
    expect(yield* outcomes(translated)).toEqual(many(22, () => 201));
    expect(yield* outcomes(many(10, () => "192.0.2.1"))).toEqual([...many(9, () => 201), 403]);
    const refused = yield* ask("192.0.2.1");
    expect(refused.body).toEqual({ status: 403, code: 403002, message: "RATE_EXCEEDED" });
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    // The key allows 300 new visitors at once, and 5 more each second.
    let visitors = 10 + 3 + 11 + 22 + 9;
    for (let at = 0; (yield* ask(`10.${at}.0.1`)).status === 201; at++) visitors++;
    expect(visitors).toBeGreaterThanOrEqual(300);
    expect(visitors).toBeLessThanOrEqual(301 + (5 * (performance.now() - began)) / 1000);
  }).pipe(Effect.scoped),
);

it.live.each([
  ["the many networks of one IPv6 client", 40, (at: number) => `2001:db8:7:${at.toString(16)}::1`],
  ["the neighbours of one IPv4 client", 40, (at: number) => `198.51.100.${at}`],
  ["one IPv6 provider", 120, (at: number) => `2001:db8:${at.toString(16)}::1`],
  ["one IPv4 provider", 120, (at: number) => `198.51.${at}.1`],
] as const)("new visitors from %s leave room for those from elsewhere", ([, most, addressOf]) =>
  Effect.gen(function* () {
    const { ask } = yield* setUp();
    const began = performance.now();
    let visitors = 0;
    for (let at = 0; at < 200; at++) if ((yield* ask(addressOf(at))).status === 201) visitors++;
    expect(visitors).toBeGreaterThanOrEqual(most);
    expect(visitors).toBeLessThanOrEqual(most + 1 + (most / 60_000) * (performance.now() - began));
    for (let at = 0; at < 20; at++) expect((yield* ask(`203.0.${at}.1`)).status).toBe(201);
  }).pipe(Effect.scoped),
);

it.live("a key that is unknown, expired or without anonymous visitors gets the same 404", () =>
  Effect.gen(function* () {
    const bodies = new Set<string>();
    for (const fields of [
      { ...anonymous, anonymous: false },
      { ...anonymous, signingSecret: null },
      { ...anonymous, expiresAt: new Date(Date.now() - 1) },
      {},
    ]) {
      const { ask, id, send } = yield* setUp(fields);
      const { body, status } = yield* ask("192.0.2.1");
      expect(status).toBe(404);
      bodies.add(JSON.stringify(body).replaceAll(id, "<id>"));
      const shown = yield* send(`/widget/${id}`);
      const isShown = "origins" in fields && !("expiresAt" in fields);
      expect(shown.status).toBe(isShown ? 200 : 404);
    }
    const { ask } = yield* setUp();
    const kid = "zzzzzzzzzzzz";
    bodies.add(
      JSON.stringify((yield* ask("192.0.2.1", undefined, kid)).body).replaceAll(kid, "<id>"),
    );
    expect([...bodies]).toEqual([
      '{"status":404,"code":400001,"message":"INVALID_PATH","method":"POST","path":"/widget/<id>/token"}',
    ]);
  }).pipe(Effect.scoped),
);

it.live(
  "the window's document receives the key's origins, and a path that is not a file is rejected",
  () =>
    Effect.gen(function* () {
      const { id, send } = yield* setUp();
      const textOf = (path: string, method = "GET") =>
        Effect.flatMap(send(path, { method }), (response) => Effect.promise(() => response.text()));
      expect(yield* textOf(`/widget/${id}`)).toBe("https://shop.example https://www.shop.example");
      expect(yield* textOf("/widget.js")).toBe("loader");
      for (const [path, method] of [
        ["/widget/other.js", "GET"],
        [`/widget/${id}/`, "GET"],
        [`/widget/${id}/token`, "GET"],
        [`/widget/${id}`, "POST"],
        [`/widget/${id}x`, "GET"],
      ] as const)
        expect(yield* textOf(path, method)).toContain("INVALID_PATH");
    }).pipe(Effect.scoped),
);
