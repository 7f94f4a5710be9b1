import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { beforeAll, expect, inject, it, vi } from "vitest";
import { launch } from "./contract/launch.ts";
import { freePort } from "./FreePort.ts";
import { startEndpoint, startTestModel, type Received } from "./TestModel.ts";

const answer = "ANSWER-of-the-model";
const traceId = "0af7651916cd43dd8448eb211c80319c";
const secrets = [
  answer,
  "NAME-of-a-chat",
  "REF-of-a-user",
  "SEARCH-of-a-user",
  "QUESTION-of-a-user",
  "IDEMPOTENCY-KEY-of-a-user",
  "MODEL-KEY-of-the-operator",
  "PATH-of-a-user",
  "AGENT-of-a-user",
  "What would you like to know",
  "prl_",
];

interface Span {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly status: { readonly code: number; readonly message?: string };
  readonly attributes: ReadonlyArray<{ readonly key: string; readonly value: object }>;
}

/** Sends all of the test's requests, and returns everything that an operator can see of them. */
const observe = async () => {
  const collector = await startEndpoint((_, response) =>
    response.writeHead(200, { "content-type": "application/json" }).end("{}"),
  );
  const usage = { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 };
  const provider = await startTestModel(
    ({ end, say }) => {
      say(answer);
      end(usage);
    },
    ({ body, path }) =>
      body.includes(path.endsWith("/moderations") ? "unjudged" : "fails")
        ? [400, { message: /QUESTION[^"]*/.exec(body)?.[0], code: "model_overloaded" }]
        : undefined,
  );
  const managementPort = await freePort();
  const model = {
    PARLEY_LLM_BASE_URL: `${provider.url}/v1`,
    PARLEY_LLM_MODEL: "large",
    PARLEY_LLM_API_KEY: "MODEL-KEY-of-the-operator",
    PARLEY_MODERATION: "endpoint",
    PARLEY_MODERATION_BASE_URL: `${provider.url}/v1`,
    PARLEY_MODERATION_MODEL: "moderation",
    PARLEY_MODERATION_API_KEY: "MODEL-KEY-of-the-operator",
  };
  const server = await launch("postgres", {
    DATABASE_URL: inject("postgresUrl"),
    PARLEY_SCHEMA: `observed_${process.pid}`,
    ...model,
    PARLEY_LLM_FALLBACK_BASE_URL: `http://127.0.0.1:${await freePort()}/v1`,
    PARLEY_LLM_FALLBACK_MODEL: "small",
    PARLEY_ASK_DEADLINE: "3 seconds",
    PARLEY_MANAGEMENT_PORT: String(managementPort),
    PARLEY_LOG_REQUESTS: "true",
    PARLEY_TRUSTED_PROXIES: "127.0.0.0/8",
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
    OTEL_METRIC_EXPORT_INTERVAL: "500",
  });
  const { askUrl, baseUrl, key, origin, unknownKey } = server.target;
  let sent = 0;
  const send = async (url: string, body?: object, headers: Record<string, string> = {}) => {
    sent++;
    const response = await fetch(url, {
      ...(body !== undefined && { method: "POST", body: JSON.stringify(body) }),
      headers: {
        "x-api-key": key,
        "content-type": "application/json",
        "user-agent": "AGENT-of-a-user",
        ...headers,
      },
    });
    return { status: response.status, headers: response.headers, text: await response.text() };
  };
  const ask = (query: string, headers?: Record<string, string>) =>
    send(askUrl, { query: `QUESTION-of-a-user ${query}` }, headers);

  const traceparent = `00-${traceId}-b7ad6b7169203331-01`;
  const created = await send(
    `${baseUrl}/chats`,
    { name: "NAME-of-a-chat", userRef: "REF-of-a-user" },
    { "idempotency-key": "IDEMPOTENCY-KEY-of-a-user" },
  );
  const chat = JSON.parse(created.text).data.id as number;
  const answered = await ask("", { traceparent, "x-request-id": "asked" });
  const streamed = await ask("", {
    accept: "text/event-stream",
    "idempotency-key": "IDEMPOTENCY-KEY-of-a-user-2",
  });
  const failed = await send(
    askUrl,
    { chat_id: chat, query: "QUESTION-of-a-user fails" },
    { "x-request-id": "failed", "x-forwarded-for": "198.51.100.1, 203.0.113.7" },
  );
  const unjudged = await ask("unjudged", { "x-request-id": "unjudged" });
  const statuses = [created, answered, streamed, failed, unjudged].map(({ status }) => status);
  expect(statuses).toEqual([201, 201, 200, 500, 500]);
  expect(answered.text).toContain(answer);

  const others = [
    await send(`${baseUrl}/details`),
    await send(`${baseUrl}/chats?search=SEARCH-of-a-user&userRef=REF-of-a-user&orderBy=name`),
    await send(`${baseUrl}/chats/${chat}/history`),
    await send(`${baseUrl}/chats/PATH-of-a-user/history`),
    await send(`${baseUrl}/PATH-of-a-user`),
    await send(`${origin}/PATH-of-a-user`),
    await send(`${origin}/openapi.json`),
    await send(`${baseUrl}/details`, undefined, { "x-api-key": unknownKey }),
    await send(`${baseUrl}/details?x-api-key=${key}`, undefined, { "x-api-key": `${key}0` }),
    await send(`${baseUrl}/chats`, { name: 7, userRef: "REF-of-a-user".repeat(9) }),
    await send(askUrl, { query: "QUESTION-of-a-user".repeat(99) }),
    await send(`${baseUrl}/chats`, {}, { "content-type": "text/plain" }),
  ];
  expect(others.map(({ status }) => status)).toEqual([
    200, 200, 200, 404, 404, 404, 200, 401, 401, 422, 422, 400,
  ]);
  const socket = connect(Number(new URL(origin).port), "127.0.0.1");
  socket.write("GET /PATH-of-a-user\x01 HTTP/1.1\r\nx-api-key: QUESTION-of-a-user\r\n\r\n");
  let malformed = "";
  socket.on("data", (data) => (malformed += data));
  await once(socket, "end");
  socket.end();
  sent++;
  expect(malformed).toMatch(/^HTTP\/1.1 400 /);

  for (let n = 0; n < 3; n++) await send(`${baseUrl}/details`);
  const metrics = await (await fetch(`http://127.0.0.1:${managementPort}/metrics`)).text();
  await server.stop();
  collector.close();
  provider.close();
  return {
    chat,
    keyId: key.split("_")[1],
    database: new URL(inject("postgresUrl")).pathname.slice(1),
    sent,
    metrics,
    log: server.log(),
    exported: collector.received,
    provided: provider.received,
  };
};

let observation: Awaited<ReturnType<typeof observe>>;
beforeAll(async () => {
  observation = await observe();
}, 60_000);

const lines = () =>
  observation.log
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
const logged = (message: string) => lines().filter((line) => line.message === message);
const bodiesOf = (path: string) =>
  observation.exported
    .filter((request: Received) => request.path === path)
    .map(({ body }) => JSON.parse(body));
const spans = (): ReadonlyArray<Span> =>
  bodiesOf("/v1/traces").flatMap(({ resourceSpans }) => resourceSpans[0].scopeSpans[0].spans);
const attributesOf = ({ attributes }: Span) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));

it("the metrics count every request, even a malformed one", () => {
  const counts = observation.metrics.matchAll(
    /^http_server_request_duration_seconds_count\{.*\} (\d+)$/gm,
  );
  expect([...counts].reduce((sum, [, count]) => sum + Number(count), 0)).toBe(observation.sent);
  expect(observation.sent).toBeGreaterThan(20);
  for (const [labels, count] of [
    ['http_request_method="GET",http_response_status_code="200",http_route="/api/details"', 4],
    ['http_request_method="POST",http_response_status_code="500",http_route="/ask"', 2],
    ['http_request_method="GET",http_response_status_code="404"', 2],
  ] as const) {
    expect(observation.metrics).toContain(
      `http_server_request_duration_seconds_count{${labels}} ${count}\n`,
    );
  }
  expect(observation.metrics).toContain("http_server_active_requests 0\n");
  for (const [reason, count] of Object.entries({
    API_KEY_NOT_VALID: 2,
    INVALID_PATH: 2,
    CHAT_DOES_NOT_EXISTS: 1,
    ANSWER_UNAVAILABLE: 2,
    VALIDATION: 2,
    MALFORMED_REQUEST: 1,
  })) {
    expect(observation.metrics).toContain(`parley_failures_total{reason="${reason}"} ${count}\n`);
  }
});

it("a server has metrics for asks, models and the process", () => {
  const [, host] = /provider="(127.0.0.1:\d+.chat)",model="large"/.exec(observation.metrics) ?? [];
  const large = `provider="${host}",model="large"`;
  for (const line of [
    "parley_asks_running 0",
    "parley_asks_waiting 0",
    "parley_ask_wait_duration_seconds_count 4",
    "parley_ask_first_delta_duration_seconds_count 2",
    'parley_ask_answer_duration_seconds_count{model="large",outcome="stored"} 2',
    'parley_ask_answer_duration_seconds_count{model="small",outcome="failed"} 1',
    'parley_ask_answer_duration_seconds_bucket{model="large",outcome="stored",le="120"} 2',
    `parley_requests_total{key="${observation.keyId}"} ${observation.sent - 5}`,
    'parley_chatbot_tokens_total{chatbot="1",direction="input"} 10',
    'parley_chatbot_tokens_total{chatbot="1",direction="output"} 6',
    'parley_failures_total{reason="INTERNAL_ERROR"} 0',
    'parley_ratings_total{rating="bad"} 0',
    `parley_model_failures_total{${large},reason="timeout"} 0`,
    'db_client_connection_max{db_client_connection_pool_name="bulk"} 2',
    `parley_model_tokens_total{${large},direction="input"} 10`,
    `parley_model_tokens_total{${large},direction="output"} 6`,
    `parley_model_failures_total{${large},reason="bad_request"} 1`,
    `parley_model_circuit{${large}} 0`,
    `parley_build_info{version="0.1.0",node_version="${process.version}"} 1`,
  ]) {
    expect(observation.metrics).toContain(`\n${line}\n`);
  }
  for (const name of [
    "resident_memory_bytes",
    "start_time_seconds",
    "cpu_seconds_total",
    "open_fds",
    "max_fds",
  ]) {
    expect(observation.metrics).toMatch(new RegExp(`^process_${name} [\\d.]*[1-9][\\d.]*$`, "m"));
  }
  expect(observation.metrics).toMatch(/^parley_key_expiry_seconds (\d|\+Inf)/m);
  expect(observation.metrics).toMatch(/^nodejs_eventloop_delay_max_seconds [\d.e-]+$/m);
  const exported = bodiesOf("/v1/metrics")
    .map((body) => JSON.stringify(body))
    .join();
  expect(exported).toContain('"name":"http.server.request.duration"');
});

it("a server has exactly the metrics that docs/monitoring.md lists", () => {
  const page = readFileSync(new URL("../../../docs/monitoring.md", import.meta.url), "utf8");
  const section = page.split("\n## Metrics\n")[1]!.split("\n## ")[0]!;
  const documented = [...section.matchAll(/^\| `(\w+)`/gm)].map(([, name]) => name);
  const names = [...observation.metrics.matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name);
  // No key has a budget here, and the sizes are first read after a minute: `Asking.test.ts` and `Retention.test.ts`
  // test these.
  const others = ["parley_key_budget_used", "parley_chatbot_rows", "parley_chatbot_size_bytes"];
  expect([...names, ...others].toSorted()).toEqual(documented.toSorted());
});

it("a server logs its start, its stop and each request as flat lines of JSON with timestamps", () => {
  for (const { time, ...line } of lines()) {
    expect(time).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
    expect(line).toMatchObject({
      level: /^(INFO|WARN)$/.exec(line.level)?.[0],
      service: "parley",
      version: "0.1.0",
    });
    expect(Object.values(line).every((value) => typeof value !== "object")).toBe(true);
  }
  expect(logged("Parley 0.1.0 has started")[0]).toMatchObject({ store: "postgres" });
  expect(logged("Parley has stopped")).toHaveLength(1);
  expect(logged("Request")).toHaveLength(observation.sent);
  const [askLine] = logged("Request").filter(({ requestId }) => requestId === "asked");
  expect(askLine).toMatchObject({
    method: "POST",
    route: "/ask",
    status: 201,
    trace_id: traceId,
  });
  const [ask] = logged("Ask").filter(({ requestId }) => requestId === "asked");
  expect(ask).toMatchObject({ route: "/ask", model: "large", attempts: 1, trace_id: traceId });
  expect(Object.keys(ask)).toEqual(expect.arrayContaining(["entry", "chat", "waitMs", "tokens"]));
  expect(Object.keys(askLine)).toEqual(expect.arrayContaining(["requestId", "chatbot", "ms"]));
});

it("a server logs each failure with its request, chatbot and chat, and every provider's reason", () => {
  const [failed, unjudged, ...more] = logged("AnswerUnavailable");
  expect(more).toEqual([]);
  const { reason } = failed;
  const whose = { key: observation.keyId, client: "203.0.113.7" };
  expect(failed).toMatchObject({
    ...whose,
    requestId: "failed",
    route: "/ask",
    chat: observation.chat,
  });
  expect(failed.chatbot).toBeGreaterThan(0);
  expect(reason).toMatch(/HTTP 400, model_overloaded; .*ECONNREFUSED/);
  expect(unjudged).toMatchObject({ requestId: "unjudged", client: "127.0.0.1" });
  expect(unjudged.reason).toContain("moderation endpoint failed: HTTP 400, model_over");
  // The call to the first model, which failed before the fallback was called.
  const [call] = lines().filter(({ reason }) => reason === "bad_request");
  expect(call).toMatchObject({ ...whose, requestId: "failed", model: "large" });
});

it("a server exports a span for each request, within the client's trace and around the call to the provider", () => {
  const all = spans();
  expect(all.filter(({ name }) => /^[A-Z]+( |$)/.test(name))).toHaveLength(observation.sent - 1);
  const root = all.find((span) => attributesOf(span)["requestId"] === "asked")!;
  expect(root).toMatchObject({ name: "POST /ask", traceId, parentSpanId: "b7ad6b7169203331" });
  expect(attributesOf(root)).toMatchObject({ "http.route": "/ask" });
  const names = new Set(all.filter((span) => span.traceId === traceId).map(({ name }) => name));
  expect([...names].toSorted()).toEqual(
    [
      "POST /ask",
      "TurnStore.append",
      "TurnStore.take",
      "chat large",
      "moderation",
      "sql.execute",
      "take",
      "turn",
    ].toSorted(),
  );
  const call = all.find(({ name, traceId: of }) => name === "chat large" && of === traceId)!;
  expect(attributesOf(call)).toMatchObject({
    "gen_ai.usage.input_tokens": 5,
    "gen_ai.usage.output_tokens": 3,
  });
  // The spans from startup name the database, too.
  const databases = all.flatMap((span) => attributesOf(span)["db.namespace"] ?? []);
  expect([...new Set(databases)]).toEqual([observation.database]);
  const turn = all.find(({ spanId }) => spanId === call.parentSpanId)!;
  expect([turn.name, turn.parentSpanId]).toEqual(["turn", root.spanId]);
  const traceparents = observation.provided.map(({ headers }) => headers["traceparent"]);
  expect(traceparents).toContain(`00-${traceId}-${call.spanId}-01`);
  const failed = all.find((span) => attributesOf(span)["requestId"] === "failed")!;
  expect(failed.status).toMatchObject({ code: 2 });
  expect(attributesOf(failed)).toMatchObject({ chat: observation.chat });
});

it("a server exports its log lines within their traces", () => {
  const records = bodiesOf("/v1/logs").flatMap(
    ({ resourceLogs }) => resourceLogs[0].scopeLogs[0].logRecords,
  );
  const traces = new Map(spans().map((span) => [attributesOf(span)["requestId"], span.traceId]));
  // The malformed request has no trace, and neither have lines without a request.
  expect(records.map(({ body, traceId }) => [body.stringValue, traceId])).toEqual(
    lines().map(({ message, requestId }) => [message, requestId && traces.get(requestId)]),
  );
});

it.each(secrets)("the log, metrics and exports never contain %s", (secret) => {
  // A key's id is no secret.
  const withoutKeyIds = (text: string) => text.replaceAll(/prl_\w{12}_…/g, "");
  expect(withoutKeyIds(observation.log).replaceAll("/api", "")).not.toContain(secret);
  expect(observation.metrics).not.toContain(secret);
  const exports = observation.exported.map(({ body, path }) => path + body).join("\n");
  expect(withoutKeyIds(exports)).not.toContain(secret);
  expect(observation.exported.length).toBeGreaterThan(3);
});

it("an unreachable collector causes one log line, and nothing else", async () => {
  const server = await launch("memory", {
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${await freePort()}`,
    OTEL_METRIC_EXPORT_INTERVAL: "500",
  });
  const { baseUrl, key } = server.target;
  const details = () => fetch(`${baseUrl}/details`, { headers: { "x-api-key": key } });
  await vi.waitUntil(() => server.log().includes("collector"), { timeout: 20_000 });
  expect((await details()).status).toBe(200);
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  await server.stop();
  const warnings = server
    .log()
    .split("\n")
    .filter((line) => line.includes('"level":"') && !/"level":"INFO"|provision\.json/.test(line));
  expect(warnings.map((line) => JSON.parse(line))).toEqual([
    expect.objectContaining({
      level: "WARN",
      message: "The OpenTelemetry collector is not accepting data",
      reason: expect.stringContaining("ECONNREFUSED"),
    }),
  ]);
}, 60_000);
