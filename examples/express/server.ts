import { openParley, type UserBot } from "@parley/core/promise";
import { postgres } from "@parley/store-pg";
import express, { type ErrorRequestHandler, type Response } from "express";

const parley = await openParley({
  store: postgres(process.env["DATABASE_URL"]!),
  answerer: ({ question }) => `You asked: ${question}`, // or languageModel({ baseUrl, model })
});
const bot = await parley.chatbot({ workspace: "Acme", name: "Support", helloMessage: "Hello!" });
const users = new Map([["Bearer token-of-ann", "ann"]]); // your own sessions
const app = express().use(express.json(), ({ headers }, { locals }, next) => {
  const userRef = users.get(headers.authorization ?? "");
  if (userRef !== undefined) locals["bot"] = bot.as(userRef); // others' chats do not exist for it
  next(userRef ? undefined : { name: "Unauthorized", status: 401 });
});
const botOf = ({ locals }: Response): UserBot => locals["bot"];
app.get("/chats", async (_, res) => res.json(await botOf(res).chats().page()));
app.post("/chats", async (_, res) => res.json(await botOf(res).createChat()));
const read = (res: Response, id: string) => botOf(res).history(+id).page();
app.get("/chats/:id", async ({ params: { id } }, res) => res.json(await read(res, id)));
app.post("/chats/:id", async ({ body, params: { id } }, res) => {
  const hangUp = new AbortController();
  res.on("close", () => hangUp.abort()).set("cache-control", "no-transform");
  for await (const event of botOf(res).stream(+id, body?.question, { signal: hangUp.signal }))
    res.write(`${JSON.stringify(event)}\n`);
  res.end();
});
app.use(((error, _request, res, _next) => {
  const status =
    error.status ?? { ArgumentInvalid: 422, ChatNotFound: 404 }[error.name as string] ?? 500;
  if (res.headersSent) res.destroy();
  else res.status(status).type("json").send({ error: error.name });
}) satisfies ErrorRequestHandler);
const server = app.listen(Number(process.env["PORT"]), () => console.log(server.address()));
process.once("SIGTERM", () => server.close(() => parley.close()));
