import { defaultSettings, layerParley, type Chatbot } from "@parley/core";
import type { AnswererFunction, ModeratorFunction } from "@parley/core/ports";
import { makeParley } from "@parley/core/promise";
import { layerMemoryWith } from "@parley/store-memory";

/** Stands for a service of yours that sends an answer in pieces. */
async function* callService(question: string, context: string, signal: AbortSignal) {
  if (question.includes("weather")) throw new Error("503");
  for (const word of [`(${context}) `, "You asked: ", question]) {
    signal.throwIfAborted();
    yield word;
  }
}

const answerer: AnswererFunction = async function* ({ earlier, question, signal }) {
  const startedAt = Date.now();
  let entries = 0;
  // Newest first: take no more than the prompt has room for.
  for await (const _ of earlier) if (++entries === 5) break;
  yield* callService(question, `${entries} earlier`, signal);
  yield {
    _tag: "Usage",
    usage: {
      provider: "my service",
      model: "v1",
      promptTokens: 0,
      completionTokens: 0,
      attempts: 1,
      latencyMillis: Date.now() - startedAt,
    },
  };
};

const moderator: ModeratorFunction = (question) =>
  /\S+@\S+\.\S+/.test(question) ? "personal-data" : null;

const chatbot: Chatbot = {
  id: 1,
  name: "Helpdesk",
  description: "",
  workspaceName: "Acme",
  settings: { ...defaultSettings, moderationErrorMessage: "Please leave out e-mail addresses." },
};

const parley = makeParley(layerParley({ store: layerMemoryWith([chatbot]), answerer, moderator }));

let chatId: number | null = null;
for (const question of ["Hello?", "I am ann@acme.example.", "And now?", "How is the weather?"]) {
  try {
    const { entry } = await parley.ask(chatbot, { chatId, question });
    chatId = entry.chatId;
    console.log(entry.moderation, "|", entry.answer);
  } catch (error) {
    console.log((error as { readonly _tag: string })._tag);
  }
}
await parley.dispose();
