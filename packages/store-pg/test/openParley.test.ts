import { openParley } from "@parley/core/promise";
import { postgres } from "@parley/store-pg";
import { expect, inject, it } from "vitest";
import { freshSchema } from "./PostgresUnderTest.ts";

type Answer = (request: { readonly question: string }) => string | Promise<string>;

const open = (url: string, schema: string, answerer: Answer = ({ question }) => question) =>
  openParley({ store: postgres({ url, schema }), answerer, log: false });

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

it("two processes answer overlapping asks in a chat one at a time and in turns, and no ask starves", async () => {
  const schema = freshSchema();
  const present = new Set<string>();
  let most = 0;
  const answer: Answer = async ({ question }) => {
    most = Math.max(most, present.add(question).size);
    await new Promise((resume) => setTimeout(resume, 100));
    present.delete(question);
    return question;
  };
  const parleys = await Promise.all([1, 2].map(() => open(inject("postgresUrl"), schema, answer)));
  try {
    const declaration = { workspace: "Acme", name: "Support" };
    const bots = await Promise.all(parleys.map((parley) => parley.chatbot(declaration)));
    const chat = await bots[0]!.createChat();
    const asks = bots.flatMap((bot, n) =>
      [1, 2, 3, 4, 5].map((k) => bot.ask(chat.id, `${n ? "b" : "a"}${k}`)),
    );
    await Promise.all(asks);
    expect(most).toBe(1);
    const { data } = await bots[0]!.history(chat.id).page();
    const turns = data.map(({ question }) => question[0]).join("");
    expect(turns).toHaveLength(10);
    // A process that waits gets the next turn. Until it waits, the other may have had some; so it may at the end.
    expect(turns.replace(/a+$|b+$/, "")).not.toMatch(/aaaa|bbbb/);
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
