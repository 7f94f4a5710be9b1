import { toNodeHandler } from "@parley/http/node";
import compression from "compression";
import type expressTypes from "express";
// @ts-expect-error version 4 has the types of version 5 here
import express4 from "express4";
import { announce, handler } from "./service.ts";

const express: typeof expressTypes = express4;
const app = express();
app.use(compression({ threshold: 0 }));
app.use(express.json({ strict: false }), express.urlencoded({ extended: true }), express.text());
app.use("/support", toNodeHandler(handler));

const server = app.listen(0, "127.0.0.1", () => announce(server.address()));
