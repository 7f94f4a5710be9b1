import { openParley } from "@parley/core/promise";
import { postgres } from "@parley/store-pg";
import express, { type ErrorRequestHandler } from "express";

const parley = await openParley({
  store: postgres(process.env["DATABASE_URL"]!),
  answerer: ({ question }) => `You asked: ${question}`, // or languageModel({ baseUrl, model })
});
const bot = await parley.chatbot({ workspace: "Acme", name: "Support", helloMessage: "Hello!" });
const users = new Map([["Bearer token-of-ann", "ann"]]); // your own sessions
const app = express().use(express.json(), ({ headers }, { locals }, next) => {
  locals["userRef"] = users.get(headers.authorization ?? "");
  next(locals["userRef"] ? undefined : { name: "Unauthorized", status: 401 });
});
app.get("/chats", async (_, res) => res.json(await bot.chats(res.locals).page()));
app.post("/chats", async (_, res) => res.json(await bot.createChat(res.locals)));
app.param("id", async (_, { locals }, next, id) => {
  const { total } = await bot.chats({ ...locals, id: +id }).page();
  next(total === 0 ? { name: "ChatNotFound", status: 404 } : undefined); // also for others' chats
});
app.get("/chats/:id", async ({ params: { id } }, res) => res.json(await bot.history(+id).page()));
app.post("/chats/:id", async ({ body, params: { id } }, res) => {
  const hangUp = new AbortController();
  res.on("close", () => hangUp.abort()).set("cache-control", "no-transform");
  for await (const event of bot.stream(+id, body?.question, { signal: hangUp.signal }))
    res.write(`${JSON.stringify(event)}\n`);
  res.end();
});
app.use(((error, _request, res, _next) => {
  const status = error.status ?? (error.name === "ArgumentInvalid" ? 422 : 500);
  if (res.headersSent) res.destroy();
  else res.status(status).type("json").send({ error: error.name });
}) satisfies ErrorRequestHandler);
const server = app.listen(Number(process.env["PORT"]), () => console.log(server.address()));
process.once("SIGTERM", () => server.close(() => parley.close()));
