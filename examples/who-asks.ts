import { Administration, Asking, CurrentAsk, EntryEvents, layerParley } from "@parley/core";
import { Answerer } from "@parley/core/ports";
import { memory } from "@parley/store-memory";
import { Effect, Fiber, Layer, Stream } from "effect";

/** Reads who asks, without a parameter for it in any function between. */
const greeting = Effect.map(CurrentAsk, ({ context, userRef }) => `Hello ${userRef}, ${context}!`);

const answerer = Layer.succeed(
  Answerer,
  Answerer.of({
    answer: () =>
      Stream.mapEffect(Stream.make("Delta" as const), (_tag) =>
        Effect.map(greeting, (text) => ({ _tag, text })),
      ),
  }),
);

const program = Effect.gen(function* () {
  const administration = yield* Administration;
  const chatbot = yield* administration.createChatbot(
    { workspaceName: "Acme", name: "Support" },
    "example",
  );

  const events = yield* EntryEvents;
  const first = yield* Effect.forkChild(Stream.runCollect(Stream.take(events.stored, 1)));
  yield* Effect.yieldNow; // the subscription starts

  const asking = yield* Asking;
  const question = { chatId: null, question: "Hi?", visitor: "ann", context: "member since 2020" };
  const { entry } = yield* asking.ask(chatbot, question);
  const stored = yield* Fiber.join(first);
  return { answer: entry.answer, events: stored.map(({ entry }) => entry.id) };
});

const services = layerParley({ store: memory(), answerer });
console.log(await Effect.runPromise(Effect.provide(program, services)));
