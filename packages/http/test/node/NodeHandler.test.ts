import { afterEach, expect, it, vi } from "vitest";
import type { WebHandlerOptions } from "@parley/http";
import { toNodeHandler, type NodeRequest } from "@parley/http/node";
import { makeTestHandler, usage } from "@parley/http/test";
import { Effect, Redacted, Scope, Stream } from "effect";
import { once } from "node:events";
import { createServer, request, type RequestListener, type ServerResponse } from "node:http";
import * as http2 from "node:http2";
import { connect, type AddressInfo } from "node:net";

const becomes = (check: () => void) => vi.waitFor(check, 10_000);

const closers: Array<() => void> = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
  vi.restoreAllMocks();
});

const listen = async (listener: RequestListener): Promise<number> => {
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
};

/** Opens an HTTP/2 connection to a server with this listener. */
const connectHttp2 = async (listener: ReturnType<typeof toNodeHandler>) => {
  const server = http2.createServer(listener);
  await once(server.listen(0, "127.0.0.1"), "listening");
  const session = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  closers.push(() => {
    session.destroy();
    server.close();
  });
  return session;
};

/** Creates a handler that answers "fine", and a function that sends an ask with a given body to a port. */
const makeService = async (options?: WebHandlerOptions) => {
  const scope = Scope.makeUnsafe();
  const { handler, key, logged } = await makeTestHandler(
    () => Stream.make({ _tag: "Delta", text: "fine" } as const, { _tag: "Usage", usage } as const),
    options,
  ).pipe(Effect.provideService(Scope.Scope, scope), Effect.runPromise);
  const ask = async (port: number, body: string, headers: object = {}) => {
    const response = await fetch(`http://127.0.0.1:${port}/ask`, {
      method: "POST",
      headers: { "x-api-key": Redacted.value(key), "content-type": "application/json", ...headers },
      body,
    });
    return {
      status: response.status,
      id: response.headers.get("x-request-id"),
      body: (await response.json()) as any,
    };
  };
  return { ask, handler, logged };
};

const readBody = async (incoming: NodeRequest) => {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  return Buffer.concat(chunks);
};

it("a body that a parser has read is taken from `request.body`, whether it is a value, a string or bytes", async () => {
  const { ask, handler } = await makeService();
  const listener = toNodeHandler(handler);
  for (const parse of [JSON.parse, String, (bytes: Buffer) => bytes]) {
    const port = await listen(async (incoming: NodeRequest, response) => {
      const body: unknown = parse((await readBody(incoming)) as never);
      await listener(Object.assign(incoming, { body }), response);
    });
    const response = await ask(port, '{ "query": "é", "more": [1, 2] }');
    expect(response).toMatchObject({ status: 201, body: { data: { question: "é" } } });
    expect(await ask(port, "null")).toMatchObject({
      status: 422,
      body: { errors: [{ path: [] }] },
    });
  }
});

it("a parsed body that JSON cannot represent is read as far as possible, and a form is rejected for its content type", async () => {
  const { ask, handler } = await makeService();
  const listener = toNodeHandler(handler);
  const files: Record<string, unknown> = { query: "q" };
  const bodies = [
    // From @fastify/multipart with `attachFieldsToBody`, where each field refers to all fields.
    Object.assign(files, { fields: files }),
    // From a parser that preserves the precision of large integers.
    { query: "q", chat_id: 7n },
  ];
  const responses = await Promise.all(
    bodies.map(async (body, index) => {
      const port = await listen(async (incoming: NodeRequest, response) => {
        await readBody(incoming);
        await listener(Object.assign(incoming, { body }), response);
      });
      return ask(port, "?", index === 0 ? { "content-type": "multipart/form-data" } : {});
    }),
  );
  expect(responses).toMatchObject([
    { status: 400, body: { message: "CONTENT_TYPE_NOT_JSON" } },
    { status: 404, body: { message: "CHAT_DOES_NOT_EXISTS" } },
  ]);
});

it("a body arrives unchanged even if a middleware has set an encoding", async () => {
  const { ask, handler } = await makeService();
  const listener = toNodeHandler(handler);
  for (const encoding of ["utf8", "hex"] as const) {
    const port = await listen((incoming, response) =>
      listener(incoming.setEncoding(encoding), response),
    );
    expect(await ask(port, '{"query":"é"}')).toMatchObject({ body: { data: { question: "é" } } });
  }
});

it("a body that was read but not kept causes a 500, and the log says to mount Parley before the parser", async () => {
  const { ask, handler, logged } = await makeService();
  const listener = toNodeHandler(handler);
  const ports = [
    // A parser that leaves nothing in `request.body`.
    await listen(async (incoming, response) => {
      await readBody(incoming);
      await listener(incoming, response);
    }),
    // Middleware that reads only the first chunk.
    await listen(async (incoming, response) => {
      await once(incoming, "data");
      await listener(incoming.pause(), response);
    }),
    // A wrapper that reads the web request's body before the handler does.
    await listen(
      toNodeHandler(async (web) => {
        await web.json();
        return handler(web);
      }),
    ),
  ];
  for (const port of ports) {
    const answer = await ask(port, '{"query":"q"}');
    expect(answer).toMatchObject({ status: 500, body: { message: "INTERNAL_ERROR" } });
    const line = logged.splice(0).join();
    expect(line).toMatch(/Mount Parley before the parser/);
    expect(line).toMatch(/express\.json\(\)/);
    expect(line).toContain(answer.id);
  }
});

it("an error from the handler goes to `next`; without `next`, it is printed and the client receives INTERNAL_ERROR", async () => {
  const printed = vi.spyOn(console, "error").mockReturnValue(undefined);
  const error = new Error("no database");
  const listener = toNodeHandler(() => Promise.reject(error));
  const next = vi.fn((_: unknown) => {});
  const withNext = await listen((incoming, response) =>
    listener(incoming, response, (reason) => {
      next(reason);
      response.end("next");
    }),
  );
  expect(await (await fetch(`http://127.0.0.1:${withNext}`)).text()).toBe("next");
  expect(next.mock.calls).toEqual([[error]]);
  expect(printed).not.toHaveBeenCalled();
  const response = await fetch(`http://127.0.0.1:${await listen(listener)}`);
  expect([response.status, await response.json()]).toMatchObject([
    500,
    { message: "INTERNAL_ERROR" },
  ]);
  expect(response.headers.get("x-request-id")).toMatch(/./);
  expect(printed.mock.calls).toEqual([[error]]);
});

it("if a stream fails, the response is cut off and the error is printed; if a client disconnects, nothing is printed", async () => {
  const printed = vi.spyOn(console, "error").mockReturnValue(undefined);
  const error = new Error("broken");
  let controller: ReadableStreamDefaultController<string>;
  const signals: Array<AbortSignal> = [];
  const listener = toNodeHandler(async ({ signal }) => {
    signals.push(signal);
    const body = new ReadableStream<string>({
      start: (streamController) => void (controller = streamController),
    });
    controller.enqueue("a");
    return new Response(body.pipeThrough(new TextEncoderStream()));
  });
  const port = await listen(listener);
  const open = async () => {
    const [response] = await once(request({ port }).end(), "response");
    await once(response, "data");
    return response;
  };
  const abandoned = await open();
  abandoned.destroy();
  await becomes(() => expect(signals[0]!.aborted).toBe(true));
  const broken = await open();
  controller!.error(error);
  await expect(once(broken, "end")).rejects.toThrow("aborted");
  await becomes(() => expect(printed.mock.calls).toEqual([[error]]));
});

it("if a client cancels an HTTP/2 stream before or during the response, the signal is aborted and nothing is printed", async () => {
  const printed = vi.spyOn(console, "error").mockReturnValue(undefined);
  const signals: Array<AbortSignal> = [];
  const listener = toNodeHandler(async ({ signal, url }) => {
    signals.push(signal);
    if (url.endsWith("/before")) await once(signal, "abort");
    const body = new ReadableStream({ start: (controller) => controller.enqueue("a") });
    return new Response(body.pipeThrough(new TextEncoderStream()));
  });
  const session = await connectHttp2(listener);
  for (const path of ["/before", "/in"]) {
    const stream = session.request({ ":path": path });
    await (path === "/in" ? once(stream, "data") : becomes(() => expect(signals).toHaveLength(1)));
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await becomes(() => expect(signals.at(-1)!.aborted).toBe(true));
  }
  expect(printed).not.toHaveBeenCalled();
});

it("a request's signal is already aborted if the client disconnected before the handler was called", async () => {
  const aborted: Array<boolean> = [];
  const listener = toNodeHandler(async ({ signal }) => {
    aborted.push(signal.aborted);
    return new Response("late");
  });
  const port = await listen(async (incoming, response) => {
    await once(response, "close");
    await listener(incoming, response);
  });
  const socket = connect(port, "127.0.0.1");
  socket.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n", () => setTimeout(() => socket.destroy(), 20));
  await becomes(() => expect(aborted).toEqual([true]));

  let isSettled = false;
  const session = await connectHttp2(async (incoming, response) => {
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await once(incoming as never, "close");
    await listener(incoming, response);
    isSettled = true;
  });
  const stream = session.request({ ":path": "/" });
  await becomes(() => expect(isSettled).toBe(true));
  expect(aborted).toEqual([true, true]);
});

it("a response that a middleware has already sent is left unchanged", async () => {
  let cancelled = false;
  const body = new ReadableStream({ cancel: () => void (cancelled = true) });
  const listener = toNodeHandler(async () => new Response(body));
  const port = await listen((incoming, response: ServerResponse) => {
    response.writeHead(503).end("busy");
    void listener(incoming, response);
  });
  const response = await fetch(`http://127.0.0.1:${port}`);
  expect([response.status, await response.text()]).toEqual([503, "busy"]);
  await becomes(() => expect(cancelled).toBe(true));
});

it("TRACE, targets that are not paths, and HTTP/2 requests are answered, although `Request` cannot represent them", async () => {
  const { handler } = await makeService();
  const listener = toNodeHandler(handler);
  const port = await listen(listener);
  for (const [line, path] of [
    ["TRACE /a", "/a"],
    ["OPTIONS *", "/*"],
    ["GET http://example.org/a?b", "/http://example.org/a"],
  ] as const) {
    const socket = connect(port, "127.0.0.1");
    socket.write(`${line} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n`);
    let answer = "";
    for await (const text of socket) answer += text;
    expect(answer).toMatch(/^HTTP\/1\.1 404 /);
    expect(JSON.parse(/\{.*\}/.exec(answer)![0])).toMatchObject({
      method: line.split(" ")[0],
      path,
    });
  }
  const session = await connectHttp2(listener);
  const stream = session.request({ ":path": "/api/details" });
  let answer = "";
  for await (const text of stream) answer += text;
  expect(answer).toContain("API_KEY_NOT_PRESENT");
});

it("a client's address is the connection's or, if it is an address, the framework's", async () => {
  const { handler, logged } = await makeService({ logRequests: true });
  const listener = toNodeHandler(handler);
  const port = await listen((incoming, response) =>
    listener(
      Object.assign(incoming, { ip: incoming.headers["x-ip"] as string | undefined }),
      response,
    ),
  );
  // Express accepts any string from a trusted proxy.
  for (const ip of ["192.0.2.3", "unknown", "a".repeat(5000), "192.0.2.4, 192.0.2.5"])
    await fetch(`http://127.0.0.1:${port}`, { headers: { "x-ip": ip } });
  await fetch(`http://127.0.0.1:${port}`);
  const clients = logged.map((line) => JSON.parse(line).annotations.client);
  expect(clients).toEqual(["192.0.2.3", ...Array.from({ length: 4 }, () => "127.0.0.1")]);
});
