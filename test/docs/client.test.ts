/**
 * The examples in docs/library/client.md, run against a real server.
 */
import { AbstractChat, DefaultChatTransport, type ChatState } from "ai";
import type { ParleyMessage } from "@parley/client/ai-sdk";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { withoutSettings } from "../../apps/server/test/withoutSettings.ts";
import { fencesOf, read, root } from "./Fences.ts";
import { startServer, type StartedServer } from "./StartedServer.ts";

let server: StartedServer;
let environment: Record<string, string>;
beforeAll(async () => {
  server = await startServer();
  environment = { PARLEY_ORIGIN: server.origin, API_KEY: server.key };
});
afterAll(() => server.stop());

const run = async (example: string): Promise<string> => {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [join(root, "examples/client", example)],
    { env: { ...withoutSettings(), ...environment }, timeout: 20_000 },
  );
  return stdout;
};

it("stream.ts streams an answer", async () => {
  expect(await run("stream.ts")).toMatch(/^`PARLEY_PORT` is the port[^]*\n$/);
});

it("calls.ts prints what docs/library/client.md shows", async () => {
  const shown = fencesOf(read("docs/library/client.md")).find(({ info }) => info === "text")!;
  expect((await run("calls.ts")).trim()).toBe(shown.text);
});

it("ai-sdk-route.ts answers the AI SDK without handing out the key, and only in the user's chats", async () => {
  Object.assign(process.env, environment);
  const { openChat, postChat } = await import("../../examples/client/ai-sdk-route.ts");

  const received: Array<string> = [];
  const open = async (id: string, messages: Array<ParleyMessage>, user: string) => {
    const state: ChatState<ParleyMessage> = {
      status: "ready",
      error: undefined,
      messages,
      pushMessage: (message) => (state.messages = [...state.messages, message]),
      popMessage: () => (state.messages = state.messages.slice(0, -1)),
      replaceMessage: (at, message) => (state.messages = state.messages.with(at, message)),
      snapshot: (value) => structuredClone(value),
    };
    const transport = new DefaultChatTransport<ParleyMessage>({
      api: "http://app.test/chat",
      fetch: async (url, init) => {
        const response = await postChat(new Request(url, init), user);
        received.push(JSON.stringify([...response.headers]), await response.clone().text());
        return response;
      },
    });
    return new (class extends AbstractChat<ParleyMessage> {})({ id, state, transport });
  };

  const { id, messages } = await openChat("alice");
  const chat = await open(id, messages, "alice");
  await chat.sendMessage({ text: "How do I change the port?" });
  expect(chat.error).toBeUndefined();
  expect(chat.lastMessage?.metadata?.chat_id).toBe(Number(id));
  expect(JSON.stringify(chat.lastMessage!.parts)).toContain("PARLEY_PORT");

  const stranger = await open(id, messages, "bob");
  await stranger.sendMessage({ text: "How do I change the port?" });
  expect(stranger.error?.message).toBe("No such chat");
  expect(received.join()).toContain("PARLEY_PORT");
  expect(received.join()).not.toContain(server.key);
});
