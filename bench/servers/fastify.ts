/**
 * The baseline: the interface as one would write it by hand with Fastify and `pg`, with request and response schemas,
 * prepared statements, and one round trip where one is enough; errors have Fastify's own shapes. With a model, it uses
 * the AI SDK's `streamText`.
 *
 * Environment: DATABASE_URL; PORT; MODEL_URL, the URL of an OpenAI-compatible endpoint, without which `answers.ts`
 * answers; and CARE=1, which batches writes as Parley does (see `inBatches` and `BatchedResponse`).
 */
import type { ModelMessage } from "ai";
import Fastify, { type FastifyReply } from "fastify";
import { hash } from "node:crypto";
import { ServerResponse } from "node:http";
import pg from "pg";
import { answer, streamAnswer } from "./answers.ts";

interface Chatbot {
  readonly id: number;
  readonly workspaceName: string;
  readonly name: string;
  readonly description: string;
  readonly helloMessage: string | null;
}

declare module "fastify" {
  interface FastifyRequest {
    chatbot: Chatbot;
  }
}

// Ids stay below 2^53, so they are parsed as numbers rather than the strings that `pg` returns for int8.
pg.types.setTypeParser(pg.types.builtins.INT8, Number);
const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"], max: 10 });

const hasCare = process.env["CARE"] === "1";
/** The AI SDK and its model. Loading it takes time and memory, so a server without a model does not load it. */
const loadModel = async (baseURL: string) => {
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const { streamText } = await import("ai");
  const provider = createOpenAICompatible({ name: "model", baseURL, includeUsage: true });
  return { streamText, model: provider.chatModel("m") };
};
const modelUrl = process.env["MODEL_URL"];
const ai = modelUrl === undefined ? null : await loadModel(modelUrl);

const maxBatch = 100;
const maxWriters = 2;

/**
 * With care, items that arrive while two statements are in flight share the next statement and its commit. Without it,
 * each item has its own statement.
 */
const inBatches = <A, B>(write: (items: ReadonlyArray<A>) => Promise<ReadonlyArray<B>>) => {
  if (!hasCare) return async (item: A): Promise<B> => (await write([item]))[0]!;
  let queue: Array<{ item: A; resolve: (result: B) => void; reject: (error: unknown) => void }> =
    [];
  let writers = 0;
  const drain = async (): Promise<void> => {
    while (queue.length > 0) {
      const batch = queue.splice(0, maxBatch);
      try {
        const results = await write(batch.map(({ item }) => item));
        for (const [n, { resolve }] of batch.entries()) resolve(results[n]!);
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    writers--;
  };
  return (item: A): Promise<B> =>
    new Promise((resolve, reject) => {
      queue.push({ item, resolve, reject });
      if (writers === maxWriters) return;
      writers++;
      // Items that arrive in the same iteration of the event loop share a statement.
      setImmediate(drain);
    });
};

let pendingEnds: Array<() => void> = [];
/** With care, responses that end in one iteration of the event loop are sent back to back at its end. */
class BatchedResponse extends ServerResponse {
  override end(...rest: ReadonlyArray<any>): this {
    const send = () => Reflect.apply(super.end, this, rest);
    if (pendingEnds.push(send) === 1) {
      setImmediate(() => {
        const batch = pendingEnds;
        pendingEnds = [];
        for (const end of batch) end();
      });
    }
    return this;
  }
}

const keyTtlMillis = 30_000;
const maxCachedKeys = 10_000;
const openedKeys = new Map<string, { readonly chatbot: Chatbot; readonly until: number }>();

/** The chatbot to which a key grants access. */
const chatbotOf = async (key: string): Promise<Chatbot | undefined> => {
  const keyHash = hash("sha256", key, "base64");
  const openKey = openedKeys.get(keyHash);
  if (openKey !== undefined && openKey.until > Date.now()) return openKey.chatbot;
  const { rows } = await pool.query<Chatbot>({
    name: "key",
    text: `SELECT b.id, b.workspace_name AS "workspaceName", b.name, b.description,
             b.hello_message AS "helloMessage"
           FROM api_keys k JOIN chatbots b ON b.id = k.chatbot_id WHERE k.hash = $1`,
    values: [Buffer.from(keyHash, "base64")],
  });
  const chatbot = rows[0];
  if (chatbot === undefined) {
    openedKeys.delete(keyHash);
    return undefined;
  }
  if (openedKeys.size >= maxCachedKeys) openedKeys.clear();
  openedKeys.set(keyHash, { chatbot, until: Date.now() + keyTtlMillis });
  return chatbot;
};

const object = <const P>(properties: P) => ({ type: "object", properties }) as const;
const [integer, text] = [{ type: "integer" }, { type: "string" }] as const;
const nullableText = { type: ["string", "null"] } as const;
const time = { type: "string", format: "date-time" } as const;

const chat = object({ id: integer, name: nullableText, userRef: nullableText, _createTime: time });
const entry = object({
  id: integer,
  chat_id: integer,
  question: text,
  answer: text,
  moderation: text,
  flagged: { type: "boolean" },
  _createTime: time,
});
const details = object({ chatBotName: text, chatBotDescription: text, workspaceName: text });

const envelope = <const S>(data: S) => object({ status: integer, data });
const listEnvelope = <const S>(items: S) =>
  object({ status: integer, data: { type: "array", items }, meta: object({ total: integer }) });

const chatBody = object({
  name: { ...nullableText, maxLength: 255 },
  userRef: { ...nullableText, maxLength: 60 },
});
const askBody = {
  ...object({ chat_id: integer, query: { ...text, minLength: 1, maxLength: 200 } }),
  required: ["query"],
} as const;
const pageQuery = object({
  limit: { ...integer, minimum: 1, maximum: 100, default: 25 },
  page: { ...integer, minimum: 1, default: 1 },
});

interface PageQuery {
  readonly limit: number;
  readonly page: number;
}

/** Creates chats with their hello entries. All belong to one chatbot, because this server has no other. */
const createChat = inBatches(
  async (
    chats: ReadonlyArray<{
      readonly chatbot: Chatbot;
      readonly name: string | null;
      readonly userRef: string | null;
    }>,
  ) => {
    const { helloMessage, id } = chats[0]!.chatbot;
    const { rows } = await pool.query({
      name: "create-chats",
      text: `WITH chat AS (
             INSERT INTO chats (chatbot_id, name, user_ref)
             SELECT $1, name, user_ref FROM unnest($2::text[], $3::text[]) AS c (name, user_ref)
             RETURNING id, name, user_ref, create_time
           ), hello AS (
             INSERT INTO entries (chat_id, question, answer)
             SELECT id, '', $4::text FROM chat WHERE $4::text IS NOT NULL
           )
           SELECT id, name, user_ref AS "userRef", create_time AS "_createTime" FROM chat ORDER BY id`,
      values: [
        id,
        chats.map(({ name }) => name),
        chats.map(({ userRef }) => userRef),
        helloMessage,
      ],
    });
    return rows;
  },
);

const insertEntry = inBatches(
  async (
    entries: ReadonlyArray<{
      readonly chatId: number;
      readonly question: string;
      readonly answer: string;
    }>,
  ) => {
    const { rows } = await pool.query({
      name: "insert-entries",
      text: `INSERT INTO entries (chat_id, question, answer)
           SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[])
           RETURNING id, chat_id, question, answer, moderation, flagged, create_time AS "_createTime"`,
      values: [
        entries.map(({ chatId }) => chatId),
        entries.map(({ question }) => question),
        entries.map(({ answer }) => answer),
      ],
    });
    return rows;
  },
);

/** The newest entries in a chat, the oldest of them first, or `null` if the chatbot has no such chat. */
const entriesOf = async ({ id }: Chatbot, chatId: number) => {
  const { rows } = await pool.query<{ question: string | null; answer: string }>({
    name: "newest-entries",
    text: `SELECT e.question, e.answer
           FROM chats c LEFT JOIN LATERAL (
             SELECT id, question, answer FROM entries WHERE chat_id = c.id ORDER BY id DESC LIMIT 20
           ) e ON true
           WHERE c.chatbot_id = $1 AND c.id = $2 ORDER BY e.id`,
    values: [id, chatId],
  });
  return rows.length === 0 ? null : rows.filter(({ question }) => question !== null);
};

const toMessages = (
  entries: ReadonlyArray<{ question: string | null; answer: string }>,
  question: string,
): Array<ModelMessage> => [
  ...entries.flatMap((entry): Array<ModelMessage> => [
    { role: "user", content: entry.question! },
    { role: "assistant", content: entry.answer },
  ]),
  { role: "user", content: question },
];

const chatDoesNotExist = (reply: FastifyReply) => {
  reply.code(404);
  return { status: 404, code: 404011, message: "CHAT_DOES_NOT_EXISTS" };
};

const app = Fastify({
  logger: false,
  keepAliveTimeout: 65_000,
  ...(hasCare && { http: { ServerResponse: BatchedResponse as typeof ServerResponse } }),
});

app.decorateRequest("chatbot", null as unknown as Chatbot);
app.addHook("onRequest", async (request, reply) => {
  const key = request.headers["x-api-key"];
  const chatbot = typeof key === "string" ? await chatbotOf(key) : undefined;
  if (chatbot === undefined) {
    return reply.code(401).send({ status: 401, code: 401002, message: "API_KEY_NOT_VALID" });
  }
  request.chatbot = chatbot;
});

app.get(
  "/api/details",
  { schema: { response: { 200: envelope(details) } } },
  async ({ chatbot }) => ({
    status: 200,
    data: {
      chatBotName: chatbot.name,
      chatBotDescription: chatbot.description,
      workspaceName: chatbot.workspaceName,
    },
  }),
);

app.post<{ Body: { readonly name?: string | null; readonly userRef?: string | null } }>(
  "/api/chats",
  { schema: { body: chatBody, response: { 201: envelope(chat) } } },
  async ({ body: { name = null, userRef = null }, chatbot }, reply) => {
    const data = await createChat({ chatbot, name, userRef });
    reply.code(201);
    return { status: 201, data };
  },
);

app.get<{ Querystring: PageQuery }>(
  "/api/chats",
  { schema: { querystring: pageQuery, response: { 200: listEnvelope(chat) } } },
  async ({ chatbot, query: { limit, page } }) => {
    const [items, count] = await Promise.all([
      pool.query({
        name: "chats",
        text: `SELECT id, name, user_ref AS "userRef", create_time AS "_createTime"
               FROM chats WHERE chatbot_id = $1 ORDER BY id DESC LIMIT $2 OFFSET $3`,
        values: [chatbot.id, limit, (page - 1) * limit],
      }),
      pool.query<{ total: number }>({
        name: "chats-total",
        text: `SELECT count(*) AS total FROM chats WHERE chatbot_id = $1`,
        values: [chatbot.id],
      }),
    ]);
    return { status: 200, data: items.rows, meta: count.rows[0] };
  },
);

app.get<{ Querystring: PageQuery; Params: { readonly chat_id: number } }>(
  "/api/chats/:chat_id/history",
  {
    schema: {
      params: object({ chat_id: integer }),
      querystring: pageQuery,
      response: { 200: listEnvelope(entry) },
    },
  },
  async ({ chatbot, params: { chat_id }, query: { limit, page } }, reply) => {
    const [items, count] = await Promise.all([
      pool.query({
        name: "entries",
        text: `SELECT id, chat_id, question, answer, moderation, flagged,
                 create_time AS "_createTime"
               FROM entries WHERE chat_id = $1 ORDER BY id DESC LIMIT $2 OFFSET $3`,
        values: [chat_id, limit, (page - 1) * limit],
      }),
      // If there is no row, the chatbot has no such chat, and the page is discarded.
      pool.query<{ total: number }>({
        name: "entries-total",
        text: `SELECT (SELECT count(*) FROM entries WHERE chat_id = chats.id) AS total
               FROM chats WHERE chatbot_id = $1 AND id = $2`,
        values: [chatbot.id, chat_id],
      }),
    ]);
    if (count.rows[0] === undefined) return chatDoesNotExist(reply);
    return { status: 200, data: items.rows, meta: count.rows[0] };
  },
);

app.post<{ Body: { readonly chat_id: number; readonly query: string } }>(
  "/ask/",
  { schema: { body: askBody, response: { 201: envelope(entry) } } },
  async ({ body: { chat_id: chatId, query: question }, chatbot, headers }, reply) => {
    const earlier = await entriesOf(chatbot, chatId);
    if (earlier === null) return chatDoesNotExist(reply);
    const isStream = headers.accept === "text/event-stream";
    if (ai !== null) {
      const result = ai.streamText({
        model: ai.model,
        messages: toMessages(earlier, question),
        ...(isStream && {
          onEnd: async ({ text }) => void (await insertEntry({ chatId, question, answer: text })),
        }),
      });
      if (isStream) {
        reply.hijack();
        return void result.pipeUIMessageStreamToResponse(reply.raw);
      }
      const data = await insertEntry({ chatId, question, answer: await result.text });
      reply.code(201);
      return { status: 201, data };
    }
    const store = async (answer: string) => ({
      status: 201,
      data: await insertEntry({ chatId, question, answer }),
    });
    if (isStream) {
      reply.hijack();
      return void (await streamAnswer(reply.raw, answer(question), store));
    }
    reply.code(201);
    let whole = "";
    for await (const text of answer(question)) whole += text;
    return store(whole);
  },
);
await app.listen({ host: "127.0.0.1", port: Number(process.env["PORT"]) });

process.once("SIGTERM", async () => {
  await app.close();
  await pool.end();
});
