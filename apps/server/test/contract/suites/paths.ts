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
  describe("INVALID_PATH under the general interface's address", () => {
    for (const path of [
      "",
      "/",
      "/nope",
      "/details/",
      "//details",
      "/detailss",
      "/chats/",
      "/chats/1",
      "/chats/1/history/",
      "/ask",
      "/openapi.json",
      "/%E2%82",
      `/${"a".repeat(4000)}`,
      "/é".normalize("NFC").replace("é", "%C3%A9"),
    ])
      it(`GET ${path.slice(0, 60)} under the general interface is INVALID_PATH`, async () => {
        expectNoEndpoint(await api(server(), path), "GET", `${basePath(server())}${path}`);
      });

    it("GET /chats//history, with an empty chat_id, is 404", async () => {
      expect((await api(server(), "/chats//history")).status).toBe(404);
    });

    for (const [method, path] of [
      ["PUT", "/chats"],
      ["DELETE", "/chats"],
      ["OPTIONS", "/chats"],
      ["DELETE", "/chats/1/"],
      ["PATCH", "/chats"],
      ["PATCH", "/chats/1/history"],
      ["DELETE", "/chats/1/history/1"],
      ["POST", "/details"],
      ["POST", ""],
      ["QUERY", "/chats"],
    ] as const)
      it(`${method} ${path} under the general interface is INVALID_PATH`, async () => {
        const answer = await api(server(), path, { method });
        expectNoEndpoint(answer, method, `${basePath(server())}${path}`);
      });

    for (const path of ["/details", "/nope"])
      it(`HEAD ${path} under the general interface is 404 without a body`, async () => {
        expect((await api(server(), path, { method: "HEAD" })).status).toBe(404);
      });

    for (const query of ["?", "?x=1?y=2", "?%zz"])
      it(`the path in a 404 leaves out the query ${query}`, async () => {
        const answer = await api(server(), `/nope${query}`);
        expectNoEndpoint(answer, "GET", `${basePath(server())}/nope`);
      });
  });

  describe("INVALID_PATH outside the interfaces", () => {
    for (const path of [
      "//",
      "/playground",
      "/playground/other.js",
      "/nope",
      "/ASK/",
      "/health",
      "/metrics",
      "/docs/x",
      "/%61pi/details",
      "/..%2f..%2fetc/passwd",
      "/%",
      `/${"a".repeat(4000)}`,
    ])
      it(`GET ${path.slice(0, 60)} outside the interfaces is INVALID_PATH, and needs no key`, async () => {
        expectNoEndpoint(await anywhere(server(), path), "GET", path);
      });

    for (const method of ["POST", "OPTIONS"])
      it(`${method} /nope outside the interfaces is INVALID_PATH`, async () => {
        expectNoEndpoint(await anywhere(server(), "/nope", { method }), method, "/nope");
      });

    it("the path in a 404 is exactly as received, not decoded", async () => {
      skipUnlessOurs(server);
      const path = "/%6eope/%C3%A9/a%2Fb/./../c;d=e+f";
      expectNoEndpoint(await anywhere(server(), path), "GET", path);
    });
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

    for (const target of ["http://example.test", "http://example.test/", "HTTP://EXAMPLE.TEST/"])
      it(`the request target ${target} is the root path`, async () => {
        expectNoEndpoint(await rawTarget("PUT", target), "PUT", "/");
      });

    it("the request target * is not an endpoint", async () => {
      const answer = await rawTarget("OPTIONS", "*");
      expect(answer.body).toMatchObject({ status: 404, message: "INVALID_PATH", path: "*" });
    });
  });

  describe("the API description and its page", () => {
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

    it("/docs is a page that needs no key", async () => {
      skipUnlessOurs(server);
      const answer = await get("/docs");
      expect(answer.status).toBe(200);
      expect(answer.headers["content-type"]).toMatch(/^text\/html/);
      expect(answer.text).toMatch(/<html/i);
    });

    it("/ is a page that needs no key", async () => {
      skipUnlessOurs(server);
      const answer = await get("/");
      expect(answer.status).toBe(200);
      expect(answer.headers["content-type"]).toMatch(/^text\/html/);
      expect(answer.headers["content-security-policy"]).toMatch(/^default-src 'none'; /);
      expect(answer.headers["set-cookie"]).toBeUndefined();
    });

    for (const path of ["/openapi.json", "/docs", "/"])
      it(`POST ${path} is not an endpoint`, async () => {
        expectNoEndpoint(await anywhere(server(), path, { method: "POST" }), "POST", path);
      });
  });

  describe("CORS is off", () => {
    const headers = {
      origin: "https://example.test",
      "access-control-request-method": "POST",
      "access-control-request-headers": "x-api-key,content-type",
    };

    it("a preflight is like any other request: 401 without a key, 404 with one", async () => {
      for (const key of [null, server().key]) {
        for (const answer of [
          await api(server(), "/chats", { method: "OPTIONS", key, headers }),
          await askApi(server(), { method: "OPTIONS", key, headers }),
        ]) {
          expect(answer.status).toBe(key === null ? 401 : 404);
          expect(Object.keys(answer.headers).join()).not.toMatch(/access-control/);
        }
      }
    });

    it("no response has CORS headers", async () => {
      const { origin } = headers;
      for (const answer of [
        await api(server(), "/details", { headers: { origin } }),
        await api(server(), "/chats", { json: {}, headers: { origin } }),
        await askApi(server(), { json: { query: "port" }, headers: { origin } }),
        await api(server(), "/chats?limit=0", { headers: { origin } }),
        await api(server(), "/details", { key: null, headers: { origin } }),
        await anywhere(server(), "/nope", { headers: { origin } }),
      ])
        expect(Object.keys(answer.headers).join()).not.toMatch(/access-control/);
    });
  });
};
