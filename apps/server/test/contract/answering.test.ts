/** Promises of the decisions about asking, with a language model that this suite controls. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import {
  askApi,
  askQuestion,
  createChat,
  deltaText,
  expectGeneral,
  listChats,
  listEntries,
  parseEvents,
  unique,
} from "./client.ts";
import { chunk } from "../SlowModel.ts";
import { launch, type Running } from "./launch.ts";

interface Asked {
  readonly messages: ReadonlyArray<{ readonly role: string; readonly content: unknown }>;
  readonly text: string;
  readonly response: ServerResponse;
  /** Settles when the server under test goes away before its answer is complete. */
  readonly left: Promise<unknown>;
}

let model: Server;
let running: Running;
/** Questions that wait for `answer`, by a word in them. */
const waiting = new Map<string, (asked: Asked) => void>();
const seen: Array<Asked> = [];

const answer = ({ response, text }: Asked, content = `Answer to ${text}`): void => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(chunk({ role: "assistant", content: content.slice(0, 3) }));
  response.write(chunk({ content: content.slice(3) }));
  response.write(chunk({}, "stop"));
  response.end("data: [DONE]\n\n");
};

const behave = (asked: Asked): void => {
  const { response, text } = asked;
  if (text.includes("status 500")) response.writeHead(500).end("{}");
  else if (text.includes("status 400"))
    response.writeHead(400).end('{"error":{"message":"secret"}}');
  else if (text.includes("refused")) response.socket?.destroy();
  else if (text.includes("garbage"))
    response.writeHead(200, { "content-type": "text/event-stream" }).end("data: {]\n\n");
  else if (text.includes("empty")) answer(asked, "");
  else if (text.includes("cut off")) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(chunk({ role: "assistant", content: "Half an ans" }), () =>
      response.socket?.destroy(),
    );
  } else if (text.includes("unfinished")) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(chunk({ role: "assistant", content: "Half an ans" }));
  } else answer(asked);
};

const receive = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
  const chunks: Array<Buffer> = [];
  for await (const part of request) chunks.push(part as Buffer);
  const { messages } = JSON.parse(Buffer.concat(chunks).toString());
  const { content } = messages.at(-1);
  const text =
    typeof content === "string" ? content : content.map((part: any) => part.text).join("");
  const left = new Promise((resolve) =>
    response.once("close", () => {
      if (!response.writableFinished) resolve(undefined);
    }),
  );
  const asked: Asked = { messages, text, response, left };
  seen.push(asked);
  for (const [word, take] of waiting)
    if (text.includes(word)) {
      waiting.delete(word);
      return take(asked);
    }
  behave(asked);
};

/** The next question with this word in it is held until the caller answers it. */
const hold = (word: string): Promise<Asked> => new Promise((resolve) => waiting.set(word, resolve));

/** Whether the server under test cancels this question. */
const isCancelled = ({ left }: Asked): Promise<boolean> =>
  Promise.race([
    left.then(() => true),
    new Promise<boolean>((resolve) => setTimeout(resolve, 3000, false)),
  ]);

/** Waits until it holds, and fails when it does not within ten seconds. */
const eventually = (check: () => Promise<void>): Promise<void> =>
  vi.waitFor(check, { timeout: 10_000, interval: 10 });

beforeAll(async () => {
  model = createServer((request, response) => void receive(request, response));
  await new Promise<void>((resolve) => model.listen(0, "127.0.0.1", resolve));
  const { port } = model.address() as AddressInfo;
  running = await launch("memory", {
    PARLEY_LLM_BASE_URL: `http://127.0.0.1:${port}/v1`,
    PARLEY_LLM_MODEL: "m",
    PARLEY_LLM_API_KEY: "k",
  });
});
afterAll(async () => {
  model?.closeAllConnections();
  model?.close();
  await running?.stop();
});
const server = () => running.target;

describe("an answer that fails is 500 ANSWER_UNAVAILABLE, and leaves nothing behind", () => {
  for (const what of [
    "status 500",
    "status 400",
    "refused",
    "garbage",
    "cut off",
    "unfinished",
    "empty",
  ])
    it.concurrent(`the model's answer: ${what}`, async () => {
      const chat = await createChat(server());
      const query = `${what} ${unique()}`;
      const answer = await askApi(server(), { json: { chat_id: chat.id, query } });
      expectGeneral(answer, 500);
      expect(answer.body.message).toBe("ANSWER_UNAVAILABLE");
      expect((await listEntries(server(), chat.id)).total).toBe(1);
    });

  it("makes no chat", async () => {
    const before = (await listChats(server(), "limit=1")).total;
    const answer = await askApi(server(), { json: { query: "cut off" } });
    expectGeneral(answer, 500);
    expect((await listChats(server(), "limit=1")).total).toBe(before);
  });

  it("does not keep the Idempotency-Key: a retry runs again", async () => {
    // A model that failed so often just before is left alone for a moment.
    await eventually(async () => void (await askQuestion(server(), { query: "there again" })));
    const word = unique();
    const call = { json: { query: word }, headers: { "idempotency-key": unique() } };
    const held = hold(word);
    const first = askApi(server(), call);
    (await held).response.writeHead(400).end("{}");
    expectGeneral(await first, 500);
    const second = await askApi(server(), call);
    expect(second.status, second.text).toBe(201);
    expect(second.headers["idempotent-replayed"]).toBeUndefined();
    expect((await listEntries(server(), second.body.data.chat_id)).total).toBe(1);
  });

  it("lets the chat go on", async () => {
    const chat = await createChat(server());
    await askApi(server(), { json: { chat_id: chat.id, query: "cut off" } });
    const entry = await askQuestion(server(), { chat_id: chat.id, query: "next" });
    expect(entry.answer).toBe("Answer to next");
  });
});

describe("the prompt", () => {
  const said = ({ messages }: Asked) =>
    messages
      .filter(({ role }) => role !== "system")
      .map(({ content, role }) => {
        const text =
          typeof content === "string"
            ? content
            : (content as ReadonlyArray<{ text: string }>).map((part) => part.text).join("");
        return [role, text];
      });

  it("is made of the entries before, the hello entry an answer without a question", async () => {
    const chat = await createChat(server());
    const words = [unique(), unique(), unique()];
    for (const query of words) await askQuestion(server(), { chat_id: chat.id, query });
    const last = seen.find(({ text }) => text.includes(words[2]!))!;
    expect(said(last)).toEqual([
      ["assistant", server().chatBot.helloMessage],
      ["user", words[0]],
      ["assistant", `Answer to ${words[0]}`],
      ["user", words[1]],
      ["assistant", `Answer to ${words[1]}`],
      ["user", words[2]],
    ]);
  });
});

describe("asks that overlap", () => {
  it("in one chat are answered in turn, each knowing the one before; another chat's does not wait", async () => {
    const chat = await createChat(server());
    const [one, two] = [unique(), unique()];
    const heldOne = hold(one);
    const first = askQuestion(server(), { chat_id: chat.id, query: one });
    const askedOne = await heldOne;
    const second = askQuestion(server(), { chat_id: chat.id, query: two });
    // A whole ask of another chat goes by while the first is under way.
    await askQuestion(server(), { query: unique() });
    expect(seen.some(({ text }) => text.includes(two))).toBe(false);
    answer(askedOne);
    const [entryOne, entryTwo] = await Promise.all([first, second]);
    expect(entryTwo.id).toBeGreaterThan(entryOne.id);
    const askedTwo = seen.find(({ text }) => text.includes(two))!;
    expect(JSON.stringify(askedTwo.messages)).toContain(`Answer to ${one}`);
  });
});

/** A streamed ask whose text can be watched as it grows. */
const open = (fields: object, headers: Record<string, string> = {}) => {
  const controller = new AbortController();
  let text = "";
  const read = async () => {
    const response = await fetch(`${server().askUrl}/`, {
      method: "POST",
      body: JSON.stringify(fields),
      signal: controller.signal,
      headers: {
        accept: "text/event-stream",
        "x-api-key": server().key,
        "content-type": "application/json",
        ...headers,
      },
    });
    for await (const part of response.body!.pipeThrough(new TextDecoderStream())) text += part;
  };
  const ended = read().catch(() => undefined);
  return {
    events: () => parseEvents(text),
    hangUp: () => controller.abort(),
    ended: () => ended,
    said: (wanted: string) =>
      eventually(async () => expect(deltaText(parseEvents(text))).toBe(wanted)),
  };
};

describe("a client that hangs up", () => {
  /** Sends an ask and returns a function that hangs up. */
  const begin = (fields: object, headers: Record<string, string> = {}) =>
    open(fields, { accept: "application/json", ...headers }).hangUp;

  it("has not cancelled: the answer is stored, and a retry receives it", async () => {
    const chat = await createChat(server());
    const word = unique();
    const fields = { chat_id: chat.id, query: word };
    const headers = { "idempotency-key": unique() };
    const held = hold(word);
    const hangUp = begin(fields, headers);
    const asked = await held;
    hangUp();
    // Another request's round trip, so that the server has seen the hang-up.
    await listChats(server(), "limit=1");
    answer(asked);
    await eventually(async () => {
      expect((await listEntries(server(), chat.id)).total).toBe(2);
    });
    const retry = await askApi(server(), { json: fields, headers });
    expect(retry.status, retry.text).toBe(201);
    expect(retry.headers["idempotent-replayed"]).toBe("true");
    expect(seen.filter(({ text }) => text.includes(word))).toHaveLength(1);
  });

  it("has cancelled with On-Disconnect: cancel: the model's request ends, nothing is stored", async () => {
    const chat = await createChat(server());
    const word = unique();
    const held = hold(word);
    const hangUp = begin({ chat_id: chat.id, query: word }, { "on-disconnect": "Cancel" });
    const asked = await held;
    hangUp();
    const cancelled = await isCancelled(asked);
    // Else the chat would stay held.
    if (!cancelled) answer(asked);
    expect(cancelled).toBe(true);
    const next = await askQuestion(server(), { chat_id: chat.id, query: "next" });
    expect((await listEntries(server(), chat.id)).data[0]).toEqual(next);
    expect((await listEntries(server(), chat.id)).total).toBe(2);
  });

  it("does not cancel an answer that another request with the same key waits for", async () => {
    const word = unique();
    const headers = { "idempotency-key": unique(), "on-disconnect": "cancel" };
    const held = hold(word);
    const hangUp = begin({ query: word }, headers);
    const asked = await held;
    const other = askApi(server(), { json: { query: word }, headers });
    await askQuestion(server(), { query: unique() });
    hangUp();
    await listChats(server(), "limit=1");
    answer(asked);
    const told = await other;
    expect(told.status, told.text).toBe(201);
    expect(seen.filter(({ text }) => text.includes(word))).toHaveLength(1);
  });
});

describe("a streamed answer", () => {
  /** Answers in parts. */
  const speak = ({ response }: Asked) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    return {
      say: (content: string) => response.write(chunk({ role: "assistant", content })),
      end: () => {
        response.write(chunk({}, "stop"));
        response.end("data: [DONE]\n\n");
      },
      breakOff: () => response.socket?.destroy(),
    };
  };

  it("is sent as it is made, before it is complete", async () => {
    const word = unique();
    const held = hold(word);
    const stream = open({ query: word });
    const model = speak(await held);
    model.say("One 😀");
    await stream.said("One 😀");
    model.say(" two");
    await stream.said("One 😀 two");
    model.end();
    await stream.ended();
    const events = stream.events();
    const last = events.at(-1);
    expect(last?.event).toBe("entry");
    expect(last?.data.data).toMatchObject({ question: word, answer: "One 😀 two" });
    // Code points, not UTF-16 units.
    expect(events.map(({ id }) => id.split(".").at(-1))).toEqual(["5", "9", "9"]);
  });

  it("that breaks off ends in one error event, and nothing is stored", async () => {
    const chat = await createChat(server());
    const word = unique();
    const held = hold(word);
    const stream = open({ chat_id: chat.id, query: word });
    const model = speak(await held);
    model.say("Half");
    await stream.said("Half");
    model.breakOff();
    await stream.ended();
    const last = stream.events().at(-1);
    expect(stream.events().map(({ event }) => event)).toEqual(["delta", "error"]);
    expect(last?.data).toMatchObject({ status: 500, message: "ANSWER_UNAVAILABLE" });
    expect(Object.keys(last?.data).toSorted()).toEqual(["code", "message", "status"]);
    expect((await listEntries(server(), chat.id)).total).toBe(1);
  });

  it("that fails before its first delta is plain JSON", async () => {
    const answer = await askApi(server(), {
      json: { query: "status 400" },
      headers: { accept: "text/event-stream" },
    });
    expectGeneral(answer, 500);
  });

  it("goes on after a hang-up: a client that reconnects misses and repeats nothing", async () => {
    const word = unique();
    const headers = { "idempotency-key": unique() };
    const held = hold(word);
    const first = open({ query: word }, headers);
    const model = speak(await held);
    model.say("One");
    await first.said("One");
    first.hangUp();
    model.say(" two");
    const seenId = first.events().at(-1)?.id ?? "";
    const second = open({ query: word }, { ...headers, "last-event-id": seenId });
    await second.said(" two");
    model.say(" three");
    await second.said(" two three");
    model.end();
    await second.ended();
    const last = second.events().at(-1);
    expect(last?.data.data.answer).toBe("One two three");
    // Later on, the stored answer is resumed in one delta.
    const third = open({ query: word }, { ...headers, "last-event-id": seenId });
    await third.ended();
    expect(third.events().map(({ event }) => event)).toEqual(["delta", "entry"]);
    expect(deltaText(third.events())).toBe(" two three");
    expect(third.events().at(-1)?.data).toEqual(last?.data);
    expect(seen.filter(({ text }) => text.includes(word))).toHaveLength(1);
  });

  it("is shared by requests with the same key, plain or streamed", async () => {
    const word = unique();
    const call = { json: { query: word }, headers: { "idempotency-key": unique() } };
    const held = hold(word);
    const first = open(call.json, call.headers);
    const model = speak(await held);
    model.say("One");
    await first.said("One");
    const second = open(call.json, call.headers);
    await second.said("One");
    const plain = askApi(server(), call);
    model.say(" two");
    model.end();
    await Promise.all([first.ended(), second.ended()]);
    const { body } = await plain;
    expect(first.events().at(-1)?.data).toEqual(body);
    expect(second.events().at(-1)?.data).toEqual(body);
    expect(deltaText(second.events())).toBe("One two");
  });
});
