import { openParley, type AnswererFunction, type ModeratorFunction } from "@parley/core/promise";
import { memory } from "@parley/store-memory";

/** Stands in for a service of yours that sends an answer in pieces. */
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

const parley = await openParley({ store: memory(), answerer, moderator });
const bot = await parley.chatbot({
  workspace: "Acme",
  name: "Helpdesk",
  moderationErrorMessage: "Please leave out e-mail addresses.",
});

const chat = await bot.createChat();
for (const question of ["Hello?", "I am ann@acme.example.", "And now?", "How is the weather?"]) {
  try {
    const { entry } = await bot.ask(chat.id, question);
    console.log(entry.moderation, "|", entry.answer);
  } catch (error) {
    console.log((error as Error).name);
  }
}
await parley.close();
