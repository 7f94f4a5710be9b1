#!/usr/bin/env -S node --memory-saver-mode --max-semi-space-size=4
import { isServer } from "./CommandOf.ts";

// Before all that takes time to load: a SIGHUP asks for the documents, and must not end a server that starts. A
// command whose terminal is closed is told to end.
process.on("SIGHUP", isServer ? () => {} : () => process.kill(process.pid, "SIGTERM"));
await import("./Run.ts");
