import { openParley } from "@parley/core/promise";
import { postgres } from "@parley/store-pg";
import { expect, inject, it } from "vitest";
import { freshSchema } from "./PostgresUnderTest.ts";

const open = (url: string, schema: string) =>
  openParley({
    store: postgres({ url, schema }),
    answerer: ({ question }) => question,
    log: false,
  });

it("two openParley instances on one database share chatbots and chats", async () => {
  const schema = freshSchema();
  const parleys = await Promise.all([1, 2].map(() => open(inject("postgresUrl"), schema)));
  try {
    const declaration = { workspace: "Acme", name: "Support", helloMessage: "Hello!" };
    const [one, other] = await Promise.all(
      [...parleys, ...parleys].map((parley) => parley.chatbot(declaration)),
    );
    expect(other!.chatbot).toEqual(one!.chatbot);
    const order = "id,workspaceName,name,description,settings";
    expect([one, other].map((bot) => Object.keys(bot!.chatbot).join())).toEqual([order, order]);
    const chat = await one!.createChat({ userRef: "user-7" });
    await Promise.all([one!.ask(chat.id, "1"), other!.ask(chat.id, "2")]);
    expect((await other!.history(chat.id).page()).total).toBe(3);
    const { key } = await one!.createKey();
    expect((await parleys[1]!.authenticate(key)).bot.chatbot).toEqual(one!.chatbot);
    expect(await other!.erase({ userRef: "user-7" })).toBe(1);
  } finally {
    await Promise.all(parleys.map((parley) => parley.close()));
  }
});

it("openParley rejects at once if the database cannot be reached", async () => {
  await expect(open("postgres://nobody@127.0.0.1:1/nothing", "parley")).rejects.toMatchObject({
    name: "PostgresUnusable",
    message: expect.stringContaining("ECONNREFUSED"),
  });
});
