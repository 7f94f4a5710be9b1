import { assert, describe, it } from "@effect/vitest";
import { reasonOf, StorageUnavailable } from "@parley/core";

const caused = (message: string, cause: unknown) => new Error(message, { cause });

describe("the reason of an error", () => {
  it("is the message of the innermost cause, on one line", () => {
    assert.strictEqual(
      reasonOf(caused("Failed", caused("query", new Error("no\n  room")))),
      "no room",
    );
    assert.strictEqual(reasonOf(caused("Failed", { code: 5 })), "Failed");
    assert.strictEqual(reasonOf("gone"), "gone");
    assert.strictEqual(reasonOf(new RangeError()), "RangeError");
    assert.strictEqual(
      new StorageUnavailable({ cause: caused("query", new Error("gone")) }).message,
      "gone",
    );
  });

  it("names every failed attempt to connect once", () => {
    const attempts = ["refused ::1:5432", "refused 127.0.0.1:5432", "refused ::1:5432"];
    const connecting = new AggregateError(attempts.map((message) => new Error(message)));
    assert.strictEqual(
      reasonOf(caused("Failed to connect", connecting)),
      "refused ::1:5432; refused 127.0.0.1:5432",
    );
    assert.strictEqual(reasonOf(new AggregateError([], "none")), "none");
    assert.strictEqual(reasonOf(new AggregateError([])), "AggregateError");
  });
});
