/**
 * The flow of a client whose types are generated from the API description: `openapi.d.ts`, which the test makes.
 */
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { paths } from "./openapi.d.ts";

const { KEY: key = "", ORIGIN: baseUrl = "" } = process.env;
const client = createClient<paths>({ baseUrl, headers: { "x-api-key": key } });

const details = await client.GET("/api/details");
assert.equal(typeof details.data?.data.chatBotName, "string");

const created = await client.POST("/api/chats", {
  params: { header: { "Idempotency-Key": "first" } },
  body: { name: "First steps", userRef: "user-17" },
});
const chat_id = created.data!.data.id;
const params = { path: { chat_id }, query: { limit: 5 } };
const greeted = await client.GET("/api/chats/{chat_id}/history", { params });
assert.equal(greeted.data?.meta.total, 1);

const asked = await client.POST("/ask", { body: { chat_id, query: "How do I change the port?" } });
// An event would be of a stream.
assert.ok(asked.data !== undefined && !("event" in asked.data));
assert.equal(asked.data.data.chat_id, chat_id);
const history = await client.GET("/api/chats/{chat_id}/history", {
  params: { path: { chat_id }, query: { limit: 5, page: 1, orderBy: ["id"], desc: ["false"] } },
});
assert.deepEqual(history.data?.data.at(-1), asked.data.data);

const found = await client.GET("/api/chats", {
  params: { query: { limit: 5, userRef: "user-17" } },
});
assert.deepEqual(found.data?.data, [created.data!.data]);

const streamed = await client.POST("/ask", {
  headers: { accept: "text/event-stream" },
  body: { query: "How do I change the port?" },
  parseAs: "text",
});
assert.match(String(streamed.data), /^event: delta\n/);

const missing = await client.GET("/api/chats/{chat_id}/history", {
  params: { path: { chat_id: chat_id + 1000 } },
});
assert.ok(missing.error !== undefined && "code" in missing.error);
assert.equal(missing.error.message, "CHAT_DOES_NOT_EXISTS");
