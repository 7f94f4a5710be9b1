import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { compress } from "hono/compress";
import { announce, handler } from "./service.ts";

const app = new Hono();
app.use(compress());
app.all("/support/*", (context) => handler(context.req.raw));

serve({ fetch: app.fetch, hostname: "127.0.0.1", port: 0 }, announce);
