import { afterEach, expect, it, vi } from "vitest";
import { readValue, storageOf } from "../../src/page/storage.ts";

/** A storage that holds a text, and refuses or accepts others. */
const storageWith = (text: string | null, accepts: boolean) => {
  const texts = new Map(text === null ? [] : [["a", text]]);
  return {
    getItem: (key: string) => texts.get(key) ?? null,
    setItem: (key: string, text: string) => {
      if (!accepts) throw new DOMException("full", "QuotaExceededError");
      texts.set(key, text);
    },
    removeItem: (key: string) => void texts.delete(key),
    clear: () => texts.clear(),
  };
};

afterEach(() => {
  vi.unstubAllGlobals();
  Reflect.deleteProperty(globalThis, "sessionStorage");
});

it.each([
  ["missing", undefined, undefined, false],
  ["null", null, undefined, false],
  ["full", storageWith('"old"', false), "old", false],
  ["full of rubbish", storageWith("{rubbish", true), undefined, true],
  ["holding a value of another shape", storageWith("7", true), undefined, true],
  ["holding nothing", storageWith(null, true), undefined, true],
  ["holding a value", storageWith('"old"', true), "old", true],
])("a page keeps its values in a storage that is %s", (_, given, oldValue, isKept) => {
  vi.stubGlobal("sessionStorage", given);
  const storage = storageOf("sessionStorage");
  const isText = (value: unknown) => typeof value === "string";
  expect(readValue(storage, "a", isText)).toBe(oldValue);
  expect(storage.setItem("a", '"new"')).toBe(isKept);
  expect(readValue(storage, "a", isText)).toBe("new");
  // A text that was not kept must not be replaced by an older one after a reload.
  expect(readValue(storageOf("sessionStorage"), "a", isText)).toBe(isKept ? "new" : undefined);
  storage.removeItem("a");
  expect(storage.getItem("a")).toBeNull();
  storage.setItem("a", "b");
  storage.clear();
  expect(storage.getItem("a")).toBeNull();
});

it("a page keeps its values if the browser blocks the storage", () => {
  Object.defineProperty(globalThis, "sessionStorage", {
    configurable: true,
    get: () => {
      throw new DOMException("blocked", "SecurityError");
    },
  });
  const storage = storageOf("sessionStorage");
  expect(storage.setItem("a", "b")).toBe(false);
  expect(storage.getItem("a")).toBe("b");
});
