/** Servers with settings that differ from the defaults. */
import { describe, expect, it } from "vitest";
import {
  anywhere,
  api,
  askApi,
  askPath,
  askQuestion,
  basePath,
  createChat,
  exchange,
  expectGeneral,
  expectInvalid,
  expectNoEndpoint,
  listEntries,
} from "./client.ts";
import { launch, launchForTests } from "./launch.ts";

describe("other base addresses, a separate listener for asks, and CORS", () => {
  const testServer = launchForTests("memory", {
    PARLEY_BASE_PATH: "/v1/bot",
    PARLEY_ASK_PATH: "/question",
    PARLEY_ASK_PORT: "0",
    PARLEY_CORS_ORIGINS: "https://one.test, https://two.test",
  });
  const server = () => testServer().target;
  const askOrigin = () => new URL(server().askUrl).origin;

  it("both interfaces are served at the addresses in the settings", async () => {
    expect(basePath(server())).toBe("/v1/bot");
    expect(askPath(server())).toBe("/question");
    expect(askOrigin()).not.toBe(server().origin);
    const chat = await createChat(server());
    const entry = await askQuestion(server(), { chat_id: chat.id, query: "port" });
    expect((await listEntries(server(), chat.id)).data[0]).toEqual(entry);
    for (const path of ["", "/"])
      expect((await askApi(server(), { json: { query: "port" } }, path)).status).toBe(201);
  });

  it("neither interface is served on the other's listener, nor at the default addresses", async () => {
    for (const [origin, method, path] of [
      [server().origin, "POST", "/question/"],
      [server().origin, "GET", "/api/details"],
      [server().origin, "POST", "/ask/"],
      [askOrigin(), "GET", "/v1/bot/details"],
      [askOrigin(), "POST", "/ask"],
    ] as const) {
      const target = { ...server(), origin };
      expectNoEndpoint(await anywhere(target, path, { method }), method, path);
    }
  });

  it("/openapi.json on each listener describes that listener's endpoints, at their addresses", async () => {
    const request = { method: "GET", path: "/openapi.json", headers: {} };
    const general = await exchange(server().origin, request);
    const answers = await exchange(askOrigin(), request);
    expect(Object.keys(general.body.paths)).toEqual([
      "/v1/bot/details",
      "/v1/bot/chats",
      "/v1/bot/chats/{chat_id}/history",
      "/v1/bot/chats/{chat_id}",
      "/v1/bot/chats/{chat_id}/history/{entry_id}",
    ]);
    expect(Object.keys(answers.body.paths)).toEqual(["/question"]);
  });

  it("the playground is served only on the general interface's listener", async () => {
    const request = { method: "GET", path: "/", headers: {} };
    const { hostname } = new URL(askOrigin());
    const page = await exchange(server().origin, request);
    expect(page.headers["content-security-policy"]).toContain(
      `connect-src 'self' ${hostname}:${new URL(askOrigin()).port}; `,
    );
    expectNoEndpoint(await anywhere({ ...server(), origin: askOrigin() }, "/"), "GET", "/");
  });

  const preflight = {
    method: "OPTIONS",
    headers: {
      origin: "https://two.test",
      "access-control-request-method": "POST",
      "access-control-request-headers": "x-api-key,content-type,idempotency-key",
    },
  };

  it("a preflight from a listed origin receives 200 without a key", async () => {
    for (const [origin, path] of [
      [server().origin, "/v1/bot/chats"],
      [server().origin, "/v1/bot/details"],
      [askOrigin(), "/question/"],
    ] as const) {
      const answer = await exchange(origin, { ...preflight, path });
      expect(answer.status, answer.text).toBe(200);
      expect(answer.headers["access-control-allow-origin"]).toBe("https://two.test");
      expect(answer.headers["access-control-allow-methods"]).toBe("GET, POST, PATCH, DELETE");
      const allowed = (answer.headers["access-control-allow-headers"] ?? "").toLowerCase();
      for (const header of ["x-api-key", "content-type", "idempotency-key"])
        expect(allowed).toContain(header);
      expect(answer.headers["vary"]?.toLowerCase() ?? "").toContain("origin");
    }
  });

  it("only a listed origin can read the responses, including failures", async () => {
    for (const [origin, allowed] of [
      ["https://one.test", "https://one.test"],
      ["https://three.test", undefined],
      ["http://one.test", undefined],
      ["https://one.test.evil", undefined],
      ["null", undefined],
    ] as const) {
      const headers = { origin };
      for (const answer of [
        await api(server(), "/details", { headers }),
        await api(server(), "/chats", { json: {}, headers }),
        await api(server(), "/chats?limit=0", { headers }),
        await api(server(), "/details", { key: null, headers }),
        await api(server(), "/nope", { headers }),
        await askApi(server(), { json: { query: "port" }, headers }),
      ]) {
        expect(answer.headers["access-control-allow-origin"]).toBe(allowed);
        // Without this, a cache could serve the response to a listed origin.
        expect(answer.headers["vary"]?.toLowerCase()).toContain("origin");
      }
    }
    const headers = { ...preflight.headers, origin: "https://three.test" };
    const refused = await api(server(), "/chats", { method: "OPTIONS", key: null, headers });
    expectGeneral(refused, 401);
    expect(refused.headers["access-control-allow-origin"]).toBeUndefined();
  });

  it("an OPTIONS request without preflight headers is handled like any other request", async () => {
    const headers = { origin: "https://one.test" };
    const answer = await api(server(), "/chats", { method: "OPTIONS", headers });
    expectNoEndpoint(answer, "OPTIONS", "/v1/bot/chats");
  });
});

describe("a longer PARLEY_QUESTION_LENGTH", () => {
  const testServer = launchForTests("memory", { PARLEY_QUESTION_LENGTH: "20000" });
  const headers = { "content-type": "application/json" };
  const ask = (characters: number, bytes = 0) => {
    // Each character is written with twelve bytes.
    const body = `{"query":"${"\\ud83d\\ude00".repeat(characters)}"}`.padEnd(bytes, " ");
    return askApi(testServer().target, { body, headers });
  };

  it("a question may have as many characters, however they are written, and no more", async () => {
    const answer = await ask(20_000, 241_024);
    expect([answer.status, answer.body.data?.question]).toEqual([201, "😀".repeat(20_000)]);
    expectInvalid(await ask(20_001), "query");
  });

  it("a body may have 12 bytes a character and 1 KiB more, but a posted entry only 160 KiB", async () => {
    expectGeneral(await ask(1, 241_025), 400);
    const { fullKey: key } = testServer().target;
    const chat = await createChat(testServer().target);
    const post = (bytes: number) =>
      api(testServer().target, `/chats/${chat.id}/history`, {
        body: '{"text":"t"}'.padEnd(bytes, " "),
        headers,
        key,
      });
    expect((await post(160 * 1024)).status).toBe(201);
    expectGeneral(await post(160 * 1024 + 1), 400);
  });

  it("the API description and the playground tell the length", async () => {
    const get = (path: string) =>
      exchange(testServer().target.origin, { method: "GET", path, headers: {} });
    const { components } = (await get("/openapi.json")).body;
    expect(components.schemas.Ask.properties.query.maxLength).toBe(20_000);
    expect((await get("/")).text).toContain("&quot;questionLength&quot;:20000");
  });
});

it("with PARLEY_PAGES=off, requests for the pages result in 404", async () => {
  const testServer = await launch("memory", { PARLEY_PAGES: "off" });
  try {
    for (const path of ["/", "/playground/icon.svg", "/docs", "/docs/guide", "/openapi.json"]) {
      expectNoEndpoint(await anywhere(testServer.target, path), "GET", path);
    }
  } finally {
    await testServer.stop();
  }
});
