/**
 * What a start finds out about chatbots, so that nobody has to wait or wonder at the first question.
 */
import { ChatbotRegistry } from "@parley/core";
import { Effect } from "effect";
import { ChatbotDocuments } from "./ChatbotDocuments.ts";
import { Settings } from "./Settings.ts";

/** Reads the documents that chatbots name, and tells of settings that this server cannot obey. */
export const lookAhead = Effect.gen(function* () {
  const { llms } = yield* Settings;
  const documents = yield* ChatbotDocuments;
  const chatbots = (yield* ChatbotRegistry.use(({ list }) => list)).map(({ chatbot }) => chatbot);

  for (const name of new Set(chatbots.map(({ settings }) => settings.knowledge))) {
    // A mistake in one chatbot's settings must not keep the others from answering.
    yield* Effect.catch(documents.named(name), ({ message }) => Effect.logError(message));
  }

  const withModel = chatbots.filter(({ settings }) => settings.model !== null);
  if (llms.length === 0 && withModel.length > 0) {
    const ids = withModel.map(({ id }) => id).join(", ");
    yield* Effect.logWarning(
      `PARLEY_LLM_BASE_URL is not set: chatbots that name a model answer with passages of documents alone: ${ids}`,
    );
  }
});
