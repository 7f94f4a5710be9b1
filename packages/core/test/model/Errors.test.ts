import { assert, it } from "@effect/vitest";
import { describeCause, StorageUnavailable } from "@parley/core/ports";
import { placeOf } from "../../src/model/Errors.ts";

const caused = (message: string, cause: unknown) => new Error(message, { cause });

it("an error's reason is the message from its innermost cause, on one line", () => {
  assert.strictEqual(
    describeCause(caused("Failed", caused("query", new Error("no\n  room")))),
    "no room",
  );
  assert.strictEqual(describeCause(caused("Failed", { code: 5 })), "Failed");
  assert.strictEqual(describeCause("gone"), "gone");
  assert.strictEqual(describeCause(Object.assign(Object.create(null), { code: 5 })), `{"code":5}`);
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

const withStack = (frames: ReadonlyArray<string>, header = "RangeError: secret") =>
  Object.assign(new RangeError("secret"), {
    stack: [header, ...frames.map((frame) => `    at ${frame}`)].join("\n"),
  });

it("an error's place is the first frame of its stack in the program's own code, on every system", () => {
  for (const [place, frames] of [
    [
      "file:///home/ann/app.js:3:7",
      [
        "node:internal/deps/undici/undici:1:2",
        "async fetch (node:internal/x:1:2)",
        "async answer (file:///home/ann/app.js:3:7)",
      ],
    ],
    ["/home/ann/my app/app.ts:3:7", ["Array.map (<anonymous>)", "/home/ann/my app/app.ts:3:7"]],
    [
      "C:\\Program Files (x86)\\app\\app.js:3:7",
      [
        "parse (C:\\app\\node_modules\\ai\\index.js:1:2)",
        "new Model (C:\\Program Files (x86)\\app\\app.js:3:7)",
      ],
    ],
    ["C:\\Program Files (x86)\\app.js:3:7", ["async C:\\Program Files (x86)\\app.js:3:7"]],
    ["file:///C:/app/app.js:3:7", ["async Promise.all (index 0)", "file:///C:/app/app.js:3:7"]],
    ["/app/node_modules/ai/index.js:1:2", ["parse (/app/node_modules/ai/index.js:1:2)"]],
  ] as const)
    assert.strictEqual(placeOf(withStack(frames)), `RangeError at ${place}`);
  assert.match(placeOf(new RangeError("x")), /^RangeError at \S*Errors\.test\.ts:\d+:\d+$/);
});

it("an error's place contains nothing of its message", () => {
  const message = "secret\n    at secret:1:2";
  assert.strictEqual(
    placeOf(Object.assign(withStack(["f (/app.js:3:7)"], `RangeError: ${message}`), { message })),
    "RangeError at /app.js:3:7",
  );
  assert.strictEqual(placeOf(withStack([], "RangeError")), "RangeError");
  assert.strictEqual(placeOf("secret"), "a value that is not an error");
});
