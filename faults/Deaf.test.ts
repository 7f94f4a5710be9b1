import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { entryOf } from "./EntryOf.ts";
import { startTogether, type Together } from "./Together.ts";

let hearing: Together;
let deaf: Together;

const start = (listen: boolean) =>
  startTogether(
    inject("postgresUrl"),
    2,
    (call) => {
      if (!call.question.includes("held")) call.end(`Answer to ${call.question}`);
    },
    { PARLEY_LISTEN: String(listen) },
  );

beforeAll(async () => {
  [hearing, deaf] = await Promise.all([start(true), start(false)]);
}, 120_000);

afterAll(async () => {
  for (const together of [hearing, deaf]) await together?.stop();
});

const listeners = async ({ database }: Together) => {
  const rows = await database.rows(
    "select from pg_stat_activity where datname = current_database() and query ilike 'listen %'",
  );
  return rows.length;
};

test("with PARLEY_LISTEN=false no connection listens", async () => {
  expect(await listeners(hearing)).toBe(2);
  expect(await listeners(deaf)).toBe(0);
});

test("asks in one chat are answered in turn by servers that hear nothing of each other", async () => {
  const { client, model, servers } = deaf;
  const chat = await deaf.newChat();
  const first = client.post(servers[0]!.askUrl, { chat_id: chat, query: "first held" });
  const holder = await model.called("first held");
  const others = servers.map((server, n) =>
    client.post(server.askUrl, { chat_id: chat, query: `then ${n}` }),
  );
  // The other server has stood in line for the chat by then.
  await expect
    .poll(() => deaf.database.rows("select from chat where cardinality(waiting) > 0"))
    .toHaveLength(1);
  expect(model.callsWith("then")).toHaveLength(0);
  holder.end("Answer to the first");
  const [one, ...more] = (await Promise.all([first, ...others])).map((got) => entryOf(got).id);
  for (const id of more) expect(id).toBeGreaterThan(one!);
  expect(await deaf.history(servers[1]!, chat)).toHaveLength(4);
});
