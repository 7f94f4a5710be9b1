import { expect, it } from "vitest";
import { askApi, createChat } from "../apps/server/test/contract/client.ts";
import { launch } from "../apps/server/test/contract/launch.ts";
import { startTestModel } from "../apps/server/test/TestModel.ts";

it("asks are limited as the settings say, and an ask waits for its turn for up to twice the deadline", async () => {
  const model = await startTestModel(() => {});
  const server = await launch("memory", {
    ...model.settings,
    PARLEY_ASK_DEADLINE: "2 seconds",
    PARLEY_ASKS_AT_ONCE: "5",
  });
  try {
    const { id } = await createChat(server.target);
    const ask = async (chat_id?: number) => {
      const begun = performance.now();
      const { body } = await askApi(server.target, { json: { query: "Are you there?", chat_id } });
      return { code: body.code, millis: performance.now() - begun };
    };
    const outcomes: Array<ReturnType<typeof ask>> = [];
    // Four asks in the chat, one after the other, and one elsewhere.
    for (const chat of [id, id, id, id, undefined]) {
      outcomes.push(ask(chat));
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    expect((await ask()).code).toBe(500004);
    const [first, second, , fourth, elsewhere] = await Promise.all(outcomes);
    for (const [{ code, millis }, expected, least] of [
      [first!, 500002, 2000],
      [second!, 500002, 3700],
      [fourth!, 500004, 4000],
      [elsewhere!, 500002, 2000],
    ] as const) {
      expect(code).toBe(expected);
      expect(millis).toBeGreaterThan(least - 10);
      expect(millis).toBeLessThan(15_000);
    }
  } finally {
    await server.stop();
    model.close();
  }
});
