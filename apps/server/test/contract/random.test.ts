/**
 * Thousands of random requests to two servers, one over each store. No answer is a 5xx, each is in a
 * shape of the specification, and both servers answer the same bytes, ids and times aside.
 *
 * `PARLEY_RANDOM_REQUESTS` and `PARLEY_RANDOM_SEED` decide how many and which; test:system sends 10,000.
 */
import { afterAll, beforeAll, expect, it } from "vitest";
import {
  deltaText,
  exchange,
  expectShape,
  parseEvents,
  type Answer,
  type Chat,
  type Entry,
  type PlainRequest,
  type Target,
} from "./client.ts";
import { makeRandom, randomRequest, type RandomRequest } from "./generator.ts";
import { launch, type Running } from "./launch.ts";

const count = Number(process.env["PARLEY_RANDOM_REQUESTS"] ?? 1_000);
const seed = Number(process.env["PARLEY_RANDOM_SEED"] ?? Date.now() % 2 ** 32);

const running: Array<Running> = [];
beforeAll(async () => {
  const starts = await Promise.allSettled([launch("memory"), launch("embedded")]);
  for (const start of starts) if (start.status === "fulfilled") running.push(start.value);
  for (const start of starts) if (start.status === "rejected") throw start.reason;
});
afterAll(() => Promise.all(running.map(({ stop }) => stop())));

/** One server, and what it has answered so far. Sends a request and tells the answer, normalized. */
const makeSubject = (target: Target) => {
  const ids = { chat: [] as Array<number>, entry: [] as Array<number> };
  const names = new Map<string, string>();
  /** What each row looked like when it was first seen: no row ever changes. */
  const rows = new Map<string, string>();

  /** The request with this server's ids and keys in the place of their names. */
  const resolve = ({ body, headers, method, path }: RandomRequest): PlainRequest => {
    const fill = (text: string) =>
      text
        .replace(/<(chat|entry) (\d+)>/g, (_, kind: "chat" | "entry", n: string) => {
          const known = ids[kind];
          return String(known.at(-1 - (Number(n) % Math.max(known.length, 1))) ?? 9007199254740990);
        })
        .replace(/<key (\w+)>/g, (_, name: string) => String(target[name as keyof Target]));
    return {
      method,
      path: fill(path),
      headers: Object.fromEntries(
        Object.entries(headers).map(([name, value]) => [
          name,
          typeof value === "string" ? fill(value) : value,
        ]),
      ),
      ...(body === undefined ? {} : { body: typeof body === "string" ? fill(body) : body }),
    };
  };

  /** Rows are named by their first appearance, which is the same on every server. */
  const nameOf = (kind: "chat" | "entry", owner: string, id: number): string => {
    const row = `${kind} ${owner} ${id}`;
    const name = names.get(row) ?? `${kind} ${ids[kind].length}`;
    if (!names.has(row)) ids[kind].push(id);
    names.set(row, name);
    return name;
  };

  const normalize = (request: RandomRequest, answer: Answer): string => {
    const owner = String(request.headers["x-api-key"]).replace(/(read|write|ask)Key/, "key");
    const data = answer.status < 300 ? [answer.body?.data ?? []].flat() : [];
    const told = data.map((row: Chat | Entry | object) => {
      if (!("id" in row)) return "";
      const name =
        "chat_id" in row
          ? `${nameOf("entry", owner, row.id)} of ${nameOf("chat", owner, row.chat_id)}`
          : nameOf("chat", owner, row.id);
      const first = rows.get(name) ?? JSON.stringify(row);
      rows.set(name, first);
      expect(JSON.stringify(row), name).toBe(first);
      return name;
    });
    const {
      "content-type": type,
      "idempotent-replayed": replayed,
      "retry-after": retry,
    } = answer.headers;
    const text = answer.text
      .replace(/"(id|chat_id)":\d+/g, '"$1":#')
      .replace(/"_createTime":"[^"]*"/g, '"_createTime":"#"')
      // Where an answer tells the path, it tells the id in it.
      .replace(/^(\{"status":404,.*"path":"[^"]*\/chats\/)\d+/, "$1#");
    return JSON.stringify({ status: answer.status, type, replayed, retry, told }) + text;
  };

  /** A stream's last event is the envelope that a plain ask gets; its deltas make up the answer. */
  const unstream = (answer: Answer): Answer => {
    const events = parseEvents(answer.text);
    const last = events.at(-1);
    expect(last?.event).toBe("entry");
    expect(deltaText(events)).toBe(last?.data.data.answer);
    return {
      ...answer,
      status: last?.data.status,
      headers: { ...answer.headers, "content-type": "application/json; charset=utf-8" },
      text: JSON.stringify(last?.data),
      body: last?.data,
    };
  };

  return async (request: RandomRequest): Promise<string> => {
    const received = await exchange(target.origin, resolve(request));
    const isStream = received.headers["content-type"]?.startsWith("text/event-stream") ?? false;
    const answer = isStream ? unstream(received) : received;
    expectShape(answer);
    expect(answer.status, answer.text).toBeLessThan(500);
    return normalize(request, answer) + (isStream ? " streamed" : "");
  };
};

it(`${count} random requests of seed ${seed}`, { timeout: 60_000 + count * 40 }, async () => {
  const random = makeRandom(seed);
  const [memory, embedded] = running.map(({ target }) => makeSubject(target));
  const seen: Record<string, number> = {};
  for (let n = 0; n < count; n++) {
    const request = randomRequest(random);
    const [expected, actual] = await Promise.allSettled([memory!(request), embedded!(request)]);
    const again = `PARLEY_RANDOM_SEED=${seed} PARLEY_RANDOM_REQUESTS=${n + 1}: ${JSON.stringify({
      ...request,
      body: request.body?.toString().slice(0, 2000),
    })}`;
    if (expected.status === "rejected")
      throw new Error(`memory, ${again}`, { cause: expected.reason });
    if (actual.status === "rejected")
      throw new Error(`embedded, ${again}`, { cause: actual.reason });
    expect(actual.value, again).toBe(expected.value);
    const status = actual.value.slice(0, '{"status":200'.length);
    seen[status] = (seen[status] ?? 0) + 1;
  }
  // A generator that had lost its way would be refused all the time.
  if (count >= 1000) {
    for (const status of [200, 201, 422])
      expect(seen[`{"status":${status}`]).toBeGreaterThan(count / 20);
    for (const status of [400, 401, 403, 404])
      expect(seen[`{"status":${status}`]).toBeGreaterThan(0);
  }
});
