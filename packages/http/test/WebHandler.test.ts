import { expect, it } from "@effect/vitest";
import { Access, AnswerUnavailable, Asking, Chats } from "@parley/core";
import { makeWebHandler } from "@parley/http";
import { Effect, Layer, Stream } from "effect";
import { served } from "./served.ts";

it("tells whoever waits for it, and every request, what the layer fails with", async () => {
  const failing = Layer.effectContext<Access | Asking | Chats, string, never>(
    Effect.delay(Effect.fail("no database"), "10 millis"),
  );
  const { dispose, handler, ready } = makeWebHandler(failing);
  await expect(ready).rejects.toThrow("no database");
  await expect(handler(new Request("http://localhost/api/details"))).rejects.toThrow("no database");
  await dispose();
});

it.live("tells the log of an answer that fails when its client has hung up", () =>
  Effect.gen(function* () {
    const broken = new AnswerUnavailable({ reason: "cut off", passing: false });
    const { logged, send } = yield* served(() =>
      Stream.fromEffect(Effect.delay(Effect.fail(broken), "100 millis")),
    );
    // Until it is built, a hang-up is one before anything began.
    yield* send("/api/details");
    for (const accept of ["application/json", "text/event-stream"]) {
      logged.length = 0;
      yield* send("/ask", {
        method: "POST",
        body: JSON.stringify({ query: "q" }),
        headers: { accept },
        signal: AbortSignal.timeout(30),
      }).pipe(Effect.exit);
      expect(logged).toEqual([]);
      yield* Effect.sleep("200 millis");
      expect(logged).toHaveLength(1);
      expect(logged[0]).toContain("cut off");
    }
  }).pipe(Effect.scoped),
);
