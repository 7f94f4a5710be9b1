import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { patience } from "./Amount.ts";
import { makeClient } from "./Client.ts";
import { readEverything } from "./Everything.ts";
import { dataBytes, type Chat, type Entry } from "./Ledger.ts";
import { isGone, killProcess, postmasterOf } from "./Postgres.ts";
import { startServer, type Server } from "./Server.ts";
import { makeSite } from "./Site.ts";
import { slowAnswerOf, startSlowModel } from "./SlowModel.ts";

/** How long one answer takes, in milliseconds. */
const slowness = 1500;

test(
  "SIGTERM: asks under way are answered, then the server and its PostgreSQL end",
  async () => {
    const site = await makeSite();
    const model = await startSlowModel(slowness);
    const servers: Array<Server> = [];
    const client = makeClient(site.key);
    try {
      const server = await startServer(site, model.environment);
      servers.push(server);
      const postmaster = postmasterOf(site)!;
      expect(postmaster).not.toBeNull();
      const created = await client.post(`${server.baseUrl}/chats`, { name: "shared" });
      const shared = (JSON.parse(dataBytes(created!.text)) as Chat).id;

      const ask = (question: string, chatId: number | null, key?: string) =>
        client.post(server.askUrl, { chat_id: chatId, query: question }, key);
      const questions = Array.from({ length: 8 }, (_, at) => `new chat ${at}`);
      const asks = questions.map((question, at) =>
        ask(question, null, at % 2 === 0 ? `key ${at}` : undefined),
      );
      // One of them waits for the other's answer.
      const inTurn = [ask("first in turn", shared), ask("second in turn", shared)];
      const hungUp = client.postAndHangUp(server.askUrl, { query: "hung up" }, slowness / 2);
      const began = Date.now();
      while (model.asked() < 10 && Date.now() - began < 10_000) await sleep(5);
      expect(model.asked()).toBe(10);
      await hungUp;

      const asked = Date.now();
      const stopping = server.stop().then((ended) => ({ ended, millis: Date.now() - asked }));
      await sleep(100);
      const tooLate = await makeClient(site.key).get(`${server.baseUrl}/details`);
      expect(tooLate, "a connection after SIGTERM").toBeNull();
      const answers = await Promise.all([...asks, ...inTurn]);
      const { ended, millis } = await stopping;
      const acknowledged = answers.map((answer) => {
        expect(answer?.status, answer?.text ?? server.log()).toBe(201);
        return JSON.parse(dataBytes(answer!.text)) as Entry;
      });
      for (const { answer, question } of acknowledged) expect(answer).toBe(slowAnswerOf(question));
      expect(await isGone(postmaster, 0), "PostgreSQL is gone").toBe(true);
      expect(postmasterOf(site)).toBeNull();

      const again = await startServer(site, model.environment);
      servers.push(again);
      const { chats, entries, violations } = await readEverything(site, again);
      expect(violations).toEqual([]);
      const stored = [...entries.values()].flat();
      for (const entry of acknowledged) {
        expect(stored.filter(({ question }) => question === entry.question)).toEqual([entry]);
      }
      // Who hung up had not cancelled.
      expect(stored.filter(({ question }) => question === "hung up")).toHaveLength(1);
      expect(chats).toHaveLength(1 + questions.length + 1);
      expect(stored).toHaveLength(1 + acknowledged.length + 1);
      await again.stop();
      expect.soft(ended, "how the server ended").toBe(0);
      // Not as long as clients keep their connections: a supervisor would not wait for that.
      expect.soft(millis, "from SIGTERM to the end").toBeLessThan(2 * slowness + 5000);
    } finally {
      client.close();
      model.close();
      for (const server of servers) await server.kill();
      const left = postmasterOf(site);
      if (left !== null) killProcess(left);
      await site.remove();
    }
  },
  patience,
);
