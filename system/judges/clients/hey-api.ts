import { key, origin, run } from "./flow.js";
import { client } from "./generated/hey-api/client.gen.js";
import { answersAsk, generalCreateChat, generalHistory } from "./generated/hey-api/index.js";

client.setConfig({ baseUrl: origin, auth: key });

await run("hey-api", {
  createChat: async (body, idempotencyKey) => {
    const headers = { "Idempotency-Key": idempotencyKey };
    return (await generalCreateChat({ body, headers, throwOnError: true })).data.data;
  },
  history: async (chat_id) => {
    const query = { orderBy: ["flagged" as const, "id" as const], desc: [false, true] };
    return (await generalHistory({ path: { chat_id }, query, throwOnError: true })).data;
  },
  ask: async (chat_id, query) => {
    const ask = await answersAsk({ body: { chat_id, query } });
    if (ask.error !== undefined) throw ask.error;
    return { ...ask.data.data, answer: ask.data.data.answer };
  },
  missing: async (chat_id) => {
    const { error } = await generalHistory({ path: { chat_id } });
    return error !== undefined && "message" in error ? error.message : "none";
  },
  invalid: async () => {
    const { error } = await answersAsk({ body: { query: "" } });
    return error?.status === 422 ? error.errors[0]!.path : [];
  },
});
