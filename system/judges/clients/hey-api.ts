import { key, origin, run } from "./flow.js";
import { client } from "./generated/hey-api/client.gen.js";
import {
  answersAsk,
  generalCreateChat,
  generalDetails,
  generalHistory,
  generalListChats,
} from "./generated/hey-api/index.js";

client.setConfig({ baseUrl: origin, auth: key });

await run("hey-api", {
  details: async () => (await generalDetails({ throwOnError: true })).data.data,
  createChat: async (body, idempotencyKey) => {
    const headers = { "Idempotency-Key": idempotencyKey };
    return (await generalCreateChat({ body, headers, throwOnError: true })).data.data;
  },
  listChats: async (userRef) => {
    const { data } = await generalListChats({ query: { userRef, limit: 5 }, throwOnError: true });
    return { data: data.data, total: data.meta.total };
  },
  history: async (chat_id) => {
    const query = { desc: [true] };
    const { data } = await generalHistory({ path: { chat_id }, query, throwOnError: true });
    return { data: data.data, total: data.meta.total };
  },
  sortedHistory: async (chat_id) => {
    const { data } = await generalHistory({
      path: { chat_id },
      query: { orderBy: ["flagged", "id"], desc: [false, true] },
      throwOnError: true,
    });
    return { data: data.data, total: data.meta.total };
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
