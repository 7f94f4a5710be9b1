import { beforeEach, describe, expect, it } from "vitest";
import {
  anywhere,
  api,
  askApi,
  askPath,
  basePath,
  exchange,
  expectGeneral,
  expectNoEndpoint,
  raw,
  requestText,
  type Server,
  skipUnlessOurs,
} from "../client.ts";

/** Paths that are not endpoints in docs/interface.md, and addresses outside the two interfaces. */
export const paths = (server: Server): void => {
  it("a path or method under the general interface's address that no endpoint has is INVALID_PATH", async () => {
    const base = basePath(server());
    const paths = "/ /nope /details/ //details /detailss /chats/ /chats/1 /chats/1/history/ /ask";
    const more = ["", "/openapi.json", "/%E2%82", "/%C3%A9", `/${"a".repeat(4000)}`];
    for (const path of [...paths.split(" "), ...more])
      expectNoEndpoint(await api(server(), path), "GET", `${base}${path}`);
    for (const [path, methods] of [
      ["/details", "POST TRACE PROPFIND"],
      ["/chats", "PUT DELETE OPTIONS PATCH QUERY"],
      ["/chats/1/", "DELETE"],
      ["/chats/1/history", "PATCH"],
      ["/chats/1/history/1", "DELETE"],
      ["", "POST"],
    ] as const)
      for (const method of methods.split(" "))
        expectNoEndpoint(await api(server(), path, { method }), method, `${base}${path}`);
    for (const query of ["?", "?x=1?y=2", "?%zz"])
      expectNoEndpoint(await api(server(), `/nope${query}`), "GET", `${base}/nope`);
    // An empty chat_id.
    expect((await api(server(), "/chats//history")).status).toBe(404);
  });

  it("HEAD under the general interface's address is 404 without a body", async () => {
    for (const path of ["/details", "/nope"])
      expect((await api(server(), path, { method: "HEAD" })).status).toBe(404);
  });

  it("an unknown path outside the interfaces is INVALID_PATH, and needs no key", async () => {
    const paths =
      "// /playground /playground/other.js /nope /ASK/ /health /metrics /docs/x /%61pi/details " +
      `/..%2f..%2fetc/passwd /% /${"a".repeat(4000)}`;
    for (const path of paths.split(" "))
      expectNoEndpoint(await anywhere(server(), path), "GET", path);
    for (const method of ["POST", "OPTIONS"])
      expectNoEndpoint(await anywhere(server(), "/nope", { method }), method, "/nope");
  });

  it("the path in a 404 is exactly as received, not decoded", async () => {
    skipUnlessOurs(server);
    const path = "/%6eope/%C3%A9/a%2Fb/./../c;d=e+f";
    expectNoEndpoint(await anywhere(server(), path), "GET", path);
  });

  describe("other forms of the request target", () => {
    beforeEach(() => skipUnlessOurs(server));

    const rawTarget = async (method: string, target: string, key?: string) => {
      const headers = ["Host: example.test", "Connection: close"];
      const { answers } = await raw(
        server().origin,
        [
          requestText(`${method} ${target} HTTP/1.1`, [
            ...headers,
            ...(key === undefined ? [] : [`x-api-key: ${key}`]),
            "",
          ]),
        ],
        { methods: [method] },
      );
      expect(answers).toHaveLength(1);
      return answers[0]!;
    };

    it("a request target in absolute form reaches its endpoint", async () => {
      const path = `${basePath(server())}/details`;
      const target = `http://example.test${path}?x=1`;
      expect((await rawTarget("GET", target, server().key)).status).toBe(200);
      expectGeneral(await rawTarget("GET", target), 401);
    });

    it("the path of a request target in absolute form is returned as received", async () => {
      const path = `${basePath(server())}/../nope`;
      expectGeneral(await rawTarget("GET", `http://example.test${path}`), 401);
      for (const unknown of [path, `/x/%2e%2e${basePath(server())}/details`, '/a"<>']) {
        const answer = await rawTarget("GET", `http://example.test${unknown}`, server().key);
        expectNoEndpoint(answer, "GET", unknown);
      }
      expectGeneral(await rawTarget("GET", `http://${basePath(server())}/details`), 400);
    });

    it("a request target without a path is the root path, and * is not an endpoint", async () => {
      for (const target of ["http://example.test", "http://example.test/", "HTTP://EXAMPLE.TEST/"])
        expectNoEndpoint(await rawTarget("PUT", target), "PUT", "/");
      const answer = await rawTarget("OPTIONS", "*");
      expect(answer.body).toMatchObject({ status: 404, message: "INVALID_PATH", path: "*" });
    });
  });

  const get = (path: string) => exchange(server().origin, { method: "GET", path, headers: {} });

  it("/openapi.json describes every endpoint, and needs no key", async () => {
    skipUnlessOurs(server);
    const answer = await get("/openapi.json");
    expect(answer.status).toBe(200);
    expect(answer.headers["content-type"]).toMatch(/^application\/json/);
    expect(answer.body.openapi).toMatch(/^3\./);
    const operations: Array<string> = [];
    for (const [path, item] of Object.entries<any>(answer.body.paths))
      for (const method of Object.keys(item)) operations.push(`${method} ${path}`);
    const base = basePath(server());
    const general = [
      "get /details",
      "get /chats",
      "post /chats",
      "patch /chats/{chat_id}",
      "delete /chats/{chat_id}",
      "get /chats/{chat_id}/history",
      "post /chats/{chat_id}/history",
      "patch /chats/{chat_id}/history/{entry_id}",
    ];
    for (const operation of general)
      expect(operations).toContain(operation.replace(" ", ` ${base}`));
    const asks = [`post ${askPath(server())}`, `post ${askPath(server())}/`];
    expect(operations.some((operation) => asks.includes(operation))).toBe(true);
    expect(JSON.stringify(answer.body.components.securitySchemes)).toMatch(/x-api-key/i);
  });

  it("/ and /docs are pages that need no key, and none of the three can be posted to", async () => {
    skipUnlessOurs(server);
    for (const path of ["/", "/docs"]) {
      const answer = await get(path);
      expect(answer.status).toBe(200);
      expect(answer.headers["content-type"]).toMatch(/^text\/html/);
      expect(answer.headers["set-cookie"]).toBeUndefined();
      if (path === "/")
        expect(answer.headers["content-security-policy"]).toMatch(/^default-src 'none'; /);
    }
    for (const path of ["/openapi.json", "/docs", "/"])
      expectNoEndpoint(await anywhere(server(), path, { method: "POST" }), "POST", path);
  });

  it("CORS is off: a preflight is like any other request, and no response has CORS headers", async () => {
    const { origin, ...preflight } = {
      origin: "https://example.test",
      "access-control-request-method": "POST",
      "access-control-request-headers": "x-api-key,content-type",
    };
    const options = { method: "OPTIONS", headers: { origin, ...preflight } };
    const headers = { origin };
    for (const [status, answer] of [
      [401, await api(server(), "/chats", { ...options, key: null })],
      [404, await api(server(), "/chats", options)],
      [401, await askApi(server(), { ...options, key: null })],
      [404, await askApi(server(), options)],
      [200, await api(server(), "/details", { headers })],
      [201, await askApi(server(), { json: { query: "port" }, headers })],
      [422, await api(server(), "/chats?limit=0", { headers })],
      [404, await anywhere(server(), "/nope", { headers })],
    ] as const) {
      expect(answer.status).toBe(status);
      expect(Object.keys(answer.headers).join()).not.toMatch(/access-control/);
    }
  });
};
