import createClient from "openapi-fetch";
import { key, origin, run } from "./flow.js";
import type { paths } from "./generated/openapi-typescript.js";

const client = createClient<paths>({ baseUrl: origin, headers: { "x-api-key": key } });

await run("openapi-fetch", {
  createChat: async (body, idempotencyKey) => {
    const params = { header: { "Idempotency-Key": idempotencyKey } };
    return (await client.POST("/api/chats", { params, body })).data!.data;
  },
  history: async (chat_id) => {
    const { data } = await client.GET("/api/chats/{chat_id}/history", {
      params: { path: { chat_id }, query: { orderBy: ["flagged", "id"], desc: [false, true] } },
    });
    return data!;
  },
  ask: async (chat_id, query) => {
    const ask = await client.POST("/ask", { body: { chat_id, query } });
    if (ask.error !== undefined) throw ask.error;
    return { ...ask.data.data, answer: ask.data.data.answer };
  },
  missing: async (chat_id) => {
    const params = { path: { chat_id } };
    const { error } = await client.GET("/api/chats/{chat_id}/history", { params });
    return error !== undefined && "message" in error ? error.message : "none";
  },
  invalid: async () => {
    const { error } = await client.POST("/ask", { body: { query: "" } });
    return error?.status === 422 ? error.errors[0]!.path : [];
  },
});

const streamed = await client.POST("/ask", {
  headers: { accept: "text/event-stream" },
  body: { query: "How do I change the port?" },
  parseAs: "text",
});
if (!/^event: delta\n[^]*\nevent: entry\n/.test(String(streamed.data))) throw streamed;
