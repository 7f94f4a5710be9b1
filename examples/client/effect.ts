import { ParleyClient } from "@parley/http/client";
import { Effect, Redacted, Stream } from "effect";
import { FetchHttpClient } from "effect/http";

const program = Effect.gen(function* () {
  const client = yield* ParleyClient;
  const { data } = yield* client.ask({ payload: { query: "How do I change the port?" } });
  yield* client
    .stream({ payload: { query: "And the host?", chat_id: data.chat_id } })
    .pipe(Stream.runForEach((event) => Effect.log(event._tag === "Delta" ? event.text : event)));
  return yield* client.history({ params: { chat_id: data.chat_id }, query: { limit: 10 } });
}).pipe(Effect.catchReason("ParleyError", "RATE_EXCEEDED", () => Effect.log("Too many questions")));

const layer = ParleyClient.layer({
  origin: "http://localhost:8080",
  apiKey: Redacted.make(process.env["API_KEY"]!),
});
await Effect.runPromise(program.pipe(Effect.provide(layer), Effect.provide(FetchHttpClient.layer)));
