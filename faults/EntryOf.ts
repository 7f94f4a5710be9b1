import { expect } from "vitest";
import type { Answer } from "./Client.ts";
import { dataBytes, type Entry } from "./Ledger.ts";

/** The entry that an ask was answered with. */
export const entryOf = (got: Answer | null): Entry => {
  expect(got?.status, got?.text).toBe(201);
  return JSON.parse(dataBytes(got!.text)) as Entry;
};
