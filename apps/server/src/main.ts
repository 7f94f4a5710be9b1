#!/usr/bin/env node
import { isServer } from "./CommandOf.ts";

// Before all that takes time to load: a SIGHUP asks for the documents, and must not end a server that starts.
if (isServer) process.on("SIGHUP", () => {});
await import("./Run.ts");
