/**
 * No text of a user, of an operator's instructions or documents, and no key gets into a log or a span.
 */
import {
  Access,
  Asking,
  AskLimits,
  ChatbotRegistry,
  Chats,
  defaultSettings,
  generateKey,
  keyRecord,
  scopes,
} from "@parley/core";
import { makeWebHandler } from "@parley/http";
import { layerLanguageModel, layerModerationEndpoint, openAiCompatible } from "@parley/llm";
import { layerPostgres } from "@parley/store-pg";
import { Cause, Duration, Effect, Exit, Layer, Logger, Redacted, References, Tracer } from "effect";
import { Digest, SecureRandom } from "effect/crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { makeDatabase, type Database } from "./Database.ts";
import { faults, startEchoingProvider, type EchoingProvider } from "./EchoingProvider.ts";
import { startServer } from "./Server.ts";
import { makeSite, type Site } from "./Site.ts";

/** In every text that must not get out. */
const marker = "Mxq7Zt";
const apiKey = `sk-${marker}`;
const passage = `# Ports\n\nThe server listens on port 3000, ${marker}document.\n`;

let site: Site;
let database: Database;
let provider: EchoingProvider;
beforeAll(async () => {
  site = await makeSite();
  database = await makeDatabase(inject("postgresUrl"));
  provider = await startEchoingProvider();
});
afterAll(async () => {
  provider.close();
  await database.remove();
  await site.remove();
});

const expectClean = (what: string, text: string) => {
  const lines = text.split("\n").filter((line) => line.includes(marker));
  expect(lines, what).toEqual([]);
};

type Send = (path: string, init?: RequestInit) => Promise<Response>;

/** Every way of using both interfaces, with the marker wherever a client can put it. */
const useAll = async (send: Send) => {
  const post = async (path: string, body: object | string, headers: object = {}) => {
    const response = await send(path, {
      method: "POST",
      body: typeof body === "string" ? body : JSON.stringify(body),
      headers: { "content-type": "application/json", ...headers },
    });
    return { status: response.status, text: await response.text() };
  };
  const get = async (path: string) => (await (await send(path)).text()) as string;
  const streamed = { accept: "text/event-stream" };

  const made = await post("/api/chats", { name: `${marker}name`, userRef: `${marker}user` });
  const { id } = JSON.parse(made.text).data;
  const ask = (query: string, headers: object = {}) =>
    post("/ask", { chat_id: id, query: `${query} ${marker}question` }, headers);

  const fine = await ask("What port does the server listen on?");
  expect(fine.status, fine.text).toBe(201);
  await ask("fault=none with a key", { "idempotency-key": `${marker}key` });
  for (const [n, name] of Object.keys(faults).entries()) {
    await ask(`Which port? fault=${name}`, n % 2 === 0 ? streamed : {});
    // In between, so that no circuit opens.
    const between = await ask("Which port?", n % 2 === 0 ? {} : streamed);
    expect(between.text).toContain('"status":201');
    if (n < 8) await ask(`Which port? judge=${name}`);
  }

  await get(`/api/chats?search=${marker}name&userRef=${marker}user&unknown=${marker}`);
  await get(`/api/chats?orderBy=${marker}`);
  await get(`/api/chats/${id}/history`);
  await get(`/api/chats/${id}/history?id=${marker}`);
  await post("/api/chats", { name: marker.repeat(100), userRef: `${marker}\0` });
  await post("/api/chats", `{"name": "${marker}`);
  await post("/ask", { chat_id: marker, query: marker.repeat(100) });
  await post("/ask", { query: "?" }, { "idempotency-key": `${marker}\t` });
  await post("/ask", { query: "?" }, { "x-api-key": `prl_${marker}` });
};

test(
  "the server's log holds no text of a user, however much it says",
  { timeout: 180_000 },
  async () => {
    const knowledge = join(site.directory, "documents");
    await mkdir(knowledge);
    await writeFile(join(knowledge, "ports.md"), passage);
    const provision = join(site.directory, "safety.json");
    const keyOf: Record<string, string> = {};
    for (const name of ["off", "words", "endpoint"]) {
      keyOf[name] = await Effect.runPromise(
        Effect.map(Effect.provide(generateKey, SecureRandom.layerWebCrypto), Redacted.value),
      );
    }
    await writeFile(
      provision,
      JSON.stringify({
        chatbots: Object.entries(keyOf).map(([moderation, key]) => ({
          workspace: "Safety",
          name: moderation,
          moderation,
          helloMessage: `${marker}hello`,
          moderationErrorMessage: `${marker}moderated`,
          instructions: `${marker}instructions`,
          keys: [{ key, scopes }],
        })),
      }),
    );
    const server = await startServer(
      site,
      {
        ...database.environment,
        PARLEY_PROVISION: provision,
        PARLEY_KNOWLEDGE_DIR: knowledge,
        PARLEY_ASK_DEADLINE: "1 second",
        PARLEY_LLM_BASE_URL: provider.url,
        PARLEY_LLM_MODEL: "m",
        PARLEY_LLM_API_KEY: apiKey,
        PARLEY_MODERATION_BASE_URL: provider.url,
        PARLEY_MODERATION_MODEL: "m",
        PARLEY_MODERATION_API_KEY: apiKey,
        PARLEY_MODERATION_FAIL_OPEN: "true",
      },
      ["--log-level", "all"],
    );
    try {
      const origin = new URL(server.baseUrl).origin;
      const sendAs =
        (key: string): Send =>
        (path, init) =>
          fetch(`${origin}${path}`, {
            ...init,
            headers: { "x-api-key": key, ...init?.headers },
          });
      await useAll(sendAs(keyOf["off"]!));
      const judged = sendAs(keyOf["endpoint"]!);
      for (const name of ["none", ...Object.keys(faults)]) {
        const query = `Which port? judge=${name} ${marker}question`;
        await judged("/ask", {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ query }),
        });
      }
      await sendAs(keyOf["words"]!)("/ask", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ query: `fuck ${marker}question` }),
      });
      process.kill(server.pid, "SIGHUP");

      // The database quotes the row in what it says of this.
      await database.rows(
        "alter table entry add constraint refuse check (question not like '%refuse%')",
      );
      const body = JSON.stringify({ query: `refuse ${marker}question` });
      const refused = await sendAs(keyOf["off"]!)("/ask", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body,
      });
      expect(refused.status).toBe(500);

      for (const kind of ["question", "name", "instructions", "document", "hello"]) {
        const reaches = provider.told().includes(`${marker}${kind}`);
        expect(reaches, `${kind} reaches the provider`).toBe(kind !== "name");
      }
      expect(provider.told()).toContain(apiKey);
    } finally {
      await server.stop();
    }
    const log = server.log();
    for (const told of [
      "the language model failed",
      "the answer ended abnormally",
      "the moderation endpoint failed",
      "AnswerUnavailable",
      "A request met a defect",
    ]) {
      expect(log).toContain(told);
    }
    expectClean("the log", log);
    for (const key of Object.values(keyOf)) expect(log).not.toContain(key);
  },
);

/** A tracer that keeps every span. */
const makeTracer = () => {
  const spans: Array<Tracer.NativeSpan> = [];
  const tracer = Tracer.make({
    span: (options) => {
      const span = new Tracer.NativeSpan(options);
      spans.push(span);
      return span;
    },
  });
  return { spans, tracer };
};

/** What an exporter would tell of a span. */
const toldOf = (span: Tracer.NativeSpan): string => {
  const { status } = span;
  const failure =
    status._tag === "Ended" && Exit.isFailure(status.exit) ? Cause.pretty(status.exit.cause) : "";
  const values = [...span.attributes, ...span.events.flat(), ...span.links];
  return [
    span.name,
    failure,
    JSON.stringify(values, (_, value) => (typeof value === "bigint" ? String(value) : value)),
  ].join(" ");
};

test("no span holds a text of a user", { timeout: 180_000 }, async () => {
  const { spans, tracer } = makeTracer();
  const logged: Array<string> = [];
  const logger = Logger.make((entry) => {
    logged.push(Logger.formatJson.log(entry));
  });
  const register = Layer.effectDiscard(
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      yield* registry.create(
        {
          workspaceName: "Safety",
          name: "Spans",
          description: "",
          settings: { ...defaultSettings, instructions: `${marker}instructions` },
          keys: [yield* keyRecord(site.key)],
        },
        "test",
      );
    }),
  );
  const settings = { baseUrl: provider.url, apiKey: Redacted.make(apiKey), model: "m" };
  const layer = Layer.mergeAll(Access.layer, Chats.layer, Asking.layer, register).pipe(
    Layer.provide([
      Layer.unwrap(Effect.map(openAiCompatible(settings), (model) => layerLanguageModel(model))),
      layerModerationEndpoint({ ...settings, failOpen: true }),
    ]),
    Layer.provide(
      Layer.succeed(AskLimits, { ...AskLimits.defaultValue(), deadline: Duration.millis(500) }),
    ),
    Layer.provide([
      layerPostgres({ url: Redacted.make(database.url), schema: "spans" }),
      Digest.layerWebCrypto,
    ]),
    Layer.provideMerge([
      Layer.succeed(Tracer.Tracer, tracer),
      Logger.layer([logger]),
      Layer.succeed(References.MinimumLogLevel, "All"),
    ]),
  );
  const { dispose, handler } = makeWebHandler(layer);
  await useAll((path, init) =>
    handler(
      new Request(`http://parley.test${path}`, {
        ...init,
        headers: { "x-api-key": site.key, ...init?.headers },
      }),
    ),
  );
  await dispose();
  expect(new Set(spans.map(({ kind }) => kind))).toContain("server");
  expect(spans.length).toBeGreaterThan(100);
  for (const span of spans) expectClean(`the span ${span.name}`, toldOf(span));
  expect(logged.length).toBeGreaterThan(20);
  expectClean("the log", logged.join("\n"));
});
