import { expect, it } from "vitest";
import {
  api,
  askApi,
  askPath,
  basePath,
  expectGeneral,
  expectNoEndpoint,
  type Answer,
  type Call,
  type Server,
  type Target,
} from "../client.ts";
import { visitorToken } from "../../visitorToken.ts";

interface Endpoint {
  readonly name: string;
  readonly scope: "read" | "write" | "ask" | "delete" | "post";
  readonly call: (target: Target, call: Call) => Promise<Answer>;
}

const endpoints: ReadonlyArray<Endpoint> = [
  { name: "details", scope: "read", call: (target, call) => api(target, "/details", call) },
  { name: "chats", scope: "read", call: (target, call) => api(target, "/chats", call) },
  {
    name: "history",
    scope: "read",
    call: (target, call) => api(target, "/chats/9007199254740991/history", call),
  },
  {
    name: "create chat",
    scope: "write",
    call: (target, call) => api(target, "/chats", { json: {}, ...call }),
  },
  {
    name: "ask",
    scope: "ask",
    call: (target, call) => askApi(target, { json: { query: "port" }, ...call }),
  },
  ...(
    [
      ["change chat", "write", "PATCH", "", { name: "n" }],
      ["delete chat", "delete", "DELETE", "", undefined],
      ["change entry", "ask", "PATCH", "/history/1", { rating: "good" }],
      ["post entry", "post", "POST", "/history", { text: "t" }],
    ] as const
  ).map(([name, scope, method, path, json]): Endpoint => ({
    name,
    scope,
    call: (target, call) =>
      api(target, `/chats/9007199254740991${path}`, { method, ...(json && { json }), ...call }),
  })),
];

/** The section "The API key" in docs/interface.md, and the order of the checks in "Failures". */
export const auth = (server: Server): void => {
  /** Header values that are not valid keys, apart from the empty string. */
  const invalid = (target: Target): ReadonlyArray<readonly [string, string]> => {
    const { key } = target;
    const middle = Math.floor(key.length / 2);
    const other = key[middle] === "A" ? "B" : "A";
    return [
      ["unknown", target.unknownKey],
      ["expired", target.expiredKey],
      ["one letter changed", key.slice(0, middle) + other + key.slice(middle + 1)],
      ["another key's end", key.slice(0, middle) + target.otherKey.slice(middle)],
      ["with a scheme", `Bearer ${key}`],
      ["very long", "prl_".padEnd(8000, "A")],
      ["Latin-1", "prl_é\u00ff"],
      ["a token with another signature", `${visitorToken(key, "u").slice(0, -5)}AAAAA`],
      ["an expired token", visitorToken(key, "u", { exp: 1 })],
      ["a token of two days", visitorToken(key, "u", { exp: Date.now() / 1000 + 172_800 })],
      ["a token without a user", visitorToken(key, "")],
    ];
  };

  it("every invalid key receives the same 401", async () => {
    const texts = new Set<string>();
    for (const [what, key] of invalid(server())) {
      const answer = await api(server(), "/details", { key });
      expect(answer.status, what).toBe(401);
      texts.add(answer.text);
    }
    for (const { call } of endpoints)
      texts.add((await call(server(), { key: server().unknownKey })).text);
    expect([...texts]).toHaveLength(1);
  });

  it("every endpoint needs a key in x-api-key, and ignores one that stands elsewhere", async () => {
    const { key } = server();
    const answers = [
      await api(server(), `/details?x-api-key=${key}&api_key=${key}`, { key: null }),
      await api(server(), "/details", {
        key: null,
        headers: {
          authorization: `Bearer ${key}`,
          cookie: `x-api-key=${key}`,
          "api-key": key,
          x_api_key: key,
        },
      }),
    ];
    for (const { call } of endpoints) {
      answers.push(await call(server(), { key: null }));
      expectGeneral(await call(server(), { key: "" }), 401);
    }
    for (const answer of answers) expectGeneral(answer, 401);
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
  });

  it("a key that exceeds its rate limit is rejected before the route is checked, with the seconds to wait", async () => {
    const key = server().limitedKey;
    expect((await api(server(), "/details", { key })).status).toBe(200);
    expectNoEndpoint(await api(server(), "/nope", { key }), "GET", `${basePath(server())}/nope`);
    for (const answer of [
      await api(server(), "/details", { key }),
      await api(server(), "/nope", { key }),
      await askApi(server(), { key, json: { query: "port" } }),
    ]) {
      expectGeneral(answer, 403);
      expect(answer.body).toMatchObject({ code: 403002, message: "RATE_EXCEEDED" });
      expect(Number(answer.headers["retry-after"])).toBeGreaterThan(20);
      expect(Number(answer.headers["retry-after"])).toBeLessThanOrEqual(30);
    }
  });

  it("the key is checked before the route, the method, the body and the values", async () => {
    const { text } = await api(server(), "/details", { key: null });
    for (const call of [
      api(server(), "/nope", { key: null }),
      api(server(), "/", { key: null }),
      api(server(), "", { key: null }),
      api(server(), "/details", { key: null, method: "DELETE" }),
      api(server(), "/chats?limit=0", { key: null }),
      api(server(), "/chats/0/history", { key: null }),
      api(server(), "/chats", { key: null, body: "{", headers: {} }),
      api(server(), "/chats", { key: null, json: { name: 1 } }),
      api(server(), "/chats", { key: null, body: " ".repeat(70_000) }),
      api(server(), "/chats", { key: null, json: {}, headers: { "idempotency-key": "é" } }),
      askApi(server(), { key: null, body: "{" }),
      askApi(server(), { key: null, json: {} }),
      askApi(server(), { key: null, method: "GET" }),
      askApi(server(), { key: null }, "/nope"),
      askApi(server(), { key: null, json: { query: "port" } }, ""),
    ]) {
      const answer = await call;
      expect(answer.status).toBe(401);
      expect(answer.text).toBe(text);
    }
  });

  const keyOf = (target: Target) =>
    [
      ["read", target.readKey],
      ["write", target.writeKey],
      ["ask", target.askKey],
      ["delete", target.deleteKey],
      ["post", target.postKey],
    ] as const;

  for (const { call, name, scope } of endpoints)
    it(`${name} needs the scope ${scope} and no other`, async () => {
      const texts = new Set<string>();
      for (const [has, key] of keyOf(server())) {
        const answer = await call(server(), { key });
        if (has === scope) {
          expect([200, 201, 404], answer.text).toContain(answer.status);
          if (answer.status === 404) expect(answer.body.code).toBe(404011);
        } else {
          expectGeneral(answer, 403);
          texts.add(answer.text);
        }
      }
      expect([...texts]).toHaveLength(1);
    });

  it("the scope is checked after the route and the method", async () => {
    const key = server().readKey;
    const base = basePath(server());
    expectNoEndpoint(await api(server(), "/nope", { key }), "GET", `${base}/nope`);
    expectNoEndpoint(
      await api(server(), "/details", { key, method: "PUT" }),
      "PUT",
      `${base}/details`,
    );
    expectNoEndpoint(
      await askApi(server(), { key, method: "GET" }),
      "GET",
      `${askPath(server())}/`,
    );
  });

  it("the scope is checked before the body, the values and the chat", async () => {
    const { askKey: key, readKey } = server();
    const { text } = await api(server(), "/details", { key });
    for (const call of [
      api(server(), "/chats?limit=0", { key }),
      api(server(), "/chats/0/history", { key }),
      api(server(), "/chats/0/history?limit=x", { key }),
      api(server(), "/chats", { key, body: "{" }),
      api(server(), "/chats", { key, body: "x", headers: { "content-type": "text/plain" } }),
      api(server(), "/chats", { key, method: "POST" }),
      api(server(), "/chats", { key, body: " ".repeat(70_000) }),
      api(server(), "/chats", { key, json: { name: 1 } }),
      api(server(), "/chats", { key, json: {}, headers: { "idempotency-key": "é" } }),
      ...["PATCH", "DELETE"].map((method) => api(server(), "/chats/0", { key, method })),
      api(server(), "/chats/0/history?include=x", { key, body: "{" }),
      api(server(), "/chats/0/history/0", { key: readKey, method: "PATCH", body: "{" }),
      askApi(server(), { key: readKey, body: "{" }),
      askApi(server(), { key: readKey, json: {} }),
      askApi(server(), { key: readKey, json: { chat_id: 9007199254740991, query: "port" } }),
    ]) {
      const answer = await call;
      expect(answer.status).toBe(403);
      expect(answer.text).toBe(text);
    }
  });

  it("a body that is not JSON results in 400 before the headers are checked", async () => {
    const headers = { "content-type": "application/json", "idempotency-key": "é" };
    expectGeneral(await api(server(), "/chats", { body: "{", headers }), 400);
  });
};
