#!/usr/bin/env -S node --memory-saver-mode --max-semi-space-size=4
/**
 * The `parley` command in a checkout. The published package's command, `PublishedCommand.ts`, imports this file.
 */
import { enableCompileCache } from "node:module";
import { fileURLToPath } from "node:url";

// Compiling hundreds of modules takes a quarter of the start-up time. If the cache is not writable, Node compiles them
// every time. The cache is not in a shared temporary folder, where another user could plant code.
enableCompileCache(fileURLToPath(new URL("../node_modules/.cache/node", import.meta.url)));
const { main } = await import("./cli/Cli.ts");
main();
