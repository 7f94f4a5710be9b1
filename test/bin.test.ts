import { assert, it } from "@effect/vitest";
import { readFile } from "node:fs/promises";

it("the command runs Node with the same options, however it is started", async () => {
  const [first] = (await readFile("apps/server/src/main.ts", "utf8")).split("\n", 1);
  const { scripts } = JSON.parse(await readFile("package.json", "utf8"));
  assert.strictEqual(`${first} apps/server/src/main.ts`, `#!/usr/bin/env -S ${scripts.parley}`);
});
