import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";

/** Creates a folder that is removed after the tests of the file. */
export const temporaryFolder = (): string => {
  const path = mkdtempSync(join(tmpdir(), "parley-test-"));
  afterAll(() => rmSync(path, { recursive: true, force: true }));
  return path;
};
