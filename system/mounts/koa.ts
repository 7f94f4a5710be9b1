import { bodyParser } from "@koa/bodyparser";
import { toNodeHandler } from "@parley/http/node";
import Koa from "koa";
import compress from "koa-compress";
import mount from "koa-mount";
import { announce, handler } from "./service.ts";

const app = new Koa();
app.use(compress({ threshold: 0 }));
app.use(bodyParser());
const listener = toNodeHandler(handler);
app.use(
  mount("/support", async ({ originalUrl, req, request, res }) => {
    await listener(Object.assign(req, { originalUrl, body: request.body }), res);
  }),
);

// Otherwise Koa would log the parser's errors.
app.silent = true;
const server = app.listen(0, "127.0.0.1", () => announce(server.address()));
