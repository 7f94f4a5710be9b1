import { key, run } from "./flow.js";
import {
  answersAsk,
  generalCreateChat,
  generalDetails,
  generalHistory,
  generalListChats,
} from "./generated/orval.js";

const options = { headers: { "x-api-key": key } };

await run("orval", {
  details: async () => {
    const details = await generalDetails(options);
    if (details.status !== 200) throw details;
    return details.data.data;
  },
  createChat: async (chat, idempotencyKey) => {
    const headers = { ...options.headers, "idempotency-key": idempotencyKey };
    const created = await generalCreateChat(chat, { headers });
    if (created.status !== 201) throw created;
    return created.data.data;
  },
  listChats: async (userRef) => {
    const list = await generalListChats({ userRef, limit: 5 }, options);
    if (list.status !== 200) throw list;
    return { data: list.data.data, total: list.data.meta.total };
  },
  history: async (chatId) => {
    const list = await generalHistory(chatId, { desc: [true] }, options);
    if (list.status !== 200) throw list;
    return { data: list.data.data, total: list.data.meta.total };
  },
  sortedHistory: async (chatId) => {
    const query = { orderBy: ["flagged" as const, "id" as const], desc: [false, true] };
    const list = await generalHistory(chatId, query, options);
    if (list.status !== 200) throw list;
    return { data: list.data.data, total: list.data.meta.total };
  },
  ask: async (chat_id, query) => {
    const ask = await answersAsk({ chat_id, query }, {}, options);
    if (ask.status !== 201) throw ask;
    return { ...ask.data.data, answer: ask.data.data.answer };
  },
  missing: async (chatId) => {
    const { data } = await generalHistory(chatId, {}, options);
    return "message" in data ? data.message : "none";
  },
  invalid: async () => {
    const ask = await answersAsk({ query: "" }, {}, options);
    return ask.status === 422 ? ask.data.errors[0]!.path : [];
  },
});
