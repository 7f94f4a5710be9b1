/**
 * The yardstick: the general interface as one would write it by hand with Fastify and `pg`, with
 * schemas on both sides, prepared statements and one round trip where one is enough.
 *
 * Environment: DATABASE_URL, PORT.
 */
import Fastify, { type FastifyError } from "fastify";
import { hash } from "node:crypto";
import pg from "pg";

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

// Ids stay below 2^53, so they are numbers and not the strings that `pg` makes of int8.
pg.types.setTypeParser(pg.types.builtins.INT8, Number);
const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"], max: 10 });

const keyTtlMillis = 30_000;
const maxCachedKeys = 10_000;
const openedKeys = new Map<string, { readonly chatbot: Chatbot; readonly until: number }>();

/** The chatbot that a key opens. */
const chatbotOf = async (key: string): Promise<Chatbot | undefined> => {
  const keyHash = hash("sha256", key, "base64");
  const opened = openedKeys.get(keyHash);
  if (opened !== undefined && opened.until > Date.now()) return opened.chatbot;
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

const chat = {
  type: "object",
  properties: {
    id: { type: "integer" },
    name: { type: ["string", "null"] },
    userRef: { type: ["string", "null"] },
    _createTime: { type: "string", format: "date-time" },
  },
} as const;

const entry = {
  type: "object",
  properties: {
    id: { type: "integer" },
    chat_id: { type: "integer" },
    question: { type: "string" },
    answer: { type: "string" },
    moderation: { type: "string" },
    flagged: { type: "boolean" },
    _createTime: { type: "string", format: "date-time" },
  },
} as const;

const details = {
  type: "object",
  properties: {
    chatBotName: { type: "string" },
    chatBotDescription: { type: "string" },
    workspaceName: { type: "string" },
  },
} as const;

const envelope = <const S>(data: S) =>
  ({ type: "object", properties: { status: { type: "integer" }, data } }) as const;

const listEnvelope = <const S>(item: S) =>
  ({
    type: "object",
    properties: {
      status: { type: "integer" },
      data: { type: "array", items: item },
      meta: { type: "object", properties: { total: { type: "integer" } } },
    },
  }) as const;

const pageQuery = {
  type: "object",
  properties: {
    limit: { type: "integer", minimum: 1, maximum: 100, default: 25 },
    page: { type: "integer", minimum: 1, default: 1 },
  },
} as const;

interface PageQuery {
  readonly limit: number;
  readonly page: number;
}

const app = Fastify({ logger: false, keepAliveTimeout: 65_000 });

app.setNotFoundHandler((request, reply) =>
  reply.code(404).send({
    status: 404,
    code: 400001,
    message: "INVALID_PATH",
    method: request.method,
    path: request.url.split("?", 1)[0],
  }),
);

app.setErrorHandler<FastifyError>((error, _request, reply) => {
  if (error.validation !== undefined) {
    return reply.code(422).send({
      status: 422,
      errors: error.validation.map(({ instancePath, message }) => ({
        code: 4220000,
        message,
        path: instancePath.split("/").slice(1),
      })),
    });
  }
  const status = error.statusCode === 400 ? 400 : 500;
  return reply.code(status).send({
    status,
    code: status * 1000,
    message: status === 400 ? error.message : "INTERNAL_ERROR",
  });
});

await app.register(
  async (api) => {
    api.decorateRequest("chatbot", null as unknown as Chatbot);

    api.addHook("onRequest", async (request, reply) => {
      const key = request.headers["x-api-key"];
      const chatbot = typeof key === "string" ? await chatbotOf(key) : undefined;
      if (chatbot === undefined) {
        return reply.code(401).send({ status: 401, code: 401002, message: "API_KEY_NOT_VALID" });
      }
      request.chatbot = chatbot;
    });

    api.get(
      "/details",
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

    api.post<{ Body: { readonly name?: string | null; readonly userRef?: string | null } }>(
      "/chats",
      {
        schema: {
          body: {
            type: "object",
            properties: {
              name: { type: ["string", "null"], maxLength: 255 },
              userRef: { type: ["string", "null"], maxLength: 60 },
            },
          },
          response: { 201: envelope(chat) },
        },
      },
      async ({ body, chatbot }, reply) => {
        const { rows } = await pool.query({
          name: "create-chat",
          text: `WITH chat AS (
                   INSERT INTO chats (chatbot_id, name, user_ref) VALUES ($1, $2, $3)
                   RETURNING id, name, user_ref, create_time
                 ), hello AS (
                   INSERT INTO entries (chat_id, question, answer)
                   SELECT id, '', $4::text FROM chat WHERE $4::text IS NOT NULL
                 )
                 SELECT id, name, user_ref AS "userRef", create_time AS "_createTime" FROM chat`,
          values: [chatbot.id, body.name ?? null, body.userRef ?? null, chatbot.helloMessage],
        });
        reply.code(201);
        return { status: 201, data: rows[0] };
      },
    );

    api.get<{ Querystring: PageQuery; Params: { readonly chat_id: number } }>(
      "/chats/:chat_id/history",
      {
        schema: {
          params: { type: "object", properties: { chat_id: { type: "integer" } } },
          querystring: pageQuery,
          response: { 200: listEnvelope(entry) },
        },
      },
      async ({ chatbot, params: { chat_id }, query: { limit, page } }, reply) => {
        const [items, counted] = await Promise.all([
          pool.query({
            name: "entries",
            text: `SELECT id, chat_id, question, answer, moderation, flagged,
                     create_time AS "_createTime"
                   FROM entries WHERE chat_id = $1 ORDER BY id DESC LIMIT $2 OFFSET $3`,
            values: [chat_id, limit, (page - 1) * limit],
          }),
          // No row: the chatbot has no such chat, and the page is thrown away.
          pool.query<{ total: number }>({
            name: "entries-total",
            text: `SELECT (SELECT count(*) FROM entries WHERE chat_id = chats.id) AS total
                   FROM chats WHERE chatbot_id = $1 AND id = $2`,
            values: [chatbot.id, chat_id],
          }),
        ]);
        if (counted.rows[0] === undefined) {
          reply.code(404);
          return { status: 404, code: 404011, message: "CHAT_DOES_NOT_EXISTS" };
        }
        return { status: 200, data: items.rows, meta: counted.rows[0] };
      },
    );
  },
  { prefix: "/api" },
);

await app.listen({ host: "127.0.0.1", port: Number(process.env["PORT"]) });

process.once("SIGTERM", async () => {
  await app.close();
  await pool.end();
});
