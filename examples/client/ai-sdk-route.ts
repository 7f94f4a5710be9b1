import { makeChatTransport, toMessages, type ParleyMessage } from "@parley/client/ai-sdk";
import { makeClient } from "@parley/client";
import { createUIMessageStreamResponse } from "ai";

const parley = makeClient({
  origin: process.env["PARLEY_ORIGIN"] ?? "http://127.0.0.1:3000",
  apiKey: process.env["API_KEY"],
});

/** The `useChat` options for a user's new chat. */
export const openChat = async (user: string) => {
  const { id } = await parley.createChat({ userRef: user });
  const { data } = await parley.history(id, { include: ["metadata"], orderBy: "id" }).page();
  return { id: String(id), messages: toMessages(data) };
};

/** Answers `POST /chat` from the user whom your service has signed in. */
export const postChat = async (request: Request, user: string): Promise<Response> => {
  const { id, messages } = (await request.json()) as { id: string; messages: Array<ParleyMessage> };
  const chatId = Number(id);
  // The browser chose the id, so check that the chat is the user's.
  const { total } = await parley.chats({ id: chatId, userRef: user }).page();
  if (total === 0) return new Response("No such chat", { status: 404 });
  // With `onDisconnect: "finish"`, stopped answers are completed and stored.
  const transport = makeChatTransport({ client: parley, chatId, onDisconnect: "cancel" });
  const stream = await transport.sendMessages({
    trigger: "submit-message",
    chatId: id,
    messageId: undefined,
    messages,
    abortSignal: request.signal,
  });
  return createUIMessageStreamResponse({ stream });
};
