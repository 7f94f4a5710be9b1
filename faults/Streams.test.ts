import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { deltas, idlers } from "./Amount.ts";
import { askForStream, type EventClient } from "./EventClient.ts";
import { dataBytes } from "./Ledger.ts";
import type { Server } from "./Server.ts";
import { startTogether, type Together } from "./Together.ts";
import type { Call } from "./HeldModel.ts";

/** Code units that an answer has at most. */
const longestAnswer = 100_000;

/** What a model says that does not stop by itself, in kB. */
const flood = 30_000;

let together: Together;

const answer = (call: Call) => {
  if (!call.question.includes("held")) call.end(`Answer to ${call.question}`);
};

beforeAll(async () => {
  together = await startTogether(inject("postgresUrl"), 2, answer);
}, 120_000);

afterAll(() => together.stop());

const open = (
  server: Server,
  query: string,
  headers: Readonly<Record<string, string>> = {},
  reads = true,
): EventClient => askForStream(server.askUrl, together.site.key, { query }, headers, reads);

/** What a process has in memory, in MB. */
const megabytesOf = ({ pid }: Server): number =>
  Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))![1]) / 1024;

const within = async (millis: number, check: () => boolean): Promise<boolean> => {
  const until = performance.now() + millis;
  while (!check()) {
    if (performance.now() > until) return false;
    await sleep(5);
  }
  return true;
};

const middle = (values: ReadonlyArray<number>): number =>
  values.toSorted((a, b) => a - b)[values.length >> 1]!;

const codePoints = (text: string): number => [...text].length;

describe("a streamed answer", () => {
  test("reaches the client as the model produces it", async () => {
    const [server] = together.servers as [Server];
    const first: Array<number> = [];
    const later: Array<number> = [];
    for (let at = 0; at < deltas; at++) {
      const stream = open(server, `held first ${at}`);
      const call = await together.model.called(`held first ${at}`);
      for (const [n, waits] of [first, later].entries()) {
        const said = performance.now();
        call.say(`piece ${n};`);
        await stream.said(8 * (n + 1));
        waits.push(stream.events.at(-1)!.at - said);
      }
      call.end();
      await stream.ended;
      expect(stream.events.map(({ name }) => name)).toEqual(["delta", "delta", "entry"]);
    }
    console.log(
      `first delta after the model's: median ${middle(first).toFixed(1)} ms, longest ${Math.max(...first).toFixed(1)} ms; ` +
        `later ones: median ${middle(later).toFixed(1)} ms, longest ${Math.max(...later).toFixed(1)} ms`,
    );
    // The promise is 50 ms; a busy machine takes longer now and then.
    expect(middle(first)).toBeLessThan(50);
    expect(middle(later)).toBeLessThan(50);
  });

  test("is the same bytes in its entry event, a plain replay and the history", async () => {
    const [server, other] = together.servers as [Server, Server];
    const headers = { "idempotency-key": "same-bytes" };
    const query = 'held bytes "\\ 😀 \u2028 é';
    const stream = open(server, query, headers);
    const call = await together.model.called("held bytes");
    const pieces = [
      '"quoted" \\ ',
      "line\nbreak ",
      "\ud83d",
      "\ude00 ",
      "e\u0301 \u2028 </script> \u0007",
    ];
    for (const piece of pieces) call.say(piece);
    call.end();
    await stream.ended;
    const last = stream.events.at(-1)!;
    expect(last.name).toBe("entry");
    expect(stream.text()).toBe(pieces.join(""));
    const data = dataBytes(last.data);
    expect((JSON.parse(data) as { readonly answer: string }).answer).toBe(pieces.join(""));
    for (const asked of [server, other]) {
      const plain = await together.client.post(asked.askUrl, { query }, "same-bytes");
      expect(plain).toEqual({ status: 201, text: last.data, replayed: true });
      const { chat_id } = JSON.parse(data) as { readonly chat_id: number };
      const history = await together.client.get(`${asked.baseUrl}/chats/${chat_id}/history`);
      expect(history?.text).toBe(`{"status":200,"data":[${data}],"meta":{"total":1}}`);
    }
  });

  test("that is cut is resumed at another server, nothing lost or repeated", async () => {
    const [server, other] = together.servers as [Server, Server];
    const headers = { "idempotency-key": "resumed" };
    const stream = open(server, "held resumed", headers);
    const call = await together.model.called("held resumed");
    call.say("One 😀 ");
    await stream.said(7);
    call.say("two 👩‍👩‍👧 ");
    await stream.said(20);
    const seen = stream.events.map(({ id }) => id);
    stream.cut();
    call.say("three ");
    const lastSeen = { ...headers, "last-event-id": seen.at(-1)! };
    const resumed = open(other, "held resumed", lastSeen);
    await sleep(300);
    expect(resumed.events).toEqual([]);
    call.say("four");
    call.end();
    await resumed.ended;
    const whole = "One 😀 two 👩‍👩‍👧 three four";
    expect(stream.text() + resumed.text()).toBe(whole);
    expect(resumed.events.map(({ name }) => name)).toEqual(["delta", "entry"]);
    const [turn] = seen[0]!.split(".");
    expect(resumed.events.map(({ id }) => id)).toEqual(
      Array.from({ length: 2 }, () => `${turn}.${codePoints(whole)}`),
    );
    // From every event on, at either server, there is the rest, and the same entry.
    for (const asked of [server, other]) {
      for (const [id, rest] of [
        [seen[0]!, whole.slice(7)],
        [seen[1]!, whole.slice(20)],
        [`${turn}.${codePoints(whole)}`, ""],
        [`${turn}.0`, whole],
        ["another-turn.3", whole],
      ] as const) {
        const again = open(asked, "held resumed", { ...headers, "last-event-id": id });
        await again.ended;
        expect(again.text()).toBe(rest);
        expect(again.events.at(-1)!.data).toBe(resumed.events.at(-1)!.data);
        expect(again.events).toHaveLength(rest === "" ? 1 : 2);
        expect((await again.response)!.headers["idempotent-replayed"]).toBe("true");
      }
    }
    expect(together.model.callsWith("held resumed")).toHaveLength(1);
  });

  test.for(["plain", "before its first delta", "after its first delta"])(
    "a hang-up with On-Disconnect: cancel ends the provider's request within a second: %s",
    async (when) => {
      const [server] = together.servers as [Server];
      const accept = when === "plain" ? { accept: "application/json" } : {};
      const stream = open(server, `held ${when}`, { "on-disconnect": "cancel", ...accept });
      const call = await together.model.called(`held ${when}`);
      if (when === "after its first delta") {
        call.say("Half");
        await stream.said(4);
      } else {
        if (when === "plain") call.say("Half");
        await sleep(100);
      }
      const cut = performance.now();
      stream.cut();
      const took = (await call.left) - cut;
      console.log(
        `${when}: the provider's connection is closed ${took.toFixed(1)} ms after the cut`,
      );
      expect(took).toBeLessThan(1000);
      // Time enough for an entry to be stored.
      await sleep(200);
      const rows = await together.database.rows("select from entry where question = $1", [
        `held ${when}`,
      ]);
      expect(rows).toHaveLength(0);
    },
  );
});

describe("a client that does not read", () => {
  test(
    `costs little memory, holds nobody up, and its answer is stored, cut off at its length (${idlers} clients)`,
    { timeout: 120_000 },
    async () => {
      const [server] = together.servers as [Server];
      const { model } = together;
      const warmUp = open(server, "warm-up");
      await warmUp.ended;
      const before = megabytesOf(server);
      const streams = Array.from({ length: idlers }, (_, at) =>
        open(server, `held idle ${at};`, { "idempotency-key": `idle-${at}` }, false),
      );
      const calls = await Promise.all(streams.map((_, at) => model.called(`held idle ${at};`)));
      // Far more than an answer may have, in pieces of 1 kB, as fast as they are taken.
      const kilobyte = "0123456789abcdef".repeat(64);
      const sent = calls.map(() => 0);
      let most = before;
      const floods = calls.map(async (call, at) => {
        let gone = false;
        void call.left.then(() => (gone = true));
        while (sent[at]! < flood && !gone) {
          sent[at]!++;
          if (!call.say(kilobyte)) {
            const drained = new Promise((resolve) => call.response.once("drain", resolve));
            await Promise.race([drained, call.left]);
          } else if (sent[at]! % 20 === 0) await sleep(0);
        }
        if (!gone) call.end();
      });
      const waits: Array<number> = [];
      let flooding = true;
      const others = (async () => {
        while (flooding) {
          const began = performance.now();
          const got = await together.client.post(server.askUrl, { query: "meanwhile" });
          expect(got?.status, got?.text).toBe(201);
          waits.push(performance.now() - began);
          most = Math.max(most, megabytesOf(server));
          await sleep(10);
        }
      })();
      await Promise.all(floods);
      const isStored = await (async () => {
        for (let n = 0; n < 200; n++) {
          const [row] = await together.database.rows<{
            readonly n: bigint;
            readonly length: number;
          }>(
            `select count(*) as n, max(length(answer)) as length from entry where question like 'held idle %'`,
          );
          if (Number(row!.n) === idlers) return row!.length;
          await sleep(50);
        }
        return null;
      })();
      flooding = false;
      await others;
      most = Math.max(most, megabytesOf(server));
      console.log(
        `${idlers} clients that do not read: ${before.toFixed(0)} MB before, at most ${most.toFixed(0)} MB; ` +
          `the model got rid of ${Math.max(...sent)} kB at most; ${waits.length} asks meanwhile, ` +
          `median ${middle(waits).toFixed(1)} ms, longest ${Math.max(...waits).toFixed(1)} ms`,
      );
      expect(isStored).toBe(longestAnswer);
      // The provider's connection is closed; what was under way fills the buffers between the two.
      expect(Math.max(...sent)).toBeLessThan(flood / 2);
      // An answer is text in memory and on the wire, some 200 kB each; the rest is garbage of what was read.
      expect(most - before).toBeLessThan(100 + 4 * idlers);
      expect(Math.max(...waits)).toBeLessThan(5_000);
      for (const stream of streams) stream.cut();

      // Nothing hangs on the answers' readers: the one who reads at last gets it whole.
      const again = open(server, "held idle 0;", { "idempotency-key": "idle-0" });
      await again.ended;
      expect(again.text().length).toBe(longestAnswer);
      expect(await within(2000, () => model.callsWith("held idle").length === idlers)).toBe(true);
    },
  );

  test("reads on where it stopped, and gets everything once", { timeout: 60_000 }, async () => {
    const [server] = together.servers as [Server];
    const stream = open(server, "held pause");
    const call = await together.model.called("held pause");
    call.say("begin ");
    await stream.said(6);
    const response = (await stream.response)!;
    response.pause();
    let said = "begin ";
    for (let n = 0; n < 1500; n++) {
      const piece = `${n} 😀 ${"x".repeat(50)};`;
      said += piece;
      call.say(piece);
      if (n % 50 === 0) await sleep(1);
    }
    call.end();
    await sleep(500);
    response.resume();
    await stream.ended;
    expect(stream.text()).toBe(said);
    const last = stream.events.at(-1)!;
    expect(last.name).toBe("entry");
    expect(
      (JSON.parse(last.data) as { readonly data: { readonly answer: string } }).data.answer,
    ).toBe(said);
    let points = 0;
    for (const { data, id, name } of stream.events) {
      if (name === "delta")
        points += codePoints((JSON.parse(data) as { readonly text: string }).text);
      expect(id.split(".")[1]).toBe(String(points));
    }
  });
});
