import { Access, Asking, Chats, defaultSettings, Moderator, type Chatbot } from "@parley/core";
import { makeParley } from "@parley/core/promise";
import { layerScripted, type Script } from "@parley/llm";
import { layerMemory } from "@parley/store-memory";
import { Effect, Layer } from "effect";
import { Digest } from "effect/crypto";
import { afterAll, describe, expect, it } from "vitest";

const services = (script: Script = () => ["a"]) =>
  Layer.mergeAll(Access.layer, Chats.layer, Asking.layer).pipe(
    Layer.provide([layerMemory, layerScripted(script), Moderator.layerOff, Digest.layerWebCrypto]),
  );

const parley = makeParley(services());
afterAll(() => parley.dispose());

const chatbot: Chatbot = {
  id: 1,
  name: "Chatbot",
  description: "",
  workspaceName: "Workspace",
  settings: defaultSettings,
};

describe("a promise", () => {
  const wrong: ReadonlyArray<readonly [string, () => Promise<unknown>]> = [
    ["a long name", () => parley.createChat(chatbot, { name: "n".repeat(256) })],
    ["a blank question", () => parley.ask(chatbot, { question: " " })],
    ["a chat with no whole id", () => parley.ask(chatbot, { chatId: 1.5, question: "q" })],
    ["the same for a history", () => parley.history(chatbot, 1.5)],
    ["a page before the first", () => parley.history(chatbot, 1, { page: 0 })],
    ["too many rows", () => parley.listChats(chatbot, { limit: 101 })],
    ["no number of rows", () => parley.listChats(chatbot, { limit: undefined as any })],
    ["what is no text", () => parley.listChats(chatbot, { search: "a\0" })],
    ["half a character", () => parley.listChats(chatbot, { userRef: "\ud800" })],
    ["no order", () => parley.listChats(chatbot, { orderBy: [] as any })],
    [
      "an unknown field",
      () => parley.listChats(chatbot, { orderBy: [{ field: "answer", descending: true } as any] }),
    ],
    [
      "a field twice",
      () =>
        parley.listChats(chatbot, {
          orderBy: [
            { field: "name", descending: true },
            { field: "name", descending: false },
          ],
        }),
    ],
  ];
  it.each(wrong)("rejects %s with a SchemaError", async (_, call) => {
    await expect(call()).rejects.toMatchObject({ _tag: "SchemaError" });
  });

  it("gives the page that was asked for", async () => {
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

describe("dispose", () => {
  it("waits for what is under way, and takes nothing more", async () => {
    const [asked, answer] = [signal(), signal()];
    const parley = makeParley(
      services(() =>
        Effect.promise(async () => {
          asked.send();
          await answer.sent;
          return ["late"];
        }),
      ),
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

  it("ends the building of the layer, whatever that waits for", async () => {
    const building = signal();
    const endless = Effect.andThen(Effect.sync(building.send), Effect.never);
    const parley = makeParley(Layer.provideMerge(services(), Layer.effectDiscard(endless)));
    const creating = parley.createChat(chatbot);
    await building.sent;
    const refused = expect(creating).rejects.toMatchObject({ _tag: "StorageUnavailable" });
    await parley.dispose();
    await refused;
  });
});
