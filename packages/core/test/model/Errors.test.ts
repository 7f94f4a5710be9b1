import { assert, describe, it } from "@effect/vitest";
import { describeCause, StorageUnavailable } from "@parley/core/ports";

const caused = (message: string, cause: unknown) => new Error(message, { cause });

describe("an error's reason", () => {
  it("an error's reason is the message from its innermost cause, on one line", () => {
    assert.strictEqual(
      describeCause(caused("Failed", caused("query", new Error("no\n  room")))),
      "no room",
    );
    assert.strictEqual(describeCause(caused("Failed", { code: 5 })), "Failed");
    assert.strictEqual(describeCause("gone"), "gone");
    assert.strictEqual(
      describeCause(Object.assign(Object.create(null), { code: 5 })),
      `{"code":5}`,
    );
    assert.strictEqual(describeCause(new RangeError()), "RangeError");
    assert.strictEqual(
      new StorageUnavailable({ cause: caused("query", new Error("gone")) }).message,
      "gone",
    );
  });

  it("an error's reason names every failed connection attempt once", () => {
    const attempts = ["refused ::1:5432", "refused 127.0.0.1:5432", "refused ::1:5432"];
    const connecting = new AggregateError(attempts.map((message) => new Error(message)));
    assert.strictEqual(
      describeCause(caused("Failed to connect", connecting)),
      "refused ::1:5432; refused 127.0.0.1:5432",
    );
    assert.strictEqual(describeCause(new AggregateError([], "none")), "none");
    assert.strictEqual(describeCause(new AggregateError([])), "AggregateError");
  });
});
