#!/usr/bin/env node
// Before all that takes time to load: a SIGHUP asks for the documents, and must not end a server that starts.
if (process.argv.includes("serve")) process.on("SIGHUP", () => {});
await import("./Run.ts");
