import { assert, it } from "@effect/vitest";
import { openParley, type ParleyOptions } from "@parley/core/promise";
import { memory } from "@parley/store-memory";
import { Effect } from "effect";
import { documents, languageModel } from "../../src/index.ts";
import { endpoint } from "../support/endpoint.ts";
import { folderOf } from "../support/files.ts";

const folder = folderOf({ "hours.md": "# Opening hours\n\nWe open at nine o'clock." });

/** Asks about the opening hours, and returns the answer and its usage. */
const askOnce = (answerer: ParleyOptions["answerer"]) =>
  Effect.promise(async () => {
    const parley = await openParley({ store: memory(), answerer, log: false });
    const bot = await parley.chatbot({ workspace: "Acme", name: "Support" });
    const { entry } = await bot.ask(null, "What are your opening hours?");
    const usage = await bot.usage();
    await parley.close();
    return { answer: entry.answer, usage };
  });

it.live("documents() quotes the documents in a folder", () =>
  Effect.gen(function* () {
    const { answer } = yield* askOnce(documents(yield* folder));
    assert.include(answer, "We open at nine o'clock.");
  }).pipe(Effect.scoped),
);

it.live("openParley rejects if the folder given to documents() is missing", () =>
  Effect.gen(function* () {
    const opening = openParley({ store: memory(), answerer: documents("/nowhere"), log: false });
    const error = yield* Effect.promise(() => opening.catch((error: Error) => error));
    assert.strictEqual((error as Error).name, "KnowledgeUnreadable");
  }),
);

it.live("languageModel() sends the key and text from the documents to the endpoint", () =>
  Effect.gen(function* () {
    const chunk = (choice: object, usage?: object) =>
      `data: ${JSON.stringify({ id: "1", created: 1, model: "m", choices: [choice], usage })}\n\n`;
    const { baseUrl, received } = yield* endpoint((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk({ index: 0, delta: { content: "At nine." } }));
      const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
      response.write(chunk({ index: 0, delta: {}, finish_reason: "stop" }, usage));
      response.end("data: [DONE]\n\n");
    });
    const model = languageModel({
      baseUrl,
      model: "small",
      apiKey: "sk-1",
      documents: yield* folder,
    });
    const { answer, usage } = yield* askOnce(model);
    assert.strictEqual(answer, "At nine.");
    assert.strictEqual(usage[0]?.promptTokens, 3);
    assert.strictEqual(received[0]?.authorization, "Bearer sk-1");
    assert.include(JSON.stringify(received[0]?.body), "We open at nine o'clock.");
  }).pipe(Effect.scoped),
);
