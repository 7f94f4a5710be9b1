import { defaultSettings, layerParley, type Chatbot } from "@parley/core";
import type { AnswererFunction } from "@parley/core/ports";
import { makeParley } from "@parley/core/promise";
import { layerMemoryWith } from "@parley/store-memory";
import { afterAll, describe, expect, it } from "vitest";

const chatbot: Chatbot = {
  id: 1,
  name: "Chatbot",
  description: "",
  workspaceName: "Workspace",
  settings: defaultSettings,
};
const services = (answerer: AnswererFunction = () => "a") =>
  layerParley({ store: layerMemoryWith([chatbot]), answerer });

const parley = makeParley(services());
afterAll(() => parley.dispose());

describe("a promise", () => {
  const wrong: ReadonlyArray<readonly [field: string, call: () => Promise<unknown>]> = [
    ["name", () => parley.createChat(chatbot, { name: "n".repeat(256) })],
    ["idempotencyKey", () => parley.createChat(chatbot, {}, { idempotencyKey: "" })],
    ["question", () => parley.ask(chatbot, { question: "\u0085" })],
    ["chatId", () => parley.ask(chatbot, { chatId: 1.5, question: "q" })],
    ["idempotencyKey", () => parley.ask(chatbot, { question: "q" }, { idempotencyKey: "é" })],
    ["chatId", () => parley.history(chatbot, 1.5)],
    ["page", () => parley.history(chatbot, 1, { page: 0 })],
    ["limit", () => parley.listChats(chatbot, { limit: 101 })],
    ["limit", () => parley.listChats(chatbot, { limit: undefined as any })],
    ["search", () => parley.listChats(chatbot, { search: "a\0" })],
    ["userRef", () => parley.listChats(chatbot, { userRef: "\ud800" })],
    ["orderBy", () => parley.listChats(chatbot, { orderBy: [] as any })],
    [
      "orderBy",
      () => parley.listChats(chatbot, { orderBy: [{ field: "answer", descending: true } as any] }),
    ],
    [
      "orderBy",
      () =>
        parley.listChats(chatbot, {
          orderBy: [
            { field: "name", descending: true },
            { field: "name", descending: false },
          ],
        }),
    ],
  ];
  it.each(wrong)("rejects a wrong %s with a SchemaError that names it", async (field, call) => {
    await expect(call()).rejects.toMatchObject({
      _tag: "SchemaError",
      message: expect.stringContaining(`["${field}"]`),
    });
  });

  it("returns the requested page", async () => {
    for (const name of ["a", "b", null]) await parley.createChat(chatbot, { name });
    const page = await parley.listChats(chatbot, {
      limit: 1,
      page: 2,
      orderBy: [{ field: "name", descending: false }],
    });
    expect(page).toMatchObject({ total: 3, items: [{ name: "b" }] });
  });
});

const signal = () => {
  let send!: () => void;
  const sent = new Promise<void>((resolve) => (send = resolve));
  return { send, sent };
};

it("an empty hello message creates no entry", async () => {
  const settings = { ...defaultSettings, helloMessage: "" };
  const { chat } = await parley.createChat({ ...chatbot, settings });
  expect((await parley.history(chatbot, chat.id)).total).toBe(0);
});

describe("dispose", () => {
  it("waits for the promises in progress, and rejects later calls", async () => {
    const [asked, answer] = [signal(), signal()];
    const parley = makeParley(
      services(async () => {
        asked.send();
        await answer.sent;
        return "late";
      }),
    );
    const { chat } = await parley.createChat(chatbot);
    const asking = parley.ask(chatbot, { chatId: chat.id, question: "q" });
    await asked.sent;
    let isOver = false;
    const disposed = parley.dispose().then(() => (isOver = true));
    await expect(parley.createChat(chatbot)).rejects.toMatchObject({ _tag: "StorageUnavailable" });
    await expect(parley.history(chatbot, chat.id)).rejects.toMatchObject({
      _tag: "StorageUnavailable",
    });
    expect(isOver).toBe(false);
    answer.send();
    expect((await asking).entry.answer).toBe("late");
    await disposed;
    await parley.dispose();
  });
});
