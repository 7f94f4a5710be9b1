/** Runs the kit in Node, Bun or Deno, on the memory store and on the SQLite file that the argument names. */
import { layerSqlite } from "@parley/store-sqlite";
import process from "node:process";
import { report } from "./kit.ts";

console.log(await report(layerSqlite({ file: process.argv[2]! })));
