import { expect, it } from "@effect/vitest";
import { Access, Asking, Chats } from "@parley/core";
import { makeWebHandler } from "@parley/http";
import { Effect, Layer } from "effect";

it("tells whoever waits for it, and every request, what the layer fails with", async () => {
  const failing = Layer.effectContext<Access | Asking | Chats, string, never>(
    Effect.delay(Effect.fail("no database"), "10 millis"),
  );
  const { dispose, handler, ready } = makeWebHandler(failing);
  await expect(ready).rejects.toThrow("no database");
  await expect(handler(new Request("http://localhost/api/details"))).rejects.toThrow("no database");
  await dispose();
});
