import { toNodeHandler } from "@parley/http/node";
import compression from "compression";
import express from "express";
import { announce, handler } from "./service.ts";

const support = express.Router();
support.use(["/chatbot", "/ask"], toNodeHandler(handler));

const app = express();
app.use(compression({ threshold: 0 }));
app.use("/support", support);
// The parser comes after Parley, which reads the body itself.
app.use(express.json());

const server = app.listen(0, "127.0.0.1", () => announce(server.address()));
