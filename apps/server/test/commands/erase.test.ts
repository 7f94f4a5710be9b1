import { assert, describe, it } from "@effect/vitest";
import { ChatArchive, ChatStore, StorageUnavailable, type CompactionPace } from "@parley/core";
import { Effect, Layer, PlatformError, Sink, Stdio } from "effect";
import { eraseOf } from "../../src/commands/Chats.ts";

/** Erases two chats from a store that ends erasures so; gives what is printed, and how it ends. */
const erasing = Effect.fnUntraced(function* (
  compact: Effect.Effect<boolean, StorageUnavailable>,
  pace: CompactionPace = "thorough",
  { isRead = true, json = false } = {},
) {
  let printed = "";
  const paces: Array<string> = [];
  const exit = yield* eraseOf(1, { _tag: "UserRef", userRef: "u" }, { json, pace }).pipe(
    Effect.provide([
      Layer.mock(ChatStore, {}),
      Layer.mock(ChatArchive, {
        erase: () => Effect.succeed(2),
        compact: (pace) => {
          paces.push(pace);
          assert.strictEqual(printed !== "", isRead);
          return compact;
        },
      }),
      Stdio.layerTest({
        stdout: () =>
          isRead
            ? Sink.forEach((text: string | Uint8Array) => Effect.sync(() => (printed += text)))
            : Sink.fail(
                PlatformError.systemError({ _tag: "Unknown", module: "Stdio", method: "stdout" }),
              ),
      }),
    ]),
    Effect.result,
  );
  return {
    printed,
    paces,
    failure: exit._tag === "Failure" ? exit.failure._tag : null,
  };
});

describe("parley chats erase", () => {
  it.effect("tells how many before it clears what is left of them", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* erasing(Effect.succeed(true)), {
        printed: "Erased 2 chats.\n",
        paces: ["thorough"],
        failure: null,
      });
      assert.deepStrictEqual(yield* erasing(Effect.succeed(true), "quick", { json: true }), {
        printed: '{"chatbot":1,"erased":2}\n',
        paces: ["quick"],
        failure: null,
      });
    }),
  );

  it.effect("fails when something of them is left, or may be", () =>
    Effect.gen(function* () {
      const printed = "Erased 2 chats.\n";
      const paces = ["thorough"];
      assert.deepStrictEqual(yield* erasing(Effect.succeed(false)), {
        printed,
        paces,
        failure: "NotCleared",
      });
      assert.deepStrictEqual(
        yield* erasing(Effect.fail(new StorageUnavailable({ cause: "lost" }))),
        { printed, paces, failure: "StorageUnavailable" },
      );
    }),
  );

  it.effect("clears what is left also if nobody reads how many", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* erasing(Effect.succeed(true), "full", { isRead: false }), {
        printed: "",
        paces: ["full"],
        failure: "PlatformError",
      });
    }),
  );
});
