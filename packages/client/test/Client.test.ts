import { assert, expectTypeOf, it } from "@effect/vitest";
import * as client from "@parley/client";
import type { Wire } from "@parley/http/contract";
import { usage } from "@parley/http/test";
import { Redacted, Stream } from "effect";
import { afterEach, vi } from "vitest";
import {
  afterEvents,
  answer,
  atByte,
  cut,
  openTestClient,
  openTestHandler,
  pieces,
  silent,
} from "./TestClient.ts";

afterEach(() => void vi.useRealTimers());

const collect = async <A>(items: AsyncIterable<A>): Promise<Array<A>> => {
  const all: Array<A> = [];
  for await (const item of items) all.push(item);
  return all;
};

/** The text that a reader shows at the end of the stream, the types of its events, and its entries. */
const readAnswer = async (events: AsyncIterable<client.AnswerEvent>) => {
  let text = "";
  const types: Array<string> = [];
  const entries: Array<client.Entry> = [];
  for await (const event of events) {
    types.push(event.type);
    if (event.type === "restart") text = "";
    if (event.type === "delta") text += event.text;
    if (event.type === "entry") entries.push(event.entry);
  }
  return { text, types, entries };
};

const rejection = <E>(promise: Promise<unknown>, type: new (...args: any) => E): Promise<E> =>
  promise.then(
    () => assert.fail("it resolved"),
    (error) => {
      assert.instanceOf(error, type);
      return error as E;
    },
  );

it("the client calls every endpoint, and returns values exactly as they are sent", async () => {
  const { client: parley } = await openTestClient();

  assert.deepStrictEqual(await parley.details(), {
    chatBotName: "Bot",
    chatBotDescription: "Description",
    workspaceName: "Workspace",
  });
  const chat = await parley.createChat({ name: "First", userRef: "user" });
  const entry = await parley.ask({ chat_id: chat.id, query: "q" });
  assert.deepStrictEqual(
    await collect(parley.history(chat.id, { orderBy: ["flagged", "id"], desc: [true, false] })),
    [{ ...entry, id: 1, question: "", answer: "Hello", _createTime: chat._createTime }, entry],
  );
  assert.deepStrictEqual(await collect(parley.chats({ search: "fir", userRef: "user" })), [chat]);

  expectTypeOf<client.ChatbotDetails>().toEqualTypeOf<typeof Wire.DetailsWire.Type>();
  expectTypeOf<client.Chat>().toEqualTypeOf<typeof Wire.ChatWire.Type>();
  expectTypeOf<client.Entry>().toEqualTypeOf<typeof Wire.EntryWire.Type>();
});

/** A client of a server that answers every request with `respond`, and the requests as this server reads them. */
const makeStubClient = (respond: (attempt: number) => Response) => {
  const requests: Array<{ readonly line: string; readonly key: string | null; body: unknown }> = [];
  const parley = client.makeClient({
    fetch: async (url, init) => {
      const request = new Request(url, init);
      const { pathname, search } = new URL(url);
      const text = await request.text();
      assert.strictEqual(request.headers.has("content-type"), text !== "");
      requests.push({
        line: `${request.method} ${pathname}${decodeURIComponent(search)}`,
        key: request.headers.get("idempotency-key"),
        body: text === "" ? undefined : JSON.parse(text),
      });
      return respond(requests.length);
    },
  });
  return { parley, requests };
};

it("the client renames, deletes, rates and posts, and asks for additional fields", async () => {
  const { parley, requests } = makeStubClient(() =>
    Response.json({ status: 200, data: [], meta: { total: 0 } }),
  );
  await parley.rename(7, null, { include: ["activity"] });
  await parley.delete(7);
  await parley.rate(7, 9, { rating: "bad", comment: null }, { include: ["metadata"] });
  await parley.rate(7, 9, { comment: "Wrong" });
  const metadata = { author: "Ann" };
  await parley.post(7, "Hello", { metadata, include: ["feedback"], idempotencyKey: "own" });
  await parley.ask({ query: "q" }, { include: ["metadata", "feedback"], idempotencyKey: "own" });
  await parley.chats({ include: ["activity"], orderBy: "_lastEntryTime", desc: true }).page();
  await parley.history(7, { after: 3, include: ["metadata", "feedback"] }).page();
  await parley.history(7, { include: [] }).page();
  const all = requests.map(({ body, key, line }) =>
    [line, key, JSON.stringify(body)].filter((item) => item != null).join(" "),
  );
  assert.deepStrictEqual(all, [
    'PATCH /api/chats/7?include=activity {"name":null}',
    "DELETE /api/chats/7",
    'PATCH /api/chats/7/history/9?include=metadata {"rating":"bad","comment":null}',
    'PATCH /api/chats/7/history/9 {"comment":"Wrong"}',
    'POST /api/chats/7/history?include=feedback own {"text":"Hello","metadata":{"author":"Ann"}}',
    'POST /ask?include=metadata,feedback own {"query":"q"}',
    "GET /api/chats?orderBy=_lastEntryTime&desc=true&page=1&include=activity",
    "GET /api/chats/7/history?after=3&page=1&include=metadata,feedback",
    "GET /api/chats/7/history?page=1",
  ]);
});

it("a change is retried like any other call, and a retried post keeps its key", async () => {
  const failure = { status: 500, code: 500003, message: "STORAGE_UNAVAILABLE" };
  const { parley, requests } = makeStubClient((attempt) =>
    attempt % 2 === 1
      ? Response.json(failure, { status: 500 })
      : Response.json({ status: 200, data: { id: attempt } }),
  );
  assert.strictEqual((await parley.rename(7, "name")).id, 2);
  assert.strictEqual((await parley.rate(7, 9, { rating: "good" })).id, 4);
  assert.strictEqual((await parley.post(7, "Hello")).id, 6);
  assert.strictEqual((await parley.delete(7)).id, 8);
  const [first, second] = requests.slice(4).map(({ key }) => key);
  assert.match(first!, /^[0-9a-f]{32}$/);
  assert.strictEqual(first, second);
});

it("the client needs no origin to call a handler in the same process", async () => {
  const { handler, key } = await openTestHandler(() =>
    Stream.make({ _tag: "Delta", text: "fine" } as const, { _tag: "Usage", usage } as const),
  );
  const parley = client.makeClient({ fetch: handler, apiKey: Redacted.value(key) });

  const { text, types } = await readAnswer(parley.stream({ query: "q" }));
  assert.deepStrictEqual([text, types], ["fine", ["delta", "entry"]]);
  assert.strictEqual((await parley.chats().page()).total, 1);
  const leave = new AbortController();
  const details = parley.details({ signal: leave.signal });
  leave.abort(new Error("left"));
  assert.strictEqual((await rejection(details, Error)).message, "left");
});

it("a `fetch` that spreads the headers keeps them", async () => {
  const { handler, key } = await openTestHandler(() => Stream.empty);
  const parley = client.makeClient({
    apiKey: Redacted.value(key),
    fetch: (url, init) => handler(url, { ...init, headers: { ...init.headers, via: "proxy" } }),
  });

  assert.strictEqual((await parley.createChat({ name: "a" })).name, "a");
});

it("the client reads a list row by row or page by page, with the total on each page", async () => {
  const { client: parley } = await openTestClient();

  for (const name of ["a", "b", "c", "d", "e"]) await parley.createChat({ name });
  const chats = parley.chats({ limit: 2, orderBy: "id" });
  assert.deepStrictEqual(
    (await collect(chats)).map(({ name }) => name),
    ["a", "b", "c", "d", "e"],
  );
  assert.deepStrictEqual(
    (await collect(chats.pages())).map(({ data, page, total }) => [page, total, data.length]),
    [
      [1, 5, 2],
      [2, 5, 2],
      [3, 5, 1],
    ],
  );
  const { data, total } = await parley.chats({ limit: 2, page: 3 }).page();
  assert.deepStrictEqual([data.map(({ name }) => name), total], [["a"], 5]);
  assert.deepStrictEqual(await collect(parley.chats({ search: "none" })), []);
});

it("a call rejects with the error from the server", async () => {
  const { client: parley, make } = await openTestClient();

  const missing = await rejection(parley.history(99).page(), client.ResponseError);
  const { code, message, requestId, status } = missing;
  assert.deepStrictEqual([status, code, message], [404, 404011, "CHAT_DOES_NOT_EXISTS"]);
  assert.match(requestId!, /^\S+$/);
  const query: any = { limit: 101, desc: "no" };
  const refused = await rejection(parley.chats(query).page(), client.ValidationError);
  assert.deepStrictEqual(
    refused.errors.map(({ path }) => path),
    [["limit"], ["desc"]],
  );
  assert.strictEqual(refused.message, refused.errors[0]!.message);
  const stranger = make({ apiKey: "nonsense" });
  const rejected = await rejection(
    readAnswer(stranger.stream({ query: "q" })),
    client.ResponseError,
  );
  assert.strictEqual(rejected.message, "API_KEY_NOT_VALID");
});

it("the client reports each attempt without its API key", async () => {
  const { attempts, client: parley, key } = await openTestClient();

  await parley.createChat({ name: "a" });
  await parley.details();
  await rejection(parley.history(99).page(), client.ResponseError);

  assert.deepStrictEqual(
    attempts.map(({ body, method, status, url }) => [method, url, body, status]),
    [
      ["POST", "http://parley.test/api/chats", '{"name":"a"}', 201],
      ["GET", "http://parley.test/api/details", undefined, 200],
      ["GET", "http://parley.test/api/chats/99/history?page=1", undefined, 404],
    ],
  );
  assert.notInclude(JSON.stringify(attempts), key);
  assert.isTrue(attempts.every(({ requestId }) => requestId !== undefined));
  assert.instanceOf(attempts[2]!.error, client.ResponseError);
});

it("with a fetch that does not stream, as in React Native, only the pieces come at once", async () => {
  const { make } = await openTestClient();

  // React Native lacks these, too.
  const { any } = AbortSignal;
  const { throwIfAborted } = AbortSignal.prototype;
  Reflect.deleteProperty(AbortSignal, "any");
  Reflect.deleteProperty(AbortSignal.prototype, "throwIfAborted");
  try {
    const parley = make({
      alter: async (send) => {
        const response = await send();
        return Object.defineProperty(response.clone(), "body", { value: undefined });
      },
    });
    const { id } = await parley.createChat();
    const entry = await parley.ask({ chat_id: id, query: "q" });
    assert.strictEqual(entry.answer, answer);
    const streamed = await readAnswer(parley.stream({ chat_id: id, query: "r" }));
    assert.strictEqual(streamed.text, answer);
    assert.strictEqual(streamed.entries.length, 1);
    assert.strictEqual((await collect(parley.history(id))).length, 3);
    const failure = await rejection(parley.history(99).page(), client.ResponseError);
    assert.strictEqual(failure.status, 404);
  } finally {
    Object.assign(AbortSignal, { any });
    Object.assign(AbortSignal.prototype, { throwIfAborted });
  }
});

it("no cache between the client and the server answers a request that reads", async () => {
  const modes: Array<string> = [];
  const { client: parley } = await openTestClient({
    alter: (send, _, { cache, method }) => {
      modes.push(`${method} ${cache}`);
      return send();
    },
  });

  await parley.createChat();
  await parley.chats().page();

  assert.deepStrictEqual(modes, ["POST default", "GET no-store"]);
});

it("an idempotency key has 32 hexadecimal digits, even if its random bytes are all zero", async () => {
  const random = vi.spyOn(crypto, "getRandomValues").mockImplementation((bytes) => bytes);
  try {
    const keys: Array<unknown> = [];
    const parley = client.makeClient({
      fetch: async (_url, { headers }: any) => (
        keys.push(headers["idempotency-key"]),
        Response.error()
      ),
      retries: 0,
    });
    await rejection(parley.ask({ query: "q" }), client.ConnectionError);
    assert.deepStrictEqual(keys, ["0".repeat(32)]);
  } finally {
    random.mockRestore();
  }
});

it("a streamed entry may contain the separators of lines and paragraphs", async () => {
  const { client: parley } = await openTestClient();

  const query = "one\u2028two\u2029three";
  const { entries } = await readAnswer(parley.stream({ query }));
  assert.deepStrictEqual(
    entries.map(({ question }) => question),
    [query],
  );
});

it("a stream whose body ends when it is aborted rejects with the signal's reason", async () => {
  const controller = new AbortController();
  const parley = client.makeClient({
    fetch: async (_url, { signal }: any) =>
      new Response(
        new ReadableStream({
          start: (body) => signal.addEventListener("abort", () => body.close()),
        }),
      ),
    retries: 0,
  });
  const answer = readAnswer(parley.stream({ query: "q" }, { signal: controller.signal }));
  setTimeout(() => controller.abort("enough"), 20);
  assert.strictEqual(await answer.catch((error) => error), "enough");
});

it("the client does not follow a redirect, which could pass its key to another server", async () => {
  // Cloudflare Workers support only the modes `follow` and `manual`. Browsers hide a redirect's status.
  const opaque = Object.defineProperty(Response.error(), "type", { value: "opaqueredirect" });
  for (const response of [opaque, Response.redirect("http://elsewhere/", 307)]) {
    const modes: Array<unknown> = [];
    const parley = client.makeClient({
      fetch: async (_url, init) => {
        modes.push(init?.redirect);
        return response;
      },
      retries: 0,
    });
    const { cause } = await rejection(parley.details(), client.ConnectionError);
    assert.deepStrictEqual(cause, new Error("The server redirected the request"));
    assert.deepStrictEqual(modes, ["manual"]);
  }
});

it("a streamed answer arrives complete and without repetition, wherever the connection is cut", async () => {
  const { attempts, client: whole, make } = await openTestClient();
  const events = pieces.length + 1;
  let bytes = 0;

  const { entries, text, types } = await readAnswer(
    make({
      alter: async (send) => cut(await send(), (seen) => ((bytes = seen.length), undefined)),
    }).stream({ query: "q" }),
  );
  assert.deepStrictEqual([text, entries.length], [answer, 1]);
  assert.strictEqual(types.length, events);

  const places = [
    ...Array.from({ length: events }, (_, count) => afterEvents(count + 1)),
    ...Array.from({ length: bytes }, (_, count) => atByte(count + 1)),
  ];
  const answers = await Promise.all(
    places.map((place) => {
      const broken = make({
        alter: async (send, attempt) => (attempt === 1 ? cut(await send(), place) : send()),
      });
      return readAnswer(broken.stream({ query: "q" }));
    }),
  );
  for (const { entries, text, types } of answers) {
    assert.deepStrictEqual([text, entries[0]!.answer, entries.length], [answer, answer, 1]);
    assert.notInclude(types, "restart");
  }
  // Answers that are cut after their entry need no other attempt.
  const reconnected = answers.filter(({ types }) => types.includes("reconnected"));
  assert.isAtLeast(reconnected.length, places.length - 2);
  assert.strictEqual((await whole.chats().page()).total, places.length + 1);

  assert.isTrue(attempts.some(({ headers }) => headers["last-event-id"]?.endsWith(".5")));
});

it("a streamed answer that arrives in one-byte chunks is read whole", async () => {
  const { client: parley } = await openTestClient({
    alter: async (send) => {
      const bytes = new Uint8Array(await (await send()).arrayBuffer());
      return new Response(
        new ReadableStream({
          start(controller) {
            for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
            controller.close();
          },
        }),
      );
    },
  });
  const { text, types } = await readAnswer(parley.stream({ query: "q" }));
  assert.strictEqual(text, answer);
  assert.notInclude(types, "reconnecting");
});

it("a streamed answer can end with an error", async () => {
  const { client: parley } = await openTestClient({
    alter: () =>
      new Response(
        'event: error\ndata: {"status":500,"code":500002,"message":"ANSWER_UNAVAILABLE"}\n\n',
        { headers: { "x-request-id": "request" } },
      ),
  });
  const { code, message, requestId, status } = await rejection(
    readAnswer(parley.stream({ query: "q" })),
    client.ResponseError,
  );
  assert.deepStrictEqual(
    [status, code, message, requestId],
    [500, 500002, "ANSWER_UNAVAILABLE", "request"],
  );
});

it("a streamed answer completes even if every connection is cut after one event", async () => {
  const { client: parley } = await openTestClient({
    retries: 1,
    alter: async (send) => cut(await send(), afterEvents(1)),
  });
  const { entries, text, types } = await readAnswer(parley.stream({ query: "q" }));
  assert.deepStrictEqual([text, entries[0]!.answer], [answer, answer]);
  assert.includeMembers(types, ["reconnecting", "reconnected"]);
});

it("a streamed answer restarts when the server has to answer again", async () => {
  const { client: parley } = await openTestClient({
    alter: async (send, attempt) => (attempt === 1 ? cut(await send(), afterEvents(2)) : send()),
  });

  const { entries, text, types } = await readAnswer(
    parley.stream({ query: "q" }, { onDisconnect: "cancel" }),
  );
  assert.deepStrictEqual([text, entries[0]!.answer], [answer, answer]);
  assert.strictEqual(types.filter((type) => type === "restart").length, 1);
  assert.strictEqual((await parley.chats().page()).total, 1);
});

it("a streamed answer fails when it has to restart more often than `retries` allows", async () => {
  const { attempts, client: parley } = await openTestClient({
    retries: 2,
    alter: async (send) => cut(await send(), afterEvents(2)),
  });
  const events = parley.stream({ query: "q" }, { onDisconnect: "cancel" });
  await rejection(readAnswer(events), client.ConnectionError);
  assert.strictEqual(attempts.length, 3);
});

it("the client hangs up as soon as its caller stops reading a stream, even while an event is pending", async () => {
  let request: Request | undefined;
  const { client: parley } = await openTestClient({
    alter: (send, attempt, sent) => silent(send, attempt, (request = sent)),
  });

  const events = parley.stream({ query: "q" })[Symbol.asyncIterator]();
  const nextEvent = rejection(events.next(), DOMException);
  await events.return!();
  assert.isTrue(request!.signal.aborted);
  await nextEvent;
});

it("a failed call is retried with its idempotency key, so that nothing is stored twice", async () => {
  const { attempts, make } = await openTestClient();
  const losesFirst = () =>
    make({
      alter: async (send, attempt) => {
        const response = await send();
        if (attempt === 1) throw new TypeError("lost");
        return response;
      },
    });

  const [chat] = await Promise.all([losesFirst().createChat(), losesFirst().details()]);
  const { chat_id } = await losesFirst().ask({ chat_id: chat.id, query: "q" });
  assert.strictEqual(chat_id, chat.id);
  assert.strictEqual((await losesFirst().chats().page()).total, 1);
  assert.strictEqual((await losesFirst().history(chat.id).page()).total, 2);

  assert.strictEqual(attempts.length, 10);
  assert.instanceOf(attempts[0]!.error, client.ConnectionError);
});

it("a failed call is retried only if it might then succeed", async () => {
  const { attempts, make } = await openTestClient();
  const general = (status: number, code: number, headers = {}) =>
    Response.json({ status, code, message: "FAILED" }, { status, headers });
  for (const [response, isRepeated] of [
    [general(400, 400004), false],
    [general(429, 1), false],
    [general(403, 403001), false],
    [general(403, 403002, { "retry-after": "61" }), false],
    [general(403, 403002, { "retry-after": "1" }), true],
    [general(500, 500002), false],
    [general(500, 500004, { "retry-after": "61" }), false],
    [general(500, 500003), true],
    [general(500, 500001), true],
    [new Response("<h1>Bad gateway</h1>", { status: 502 }), true],
  ] as const) {
    attempts.length = 0;
    const parley = make({
      alter: (send, attempt) => (attempt === 1 ? response : send()),
    });

    if (isRepeated) await parley.details();
    else await rejection(parley.details(), client.ResponseError);
    assert.strictEqual(attempts.length, isRepeated ? 2 : 1);
  }
});

it.each([
  ["a number of seconds", "7"],
  ["a date", "Wed, 25 Nov 2026 09:00:07 GMT"],
])(
  "the client waits for as long as the server asks before it retries a call (%s)",
  async (_, retryAfter) => {
    vi.useFakeTimers({ now: Date.parse("2026-11-25T09:00:00Z") });
    let attempts = 0;
    const parley = client.makeClient({
      fetch: async () => {
        attempts++;
        const init = { status: 500, headers: { "retry-after": retryAfter } };
        return Response.json({ status: 500, code: 500004 }, init);
      },
      retries: 1,
    });
    const calls = [parley.details(), readAnswer(parley.stream({ query: "q" }))];
    const rejections = calls.map((call) => rejection(call, client.ResponseError));
    await vi.advanceTimersByTimeAsync(7_000);
    assert.strictEqual(attempts, 2);
    await vi.advanceTimersByTimeAsync(500);
    assert.strictEqual(attempts, 4);
    await Promise.all(rejections);
  },
);

it("a call times out when the server sends nothing, even in the middle of a response", async () => {
  const { make } = await openTestClient();
  const opens = (_send: unknown, _attempt: unknown, { signal }: Request) =>
    new Response(
      new ReadableStream({
        start: (body) => signal.addEventListener("abort", () => body.error(signal.reason)),
      }),
    );
  for (const alter of [silent, opens]) {
    const parley = make({ timeoutMillis: 20, askTimeoutMillis: 20, retries: 0, alter });
    for (const call of [
      () => parley.details(),
      () => parley.ask({ query: "q" }),
      () => readAnswer(parley.stream({ query: "q" })),
    ]) {
      const error = await rejection(call(), client.ConnectionError);
      assert.include(String(error.cause), "silent for 20 ms");
    }
  }
});

it("a call is retried after a successful response from anything but a Parley server", async () => {
  const { attempts, make } = await openTestClient();
  const bodies = ["<!doctype html>", "", "null", "[]", '{"ok":true}'];
  for (const [at, body] of bodies.entries()) {
    const other = () => Promise.resolve(new Response(body));
    const parley = make({ alter: (send, attempt) => (attempt === 1 ? other() : send()) });
    await parley.chats().page();
    assert.strictEqual(attempts.length, 2 * (at + 1));
    const call = make({ alter: other, retries: 0 }).ask({ query: "q" });
    await rejection(call, client.ConnectionError);
    attempts.pop();
  }
});

it("a call rejects with the reason from its signal as soon as the signal is aborted", async () => {
  vi.useFakeTimers();
  let attempts = 0;
  const parley = client.makeClient({
    fetch: () => (attempts++, Promise.reject(new TypeError("unreachable"))),
  });
  const reason = new Error("enough");
  const aborted = { signal: AbortSignal.abort(reason) };
  assert.strictEqual(await rejection(parley.details(aborted), Error), reason);
  const stop = new AbortController();
  const call = rejection(parley.details({ signal: stop.signal }), Error);
  await vi.advanceTimersByTimeAsync(20);
  // No more time passes, so the wait for the next attempt does not end by itself.
  stop.abort(reason);
  assert.strictEqual(await call, reason);
  assert.strictEqual(attempts, 1);
});
