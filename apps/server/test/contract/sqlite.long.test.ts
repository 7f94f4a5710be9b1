import { stat } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { launchForTests } from "./launch.ts";
import { contract } from "./suite.ts";

const testServer = launchForTests("sqlite");

it("the server keeps its chats in a SQLite file that only its user can read", async () => {
  const mode = async (path: string) =>
    ((await stat(join(testServer().directory, path))).mode & 0o777).toString(8);
  const paths = ["data", "data/parley.db", "data/parley.db-wal", "data/parley.db-shm"];
  expect(await Promise.all(paths.map(mode))).toEqual(["700", "600", "600", "600"]);
});

contract(() => testServer().target);
