import { ChatName, Question } from "@parley/core";
import { makeClient } from "@parley/http";
import { Effect, Redacted } from "effect";
import { FetchHttpClient } from "effect/http";

const program = Effect.gen(function* () {
  const client = yield* makeClient({
    origin: process.env["PARLEY_ORIGIN"] ?? "http://127.0.0.1:3000",
    apiKey: Redacted.make(process.env["API_KEY"]!),
  });
  const { data: chat } = yield* client.general.createChat({
    headers: {},
    payload: { name: ChatName.make("Typed") },
  });
  const { data: entry } = yield* client.answers.ask({
    headers: {},
    payload: { chat_id: chat.id, query: Question.make("How do I change the port?") },
  });
  const { meta } = yield* client.general.history({
    params: { chat_id: String(chat.id) },
    query: { limit: 1 },
  });
  return { chatOfTheEntry: entry.chat_id === chat.id, entries: meta.total };
});

console.log(await Effect.runPromise(Effect.provide(program, FetchHttpClient.layer)));
