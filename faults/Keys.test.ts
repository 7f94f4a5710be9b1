import { Administration, type KeyChange } from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Layer, ManagedRuntime, Redacted, type Effect } from "effect";
import { Digest, SecureRandom } from "effect/crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { makeClient, type Client } from "./Client.ts";
import { startTogether, type Together } from "./Together.ts";

let together: Together;
/** An operator's process beside the servers. */
let runtime: ManagedRuntime.ManagedRuntime<Administration, unknown>;
let chatbot: number;
const clients: Array<Client> = [];

beforeAll(async () => {
  together = await startTogether(inject("postgresUrl"), 2, (call) => call.end("An answer"));
  const { environment } = together.database;
  runtime = ManagedRuntime.make(
    Administration.layer.pipe(
      Layer.provide([
        layerPostgres({
          url: Redacted.make(environment["DATABASE_URL"]!),
          schema: environment["PARLEY_SCHEMA"],
          listen: false,
        }),
        Digest.layerWebCrypto,
        SecureRandom.layerWebCrypto,
      ]),
    ),
  );
  const [first] = await administer(({ chatbots }) => chatbots);
  chatbot = first!.chatbot.id;
}, 120_000);

afterAll(async () => {
  for (const client of clients) client.close();
  await runtime.dispose();
  await together.stop();
});

const administer = <A, E>(work: (service: Administration["Service"]) => Effect.Effect<A, E>) =>
  runtime.runPromise(Administration.use(work));

/** A key that both servers know already. */
const knownKey = async () => {
  const { id, key } = await administer((service) =>
    service.createKey(chatbot, { scopes: ["read", "write"] }, "test"),
  );
  const client = makeClient(Redacted.value(key));
  clients.push(client);
  expect(await statuses(client)).toEqual([201, 201]);
  return { id, client };
};

/** What each server answers to a creation. */
const statuses = (client: Client) =>
  Promise.all(
    together.servers.map(
      async ({ baseUrl }) => (await client.post(`${baseUrl}/chats`, {}))?.status,
    ),
  );

/** What is promised of a change: it holds everywhere after a second, requests under way or not. */
const afterASecond = async <A>(look: () => Promise<A>, expected: A) => {
  const until = Date.now() + 1000;
  let seen = await look();
  while (Date.now() < until && JSON.stringify(seen) !== JSON.stringify(expected)) {
    await sleep(20);
    seen = await look();
  }
  expect(seen).toEqual(expected);
};

describe("what an operator changes holds in every process within a second", () => {
  const changeKey = (id: string, change: KeyChange) =>
    administer((service) => service.changeKey(chatbot, id, change, "test"));

  test("a key that is revoked", async () => {
    for (let round = 0; round < 5; round++) {
      const { client, id } = await knownKey();
      await administer((service) => service.revokeKey(chatbot, id, "test"));
      await afterASecond(() => statuses(client), [401, 401]);
    }
  });

  test("a key's scopes", async () => {
    const { client, id } = await knownKey();
    await changeKey(id, { scopes: ["read"] });
    await afterASecond(() => statuses(client), [403, 403]);
    await changeKey(id, { scopes: ["write"] });
    await afterASecond(() => statuses(client), [201, 201]);
  });

  test("a key's expiry", async () => {
    const { client, id } = await knownKey();
    await changeKey(id, { expiresAt: new Date(Date.now() - 1) });
    await afterASecond(() => statuses(client), [401, 401]);
    await changeKey(id, { expiresAt: new Date(Date.now() + 60_000) });
    await afterASecond(() => statuses(client), [201, 201]);
  });

  test("a chatbot's description and hello message", async () => {
    const { client } = await knownKey();
    const description = "Changed";
    const settings = { helloMessage: "Changed, too" };
    await administer((service) =>
      service.changeChatbot(chatbot, { description, settings }, "test"),
    );
    const described = ({ baseUrl }: { readonly baseUrl: string }) =>
      client
        .get(`${baseUrl}/details`)
        .then((answer) => JSON.parse(answer!.text).data.chatBotDescription as string);
    await afterASecond(
      () => Promise.all(together.servers.map(described)),
      [description, description],
    );
    const [hello] = await together.history(together.servers[1]!, await together.newChat());
    expect(hello!.answer).toBe(settings.helloMessage);
  });
});

test("the last use of a key is noted, by two servers too", async () => {
  const { id } = await knownKey();
  const used = async () => {
    const { keys } = await administer((service) => service.chatbot(chatbot));
    return keys.find((key) => key.id === id)!.lastUsedAt;
  };
  let lastUsedAt = await used();
  for (let n = 0; lastUsedAt === null && n < 100; n++) {
    await sleep(100);
    lastUsedAt = await used();
  }
  expect(Math.abs(lastUsedAt!.getTime() - Date.now())).toBeLessThan(60_000);
});
