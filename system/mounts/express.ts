import { toNodeHandler } from "@parley/http/node";
import compression from "compression";
import express from "express";
import { announce, handler } from "./service.ts";

const app = express();
app.use(compression({ threshold: 0 }));
app.use(express.json());
app.use("/support", toNodeHandler(handler));

const server = app.listen(0, "127.0.0.1", () => announce(server.address()));
