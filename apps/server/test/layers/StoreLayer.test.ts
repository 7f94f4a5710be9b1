import { expect, it } from "vitest";
import { makeFolder } from "../../src/layers/StoreLayer.ts";

it("a data directory in a folder that answers ENOENT for each new one is refused", () =>
  expect(() => makeFolder("/proc/parley/data")).toThrow("ENOENT"));
