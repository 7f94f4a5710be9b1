#!/usr/bin/env -S node --memory-saver-mode --max-semi-space-size=4
/**
 * The `parley` command of a checkout. The package's command, `parley.ts`, imports this file.
 */
import { enableCompileCache } from "node:module";
import { fileURLToPath } from "node:url";

// Compiling 600 modules takes a third of the start time. Where the process may not write, Node compiles them each time.
// The cache is not in a shared temporary folder, where another user could plant code.
enableCompileCache(fileURLToPath(new URL("../node_modules/.cache/node", import.meta.url)));
const { main } = await import("./cli/Cli.ts");
main();
