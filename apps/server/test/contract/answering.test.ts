/** What docs/interface.md promises about asking, with a language model that this suite controls. */
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import {
  askApi,
  askQuestion,
  createChat,
  deltaText,
  expectGeneral,
  expectInvalid,
  listChats,
  listEntries,
  parseEvents,
  unique,
} from "./client.ts";
import { startTestModel, type ModelRequest, type TestModel } from "../TestModel.ts";
import { launch, type TestServer } from "./launch.ts";

let model: TestModel;
let testServer: TestServer;
/** Callbacks that receive the questions to hold, by a word in the question. */
const holds = new Map<string, (modelRequest: ModelRequest) => void>();
const questions: Array<string> = [];

const answer = ({ end, say, text }: ModelRequest): void => {
  say("Ans");
  say(`wer to ${text}`);
  end();
};

const receive = (modelRequest: ModelRequest): void => {
  const { response, text } = modelRequest;
  questions.push(text);
  for (const [word, take] of holds)
    if (text.includes(word)) {
      holds.delete(word);
      return take(modelRequest);
    }
  if (text.includes("status 400")) response.writeHead(400).end('{"error":{"message":"secret"}}');
  else answer(modelRequest);
};

/** Holds the next question that contains this word until the caller answers it. */
const hold = (word: string): Promise<ModelRequest> =>
  new Promise((resolve) => holds.set(word, resolve));

/** Whether the server under test cancels this request within three seconds. */
const isCancelled = ({ response }: ModelRequest): Promise<boolean> =>
  vi.waitUntil(() => response.destroyed, { timeout: 3000 }).catch(() => false);

/** Repeats the check until it succeeds, for at most ten seconds. */
const eventually = (check: () => Promise<void>): Promise<void> =>
  vi.waitFor(check, { timeout: 10_000, interval: 10 });

beforeAll(async () => {
  model = await startTestModel(receive);
  testServer = await launch("memory", model.settings);
});
afterAll(async () => {
  model?.close();
  await testServer?.stop();
});
const server = () => testServer.target;

/** Sends a streamed ask, whose events can be read as they arrive. */
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
    untilSaid: (expected: string) =>
      eventually(async () => expect(deltaText(parseEvents(text))).toBe(expected)),
  };
};

/** Sends an ask whose answer the model holds; resolves once the model has received it. */
const askAndHold = async (fields: object = {}, headers: Record<string, string> = {}) => {
  const query = unique();
  const arrival = hold(query);
  const stream = open({ query, ...fields }, headers);
  return { query, stream, modelRequest: await arrival };
};

/** Checks that the chat's next entry is the first after its hello entry. */
const expectNothingStored = async (chat_id: number) => {
  const next = await askQuestion(server(), { chat_id, query: "next" });
  const { data, total } = await listEntries(server(), chat_id);
  expect([data[0], total]).toEqual([next, 2]);
};

it("a disconnect cancels nothing: the answer is stored, and a retry receives it", async () => {
  const { id: chat_id } = await createChat(server());
  const headers = { "idempotency-key": unique() };
  const accept = { accept: "application/json" };
  const { modelRequest, query, stream } = await askAndHold({ chat_id }, { ...headers, ...accept });
  stream.hangUp();
  // By the time another request is complete, the server has seen the disconnect.
  await listChats(server(), "limit=1");
  answer(modelRequest);
  await eventually(async () => {
    expect((await listEntries(server(), chat_id)).total).toBe(2);
  });
  const retry = await askApi(server(), { json: { chat_id, query }, headers });
  expect(retry.status, retry.text).toBe(201);
  expect(retry.headers["idempotent-replayed"]).toBe("true");
  expect(questions.filter((text) => text.includes(query))).toHaveLength(1);
});

it("with On-Disconnect: cancel, a disconnect ends the model's request, and nothing is stored", async () => {
  const { id: chat_id } = await createChat(server());
  const headers = { accept: "application/json", "on-disconnect": "Cancel" };
  const { modelRequest, stream } = await askAndHold({ chat_id }, headers);
  stream.hangUp();
  const isOver = await isCancelled(modelRequest);
  // Otherwise the ask would keep the chat's turn.
  if (!isOver) answer(modelRequest);
  expect(isOver).toBe(true);
  await expectNothingStored(chat_id);
});

it("a stop ends the model's request and every request with the key, and nothing is stored", async () => {
  const { id: chat_id } = await createChat(server());
  const query = unique();
  const call = { json: { chat_id, query }, headers: { "idempotency-key": unique() } };
  const arrival = hold(query);
  const responses = [askApi(server(), call), askApi(server(), call)];
  const modelRequest = await arrival;
  const stop = { method: "DELETE", headers: call.headers };
  for (const _ of [1, 2]) {
    const response = await askApi(server(), stop);
    expect(response.body).toEqual({ status: 200, data: { stopped: true } });
  }
  expect(await isCancelled(modelRequest)).toBe(true);
  for (const response of [...(await Promise.all(responses)), await askApi(server(), call)]) {
    expectGeneral(response, 500);
    expect(response.body.message).toBe("ANSWER_STOPPED");
  }
  const other = { ...call, json: { chat_id, query: "other" } };
  expectInvalid(await askApi(server(), other), "Idempotency-Key");
  await expectNothingStored(chat_id);
});

it("a streamed answer is sent piece by piece, before it is complete", async () => {
  const { modelRequest: model, query, stream } = await askAndHold();
  model.say("One 😀");
  await stream.untilSaid("One 😀");
  model.say(" two");
  await stream.untilSaid("One 😀 two");
  model.end();
  await stream.ended();
  const events = stream.events();
  const last = events.at(-1);
  expect(last?.event).toBe("entry");
  expect(last?.data.data).toMatchObject({ question: query, answer: "One 😀 two" });
  // The ids count code points, not UTF-16 code units.
  expect(events.map(({ id }) => id.split(".").at(-1))).toEqual(["5", "9", "9"]);
});

it("a streamed answer that is cut off ends with one error event, and nothing is stored", async () => {
  const { id: chat_id } = await createChat(server());
  const { modelRequest: model, stream } = await askAndHold({ chat_id });
  model.say("Half");
  await stream.untilSaid("Half");
  model.response.destroy();
  await stream.ended();
  const last = stream.events().at(-1);
  expect(stream.events().map(({ event }) => event)).toEqual(["delta", "error"]);
  expect(last?.data).toMatchObject({ status: 500, message: "ANSWER_UNAVAILABLE" });
  expect(Object.keys(last?.data).toSorted()).toEqual(["code", "message", "status"]);
  expect((await listEntries(server(), chat_id)).total).toBe(1);
});

it("a streamed answer that fails before its first delta results in a plain JSON response", async () => {
  const answer = await askApi(server(), {
    json: { query: "status 400" },
    headers: { accept: "text/event-stream" },
  });
  expectGeneral(answer, 500);
});

it("a streamed answer continues after a disconnect: a client that reconnects misses nothing and receives nothing twice", async () => {
  const headers = { "idempotency-key": unique() };
  const { modelRequest: model, query, stream: first } = await askAndHold({}, headers);
  model.say("One");
  await first.untilSaid("One");
  first.hangUp();
  model.say(" two");
  const seenId = first.events().at(-1)?.id ?? "";
  const second = open({ query }, { ...headers, "last-event-id": seenId });
  await second.untilSaid(" two");
  model.say(" three");
  await second.untilSaid(" two three");
  model.end();
  await second.ended();
  const last = second.events().at(-1);
  expect(last?.data.data.answer).toBe("One two three");
  // Once the answer is stored, the rest of it arrives in one delta.
  const third = open({ query }, { ...headers, "last-event-id": seenId });
  await third.ended();
  expect(third.events().map(({ event }) => event)).toEqual(["delta", "entry"]);
  expect(deltaText(third.events())).toBe(" two three");
  expect(third.events().at(-1)?.data).toEqual(last?.data);
  expect(questions.filter((text) => text.includes(query))).toHaveLength(1);
});
