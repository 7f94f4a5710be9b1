import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { makeClient } from "./Client.ts";
import { askForStream } from "./EventClient.ts";
import { asks, stopped } from "./Amount.ts";
import { entryOf } from "./EntryOf.ts";
import type { Entry } from "./Ledger.ts";
import { helloMessage } from "./Site.ts";
import { startTogether, type Together } from "./Together.ts";
import type { Call } from "./HeldModel.ts";

/** A turn that is not renewed lasts so long, in milliseconds. */
const lease = 10_000;

let together: Together;
/** When the model had answered a question, by `performance.now()`. */
const answered = new Map<string, number>();

const answerOf = (question: string) => `Answer to ${question}`;

const answerNow = (call: Call) => {
  answered.set(call.question, performance.now());
  call.end(answerOf(call.question));
};

/** What is to be held has "held" in it; everything else is answered after a moment. */
const answer = (call: Call) => {
  if (call.question.includes("held")) return;
  setTimeout(answerNow, 10, call);
};

beforeAll(async () => {
  together = await startTogether(inject("postgresUrl"), 3, answer);
}, 120_000);

afterAll(() => together.stop());

/** What a model was told, but for its instructions. */
const conversationOf = ({ messages }: Call) => messages.filter(({ role }) => role !== "system");

/** What a model must be told in a chat with these entries. */
const promptAfter = (entries: ReadonlyArray<Entry>, question: string) => [
  { role: "assistant", text: helloMessage },
  ...entries.flatMap((entry) => [
    { role: "user", text: entry.question },
    { role: "assistant", text: entry.answer },
  ]),
  { role: "user", text: question },
];

/** Every call of the model in the chat was told exactly what was stored before it. */
const expectInTurn = async (chat: number, word: string, amount: number) => {
  const [hello, ...entries] = await together.history(together.servers[0]!, chat);
  expect(hello!.answer).toBe(helloMessage);
  expect(entries).toHaveLength(amount);
  const calls = together.model.callsWith(word);
  expect(entries.map(({ question }) => question)).toEqual(calls.map(({ question }) => question));
  for (const [at, entry] of entries.entries()) {
    expect(entry.answer).toBe(answerOf(entry.question));
    expect(conversationOf(calls[at]!)).toEqual(promptAfter(entries.slice(0, at), entry.question));
  }
  const times = entries.map(({ _createTime }) => _createTime);
  expect(times).toEqual(times.toSorted());
  return entries;
};

const longestRun = (names: ReadonlyArray<number>): number => {
  let longest = 0;
  let run = 0;
  for (const [at, name] of names.entries()) {
    run = at > 0 && names[at - 1] === name ? run + 1 : 1;
    longest = Math.max(longest, run);
  }
  return longest;
};

describe("asks of one chat, at two servers", () => {
  test.for(["without keys", "with keys"])(
    `${asks} at once %s are answered in turn, and neither server starves`,
    { timeout: 120_000 },
    async (kind) => {
      const { client, model } = together;
      const servers = together.servers.slice(0, 2);
      const chat = await together.newChat();
      const word = kind.replace(" ", "-");
      // The first is held until all the others wait.
      const first = client.post(servers[0]!.askUrl, { chat_id: chat, query: `${word} held` });
      const holder = await model.called(`${word} held`);
      const clients = servers.map(() => makeClient(together.site.key));
      const others = Array.from({ length: asks - 1 }, (_, at) => {
        const server = (at + 1) % 2;
        const key = kind === "with keys" ? `${word}-${at + 1}` : undefined;
        const query = `${word} ${at + 1}`;
        return clients[server]!.post(servers[server]!.askUrl, { chat_id: chat, query }, key);
      });
      await sleep(700);
      expect(model.callsWith(word)).toHaveLength(1);
      answerNow(holder);
      const acknowledged = (await Promise.all([first, ...others])).map(entryOf);
      for (const each of clients) each.close();

      const entries = await expectInTurn(chat, word, asks);
      expect(acknowledged.toSorted((a, b) => a.id - b.id)).toEqual(entries);

      const calls = model.callsWith(word);
      const waits = calls
        .slice(1)
        .map(({ at }, n) => at - answered.get(calls[n]!.question)!)
        .toSorted((a, b) => a - b);
      const mean = waits.reduce((sum, wait) => sum + wait, 0) / waits.length;
      const order = entries.slice(1).map(({ question }) => Number(question.split(" ")[1]) % 2);
      const bothWait = order.slice(0, Math.min(order.lastIndexOf(0), order.lastIndexOf(1)) + 1);
      console.log(
        `${kind}: hand-over mean ${mean.toFixed(1)} ms, median ${waits[waits.length >> 1]!.toFixed(1)} ms, ` +
          `longest ${waits.at(-1)!.toFixed(1)} ms; longest run of one server ${longestRun(bothWait)}; order ${order.join("")}`,
      );
      expect(longestRun(bothWait)).toBeLessThanOrEqual(3);
      // A poll a second would show.
      expect(mean).toBeLessThan(250);
    },
  );
});

describe.concurrent("a slow model", () => {
  test("no connection to the database is held while a model answers", async ({ expect }) => {
    const { client, database, model, servers, site } = together;
    const chats = await Promise.all(Array.from({ length: 20 }, () => together.newChat()));
    const pending = chats.map((chat, at) => {
      const body = { chat_id: at % 4 === 3 ? null : chat, query: `connection held ${at};` };
      const server = servers[1]!;
      if (at % 5 !== 0) {
        return client.post(server.askUrl, body, at % 2 === 0 ? `connection-${at}` : undefined);
      }
      const stream = askForStream(server.askUrl, site.key, body);
      return stream.ended.then(() => stream.events.at(-1)!.name);
    });
    const calls = await Promise.all(chats.map((_, at) => model.called(`connection held ${at};`)));
    for (const call of calls) call.say("Answer");
    let held = 0;
    let busy = 0;
    const samples = 40;
    for (let sample = 0; sample < samples; sample++) {
      await sleep(50);
      const rows = await database.rows<{ readonly state: string; readonly long: boolean }>(
        `select state, state <> 'idle' and clock_timestamp() - state_change > interval '200 milliseconds' as long
        from pg_stat_activity where datname = current_database() and application_name = 'parley'`,
      );
      expect(rows.length).toBeGreaterThan(0);
      held += rows.filter(({ long }) => long).length;
      busy += rows.filter(({ state }) => state !== "idle").length;
    }
    for (const call of calls) call.end();
    const results = await Promise.all(pending);
    expect(results.map((got) => (typeof got === "string" ? got : got?.status)).toSorted()).toEqual([
      ...Array.from({ length: 16 }, () => 201),
      ...Array.from({ length: 4 }, () => "entry"),
    ]);
    console.log(`connections not idle while 20 models answer: ${busy / samples} on average`);
    expect(held).toBe(0);
    // Only the renewals, which come every three seconds.
    expect(busy / samples).toBeLessThan(1);
  });

  test(
    `SIGSTOP for ${stopped} ms: another answers, and the late one stores nothing`,
    { timeout: 120_000 },
    async ({ expect }) => {
      const { client, model, servers } = together;
      const [holder, other] = servers as [(typeof servers)[0], (typeof servers)[0]];
      const [plain, keyed, alone] = await Promise.all([
        together.newChat(),
        together.newChat(),
        together.newChat(),
      ]);
      const slow = (chat: number | null, query: string, key?: string) =>
        client.post(holder.askUrl, { chat_id: chat, query }, key);
      const late = [
        slow(plain, "stopped held plain"),
        slow(keyed, "stopped held keyed", "stopped-keyed"),
        slow(null, "stopped held new", "stopped-new"),
      ];
      const unrivalled = slow(alone, "stopped held alone");
      const words = ["plain", "keyed", "new", "alone"].map((word) => `stopped held ${word}`);
      const calls = await Promise.all(words.map((word) => model.called(word)));
      for (const call of calls) call.say("Late ");
      await sleep(200);
      const began = performance.now();
      process.kill(holder.pid, "SIGSTOP");
      try {
        const retry = (chat: number | null, query: string, key: string) =>
          client.post(other.askUrl, { chat_id: chat, query }, key);
        const next = client.post(other.askUrl, { chat_id: plain, query: "stopped next" });
        const retries = [
          retry(keyed, "stopped held keyed", "stopped-keyed"),
          retry(null, "stopped held new", "stopped-new"),
        ];
        const took = [
          model.called("stopped next").then(({ at }) => at - began),
          ...["keyed", "new"].map(async (word) => {
            while (model.callsWith(`stopped held ${word}`).length < 2) await sleep(10);
            const again = model.callsWith(`stopped held ${word}`)[1]!;
            answerNow(again);
            return again.at - began;
          }),
        ];
        const millis = await Promise.all(took);
        console.log(
          `after SIGSTOP, another takes the turns after ${millis.map((took) => took.toFixed(0)).join(", ")} ms`,
        );
        for (const wait of millis) expect(wait).toBeLessThan(lease + 3000);
        const taken = (await Promise.all([next, ...retries])).map(entryOf);
        await sleep(Math.max(0, stopped - (performance.now() - began)));
        // It finds the model's answers at once when it goes on.
        for (const call of calls) call.end("answer");
        process.kill(holder.pid, "SIGCONT");
        for (const got of await Promise.all(late)) {
          expect(got?.status, got?.text).toBe(500);
          expect(got?.text).toContain('"ANSWER_UNAVAILABLE"');
        }
        const [, ...afterPlain] = await together.history(other, plain);
        expect(afterPlain).toEqual([taken[0]]);
        const [, ...afterKeyed] = await together.history(other, keyed);
        expect(afterKeyed).toEqual([taken[1]]);
        expect(await together.history(other, taken[2]!.chat_id)).toEqual([taken[2]]);
        for (const [at, word] of ["keyed", "new"].entries()) {
          const [row] = await together.database.rows<{ readonly n: bigint }>(
            "select count(*) as n from entry where question = $1",
            [`stopped held ${word}`],
          );
          expect(Number(row!.n)).toBe(1);
          expect(model.callsWith(`stopped held ${word}`)).toHaveLength(2);
          // Who was late gets the entry that there is, once he asks again.
          const again = await client.post(
            holder.askUrl,
            { chat_id: at === 0 ? keyed : null, query: `stopped held ${word}` },
            `stopped-${word}`,
          );
          expect(again?.replayed).toBe(true);
          expect(entryOf(again)).toEqual(taken[at + 1]);
        }
        // Nobody wanted its turn: whole or none.
        const got = await unrivalled;
        const [, ...afterAlone] = await together.history(other, alone);
        console.log(`a stopped server whose turn nobody wanted answers ${got?.status}`);
        if (got?.status === 201) expect(afterAlone).toEqual([entryOf(got)]);
        else expect([got?.status, ...afterAlone]).toEqual([500]);
        // And the chats go on.
        entryOf(await client.post(holder.askUrl, { chat_id: plain, query: "stopped after" }));
        await expectPrompt("stopped after", [afterPlain[0]!]);
      } finally {
        process.kill(holder.pid, "SIGCONT");
      }
    },
  );

  test(
    "kill -9: another gets the turn within the lease",
    { timeout: 120_000 },
    async ({ expect }) => {
      const { client, model, servers } = together;
      const [, other, victim] = servers as [unknown, (typeof servers)[0], (typeof servers)[0]];
      const chat = await together.newChat();
      const lost = client.post(victim.askUrl, { chat_id: chat, query: "killed held" });
      const waitsToo = client.post(victim.askUrl, { chat_id: chat, query: "killed waiting" });
      await model.called("killed held");
      const next = client.post(other.askUrl, { chat_id: chat, query: "killed next" });
      await sleep(1000);
      const began = performance.now();
      await victim.kill();
      const call = await model.called("killed next");
      console.log(`after kill -9, another takes the turn after ${(call.at - began).toFixed(0)} ms`);
      expect(call.at - began).toBeLessThan(lease + 2500);
      const entry = entryOf(await next);
      expect(await lost).toBeNull();
      expect(await waitsToo).toBeNull();
      const [, ...entries] = await together.history(other, chat);
      expect(entries).toEqual([entry]);
      await expectPrompt("killed next", []);
    },
  );
});

/** The only call with this question was told of these entries alone. */
const expectPrompt = async (question: string, before: ReadonlyArray<Entry>) => {
  const calls = together.model.callsWith(question);
  expect(calls.map(conversationOf)).toEqual([promptAfter(before, question)]);
};
