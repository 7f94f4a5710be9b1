/** A support desk: Express with its own users, its own model and documents, and colleagues who take over. */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Administration } from "@parley/core";
import { openParley, type AnswererFunction } from "@parley/core/promise";
import { makeWebHandler } from "@parley/http";
import { toNodeHandler } from "@parley/http/node";
import { memory } from "@parley/store-memory";
import { jsonSchema, stepCountIs, streamText, tool, type ModelMessage } from "ai";
import { Effect, Redacted } from "effect";
import express, { type Request, type RequestHandler } from "express";
import { createHmac, randomUUID } from "node:crypto";
import { fileURLToPath } from "node:url";

interface User {
  readonly id: string;
  readonly name: string;
  readonly isStaff?: boolean;
}

// Stand-ins for your own tables.
const users: ReadonlyArray<User> = [
  { id: "ann", name: "Ann" },
  { id: "bob", name: "Bob" },
  { id: "carl", name: "Carl", isStaff: true },
];
const orders = [
  { user: "ann", number: 17, state: "was sent on Monday" },
  { user: "bob", number: 18, state: "is being packed" },
];
const documents = [
  { title: "Returns", url: "/help/returns", text: "Send things back within 30 days of delivery." },
  { title: "Delivery", url: "/help/delivery", text: "A delivery takes three days." },
];

const words = (text: string) => Array.from(text.toLowerCase().matchAll(/\p{L}{4,}/gu), String);
const search = (question: string) =>
  documents.filter(({ text, title }) =>
    words(question).some((word) => words(`${title} ${text}`).includes(word)),
  );

const model = createOpenAICompatible({ name: "own", baseURL: process.env["MODEL_URL"]! })("small");

const answerer: AnswererFunction = async function* ({ context, earlier, question, signal }) {
  const user = context as User;
  const matches = search(question);
  const messages: Array<ModelMessage> = [{ role: "user", content: question }];
  for await (const entry of earlier) {
    messages.unshift({ role: "assistant", content: entry.answer });
    if (entry.question !== "") messages.unshift({ role: "user", content: entry.question });
    if (messages.length > 20) break;
  }
  const failures: Array<unknown> = [];
  const { textStream } = streamText({
    model,
    messages,
    instructions: `You help ${user.name}. Documents: ${JSON.stringify(matches)}`,
    abortSignal: signal,
    stopWhen: stepCountIs(3),
    onError: ({ error }) => void failures.push(error),
    tools: {
      order: tool({
        description: "Returns the state of one of the user's orders",
        inputSchema: jsonSchema<{ number: number }>({
          type: "object",
          properties: { number: { type: "integer" } },
          required: ["number"],
        }),
        // The session says whose order it may be, and not the question or the model.
        execute: ({ number }) =>
          orders.find((order) => order.number === number && order.user === user.id)?.state ??
          "There is no such order.",
      }),
    },
  });
  yield* textStream;
  if (failures.length > 0) throw failures[0];
  const sources = matches.map(({ title, url }) => ({ title, url }));
  if (sources.length > 0) yield { _tag: "Metadata", metadata: { sources } };
};

const parley = await openParley({ store: memory(), answerer, questionLength: 5_000 });
const bot = await parley.chatbot({ workspace: "Acme", name: "Support desk" });

// The interfaces know a user by a token, which the server adds to the user's requests. The browser never sees it.
const key = await Administration.use((administration) =>
  administration.createKey(
    bot.chatbot.id,
    { scopes: ["read", "write", "ask", "delete"], visitors: true },
    "support-desk",
  ),
).pipe(Effect.provide(parley.layer), Effect.runPromise);
const base64 = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
const tokenFor = ({ id }: User) => {
  const exp = Math.floor(Date.now() / 1000) + 60;
  const text = `${base64({ alg: "HS256", kid: key.id })}.${base64({ sub: id, exp })}`;
  const hmac = createHmac("sha256", Redacted.value(key.signingSecret!));
  return `${text}.${hmac.update(text).digest("base64url")}`;
};

const sessions = new Map<string, User>();
const userOf = ({ headers }: Request) =>
  sessions.get(/session=([\w-]+)/.exec(headers.cookie ?? "")?.[1] ?? "");
const allow =
  (mayPass: (user: User) => boolean): RequestHandler =>
  (request, response, next) => {
    const user = userOf(request);
    if (user !== undefined && mayPass(user)) next();
    else response.sendStatus(user === undefined ? 401 : 403);
  };

const app = express();
app.post("/login/:id", ({ params }, response) => {
  const user = users.find(({ id }) => id === params.id); // and where your users enter a password
  if (user === undefined) return response.sendStatus(404);
  const session = randomUUID();
  sessions.set(session, user);
  return response.cookie("session", session, { httpOnly: true, sameSite: "strict" }).json(user);
});

const handler = makeWebHandler(parley.layer);
const serve = toNodeHandler(handler.handler, { context: userOf });
app.use(
  ["/api", "/ask"],
  allow(() => true),
  (request, response, next) => {
    request.headers["x-api-key"] = tokenFor(userOf(request)!);
    return serve(request, response, next);
  },
);

const isStaff = allow((user) => user.isStaff === true);
app.get("/desk", isStaff, async (_, response) => {
  const query = { orderBy: "lastEntryTime", desc: true, include: ["activity"] } as const;
  response.json((await bot.chats(query).page()).data);
});
app.post("/desk/:id", isStaff, express.json(), async (request, response) => {
  const metadata = { author: userOf(request)!.name };
  response.json(await bot.post(Number(request.params["id"]), request.body?.text, { metadata }));
});
app.use(express.static(fileURLToPath(new URL("dist", import.meta.url))));

const server = app.listen(Number(process.env["PORT"]), () => console.log(server.address()));
process.once("SIGTERM", () => server.close(() => handler.dispose().then(() => parley.close())));
