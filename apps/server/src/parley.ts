#!/usr/bin/env -S node --max-semi-space-size=16
/**
 * The command of the package, which keeps the compiled code of its bundle in its own folder: in a shared temporary
 * folder another user could plant code. In a read-only folder there is none, and a start takes 0.05 s longer.
 */
import { enableCompileCache } from "node:module";
import { join } from "node:path";

enableCompileCache(join(import.meta.dirname, ".cache"));
await import("./main.ts");
