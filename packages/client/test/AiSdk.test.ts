import { assert, it } from "@effect/vitest";
import { makeChatTransport, toMessages, type ParleyMessage } from "@parley/client/ai-sdk";
import { makeClient, type Client, type Entry } from "@parley/client";
import { AbstractChat, type ChatState, type ChatStatus } from "ai";
import { Deferred, Effect, Redacted, Stream } from "effect";
import { usage } from "@parley/http/test";
import { afterEvents, answer, cut, openTestClient, openTestHandler, silent } from "./TestClient.ts";

/** The chat behind `useChat`, without React. */
class TestChat extends AbstractChat<ParleyMessage> {
  /** The text of each message, whenever it was added or replaced. */
  readonly shown: Array<string> = [];

  constructor(
    client: Client,
    messages: Array<ParleyMessage> = [],
    chatId?: number,
    onDisconnect?: "cancel" | "finish",
  ) {
    const shown: Array<string> = [];
    const state: ChatState<ParleyMessage> = {
      status: "ready" as ChatStatus,
      error: undefined,
      messages,
      pushMessage: (message) => {
        state.messages = [...state.messages, message];
        shown.push(textOf(message));
      },
      popMessage: () => (state.messages = state.messages.slice(0, -1)),
      replaceMessage: (at, message) => {
        state.messages = state.messages.with(at, message);
        shown.push(textOf(message));
      },
      snapshot: (value) => structuredClone(value),
    };
    super({ state, transport: makeChatTransport({ client, chatId, onDisconnect }) });
    this.shown = shown;
  }
}

const textOf = ({ parts }: ParleyMessage): string =>
  parts.map((part) => (part.type === "text" ? part.text : "")).join("");

/** The questions in the earlier entries that came with the message. */
const entriesOf = ({ parts }: ParleyMessage): Array<string> =>
  parts.flatMap((part) => (part.type === "data-entry" ? [part.data.question] : []));

/** Asks "slow", and stops the answer once it has begun. */
const stopSlow = async (chat: TestChat) => {
  const slowMessage = chat.sendMessage({ text: "slow" });
  while (!chat.shown.includes("re: slow")) await new Promise(setImmediate);
  await chat.stop();
  await slowMessage;
};

const stopLater = async (chat: TestChat) => {
  chat.shown.length = 0;
  while (!chat.shown.includes("re: slow")) await new Promise(setImmediate);
  await chat.stop();
};

const failFirst = (send: () => Promise<Response>, attempt: number) =>
  attempt > 1
    ? send()
    : Response.json({ status: 500, code: 500002, message: "ANSWER_UNAVAILABLE" }, { status: 500 });

it("the transport streams all answers into one chat, whose id the messages carry", async () => {
  const { client } = await openTestClient();

  const chat = new TestChat(client);
  await chat.sendMessage({ text: "one" });
  await chat.sendMessage({ text: "two" });
  assert.deepStrictEqual(chat.messages.map(textOf), ["one", answer, "two", answer]);
  assert.include(chat.shown, answer.slice(0, 5));
  const { data, total } = await client.history(1, { orderBy: "id" }).page();
  assert.deepStrictEqual([total, (await client.chats().page()).total], [2, 1]);
  const { answer: _answer, question: _question, ...metadata } = data[1]!;
  assert.deepStrictEqual(chat.lastMessage!.metadata, metadata);
});

it("the transport continues a chat from its history, hello message included", async () => {
  const { client } = await openTestClient();

  const { id } = await client.createChat();
  await client.ask({ chat_id: id, query: "one" });
  const { data } = await client.history(id, { orderBy: "id" }).page();
  const chat = new TestChat(client, toMessages(data));
  await chat.sendMessage({ text: "two" });
  assert.deepStrictEqual(
    chat.messages.map(({ role }) => role),
    ["assistant", "user", "assistant", "user", "assistant"],
  );
  assert.strictEqual(textOf(chat.messages[0]!), "Hello");
  assert.strictEqual((await client.history(id).page()).total, 3);
});

it("the transport asks in the chat that it was given, whichever chat the messages name", async () => {
  const { client } = await openTestClient();

  const [own, other] = [await client.createChat(), await client.createChat()];
  const { data } = await client.history(other.id).page();
  await new TestChat(client, toMessages(data), own.id).sendMessage({ text: "one" });
  assert.strictEqual((await client.history(own.id).page()).total, 2);
  assert.strictEqual((await client.history(other.id).page()).total, 1);
});

it("regenerating a message retries a failed ask, but never pays for an answer twice", async () => {
  const { client } = await openTestClient({ alter: failFirst });

  const chat = new TestChat(client);
  await chat.sendMessage({ text: "one" });
  assert.deepStrictEqual([chat.status, chat.error?.message], ["error", "ANSWER_UNAVAILABLE"]);
  await chat.regenerate();
  await chat.regenerate();
  assert.deepStrictEqual([chat.status, textOf(chat.lastMessage!)], ["ready", answer]);
  await chat.sendMessage({ text: "edited", messageId: chat.messages[0]!.id });
  const entries = await Promise.all(
    [1, 2].map(async (id) =>
      (await client.history(id).page()).data.map(({ question }) => question),
    ),
  );
  assert.deepStrictEqual(entries, [["one"], ["edited"]]);
});

it("the transport discards the text of an answer that restarts", async () => {
  const { client } = await openTestClient({
    alter: async (send, attempt, request) => {
      // With this header, the disconnection cancels the answer.
      request.headers.set("on-disconnect", "cancel");
      return attempt === 1 ? cut(await send(), afterEvents(2)) : send();
    },
  });

  const chat = new TestChat(client);
  await chat.sendMessage({ text: "one" });
  assert.strictEqual(textOf(chat.lastMessage!), answer);
  const isShorter = (text: string, at: number) => text.length < (chat.shown[at - 1] ?? "").length;
  assert.isTrue(chat.shown.some(isShorter));
});

it("the transport hangs up when its signal is aborted or its stream is cancelled", async () => {
  const signals: Array<AbortSignal> = [];
  const { client } = await openTestClient({
    alter: (send, attempt, request) => {
      if (request.method === "POST") signals.push(request.signal);
      return silent(send, attempt, request);
    },
  });
  const stop = new AbortController();

  const streams = await Promise.all(
    [stop.signal, undefined].map((abortSignal) =>
      makeChatTransport({ client }).sendMessages({
        trigger: "submit-message",
        chatId: "chat",
        messageId: undefined,
        messages: [{ id: "1", role: "user", parts: [{ type: "text", text: "one" }] }],
        abortSignal,
      }),
    ),
  );
  const readers = streams.map((stream) => stream.getReader());
  const reading = readers.map(async (reader) => {
    while (!(await reader.read()).done);
  });
  const aborted = () => signals.map((signal) => signal.aborted);
  await new Promise((resolve) => setTimeout(resolve, 20));
  stop.abort();
  await reading[0];
  assert.deepStrictEqual(aborted(), [true, false]);
  await readers[1]!.cancel();
  assert.deepStrictEqual(aborted(), [true, true]);
});

/** A client whose model sends its text at once, but ends the answer to "slow" only when `release` is called. */
const openSlowClient = async () => {
  const released = Deferred.makeUnsafe<void>();
  let cancelled = 0;
  const { handler, key } = await openTestHandler((question) =>
    Stream.make({ _tag: "Delta", text: `re: ${question}` } as const).pipe(
      Stream.concat(
        Stream.fromEffect(
          Effect.as(question === "slow" ? Deferred.await(released) : Effect.void, {
            _tag: "Usage",
            usage,
          } as const),
        ).pipe(
          Stream.onExit(({ _tag }) => Effect.sync(() => (cancelled += Number(_tag === "Failure")))),
        ),
      ),
    ),
  );
  return {
    client: makeClient({ fetch: handler, apiKey: Redacted.value(key) }),
    cancelled: () => cancelled,
    release: () => Effect.runSync(Deferred.succeed(released, undefined)),
  };
};

it("with `cancel`, stopping ends the model's request, and the next message is answered at once", async () => {
  const { cancelled, client } = await openSlowClient();

  const { id } = await client.createChat();
  const chat = new TestChat(client, [], id, "cancel");
  await stopSlow(chat);
  assert.deepStrictEqual([chat.status, chat.error], ["ready", undefined]);
  await chat.sendMessage({ text: "next" });
  assert.strictEqual(textOf(chat.lastMessage!), "re: next");
  assert.strictEqual(cancelled(), 1);
  const { data } = await client.history(id).page();
  assert.deepStrictEqual(
    data.map(({ question }) => question),
    ["next", ""],
  );
});

it("stopping stops the ask, and the question can be asked again", async () => {
  const { cancelled, client, release } = await openSlowClient();

  const { id } = await client.createChat();
  const chat = new TestChat(client, [], id);
  for (let stops = 1; stops <= 2; stops++) {
    await (stops === 1 ? stopSlow(chat) : Promise.all([chat.regenerate(), stopLater(chat)]));
    while (cancelled() < stops) await new Promise(setImmediate);
  }
  assert.strictEqual((await client.history(id).page()).total, 1);
  release();
  await chat.regenerate();
  assert.deepStrictEqual(chat.messages.map(textOf), ["slow", "re: slow"]);
  assert.strictEqual((await client.history(id).page()).total, 2);
});

it("a chat opened in the middle of a turn shows that turn's entry once, before its own answer", async () => {
  const { client, release } = await openSlowClient();

  const { id } = await client.createChat();
  const open = async () => {
    const { data } = await client.history(id, { orderBy: "id" }).page();
    return new TestChat(client, toMessages(data), id);
  };
  const first = await open();
  const slowMessage = first.sendMessage({ text: "slow" });
  while (!first.shown.includes("re: slow")) await new Promise(setImmediate);
  const second = await open();
  assert.lengthOf(second.messages, 1);
  const nextMessage = second.sendMessage({ text: "next" });
  release();
  await Promise.all([slowMessage, nextMessage]);
  const answersOf = ({ lastMessage }: TestChat) =>
    lastMessage!.parts.flatMap((part) =>
      part.type === "data-entry" ? [part.data.answer] : part.type === "text" ? [part.text] : [],
    );
  assert.deepStrictEqual(answersOf(second), ["re: slow", "re: next"]);
  // Now only the first chat is missing an entry, the one for "next".
  await second.sendMessage({ text: "more" });
  assert.deepStrictEqual(answersOf(second), ["re: more"]);
  await first.sendMessage({ text: "and more" });
  assert.deepStrictEqual(answersOf(first), ["re: next", "re: more", "re: and more"]);
  const { data } = await client.history(id, { orderBy: "id" }).page();
  const ids = toMessages(data).map((message) => message.id);
  assert.strictEqual(new Set(ids).size, ids.length);
});

it("an entry from another tab is shown once, even if its question is the same or this tab was stopped", async () => {
  const { client } = await openSlowClient();

  const { id } = await client.createChat();
  const { data } = await client.history(id, { orderBy: "id" }).page();
  const chat = new TestChat(client, toMessages(data), id, "cancel");
  await client.ask({ chat_id: id, query: "same" });
  await client.ask({ chat_id: id, query: "other" });
  await stopSlow(chat);
  assert.deepStrictEqual(entriesOf(chat.lastMessage!), ["same", "other"]);
  await client.ask({ chat_id: id, query: "same" });
  await chat.sendMessage({ text: "same" });
  assert.deepStrictEqual(entriesOf(chat.lastMessage!), ["same"]);
  await chat.regenerate();
  assert.deepStrictEqual(entriesOf(chat.lastMessage!), ["same"]);
  assert.strictEqual((await client.history(id).page()).total, 5);
});

it("an answer that the server completes after a stop is shown once, together with the next answer", async () => {
  const { client, release } = await openSlowClient();

  const { id } = await client.createChat();
  const chat = new TestChat(client, [], id, "finish");
  await chat.sendMessage({ text: "first" });
  await stopSlow(chat);
  const nextMessage = chat.sendMessage({ text: "next" });
  release();
  await nextMessage;
  assert.deepStrictEqual(entriesOf(chat.lastMessage!), ["slow"]);
  await chat.sendMessage({ text: "last" });
  assert.deepStrictEqual(entriesOf(chat.lastMessage!), []);
});

it("after a failed ask, an entry from another tab with the same question is shown", async () => {
  const { client, make } = await openTestClient();
  const failing = make({ alter: failFirst });

  const { id } = await client.createChat();
  const { data } = await client.history(id).page();
  const chat = new TestChat(failing, toMessages(data), id);
  await chat.sendMessage({ text: "same" });
  assert.strictEqual(chat.error?.message, "ANSWER_UNAVAILABLE");
  await client.ask({ chat_id: id, query: "same" });
  await chat.sendMessage({ text: "next" });
  assert.deepStrictEqual(entriesOf(chat.lastMessage!), ["same"]);
});

const metadata = {
  sources: [{ title: "Prices", url: "https://shop.example/prices" }, { title: "A leaflet" }],
  found: true,
  entry: "taken",
};
const partsFromMetadata = [
  {
    type: "source-url",
    sourceId: "2-0",
    title: "Prices",
    url: "https://shop.example/prices",
  },
  { type: "source-document", sourceId: "2-1", title: "A leaflet", mediaType: "text/plain" },
  { type: "data-found", data: true },
];
const shared = { chat_id: 1, moderation: "none", flagged: false, _createTime: "" };
const answered: Entry = { ...shared, id: 2, question: "q", answer: "a", metadata };
const posted: Entry = {
  ...shared,
  id: 3,
  question: "",
  answer: "I am here.",
  metadata: { author: "Ann" },
};

it("the metadata of a stored entry makes sources and data parts, and a post has no user message", () => {
  const messages = toMessages<{ author: string; found: boolean }>([answered, posted]);
  assert.deepStrictEqual(
    messages.map(({ id, parts, role }): ReadonlyArray<unknown> => [role, id, parts]),
    [
      ["user", "2-question", [{ type: "text", text: "q" }]],
      ["assistant", "2", [{ type: "text", text: "a" }, ...partsFromMetadata]],
      [
        "assistant",
        "3",
        [
          { type: "text", text: "I am here." },
          { type: "data-author", data: "Ann" },
        ],
      ],
    ],
  );
  assert.deepStrictEqual(messages[1]!.metadata, { ...shared, id: 2 });
});

it("an answer's metadata arrives as parts after its text, and a post as an earlier entry", async () => {
  const lines: Array<string> = [];
  const client = makeClient({
    fetch: async (url, { method }) => {
      lines.push(`${method} ${new URL(url).search}`);
      if (method === "GET") {
        return Response.json({ status: 200, data: [posted], meta: { total: 1 } });
      }
      const entry = { ...answered, id: 4 };
      const events = `event: delta\nid: t.1\ndata: {"text":"a"}\n\nevent: entry\nid: t.1\ndata: ${JSON.stringify({ status: 201, data: entry })}\n\n`;
      return new Response(events, { headers: { "content-type": "text/event-stream" } });
    },
  });
  const chat = new TestChat(client, toMessages([{ ...answered, metadata: null }]), 1);
  await chat.sendMessage({ text: "q" });
  assert.deepStrictEqual(chat.error, undefined);
  const parts = chat.lastMessage!.parts.filter(({ type }) => type !== "step-start");
  assert.deepStrictEqual(JSON.parse(JSON.stringify(parts)), [
    { type: "data-entry", id: "3", data: posted },
    { type: "text", text: "a", state: "done" },
    ...partsFromMetadata.map((part) =>
      "sourceId" in part ? { ...part, sourceId: part.sourceId!.replace("2", "4") } : part,
    ),
  ]);
  assert.deepStrictEqual(lines, [
    "POST ?include=metadata",
    "GET ?after=2&limit=100&page=1&include=metadata",
  ]);
});
