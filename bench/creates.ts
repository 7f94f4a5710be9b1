/**
 * The gain of batching creates: 64 at a time for one chatbot, batched as the store does it, and one
 * statement each, in alternating rounds. Ends with exit code 1 when it brings less than three times as many.
 *
 *   BENCH_DATABASE_URL=postgres://… npm run creates -- [--rounds 5] [--seconds 3]
 */
import { ChatbotRegistry, ChatStore } from "../packages/core/src/index.ts";
import { registerChatbot } from "../packages/core/src/testing/index.ts";
import { layerPostgres } from "../packages/store-pg/src/index.ts";
import { insertChats } from "../packages/store-pg/src/chats/ChatCreation.ts";
import { makeBenchSession } from "../packages/store-pg/test/fill.ts";
import { databaseUrl } from "./harness/DatabaseUrl.ts";
import { Effect, Layer } from "effect";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: { rounds: { type: "string", default: "5" }, seconds: { type: "string", default: "3" } },
});
const url = databaseUrl();
const schema = `creates_${Date.now()}`;
const atOnce = 64;
/** How many times as many. */
const least = 3;

/** Creates a second. */
const rate = Effect.fnUntraced(function* (
  create: Effect.Effect<unknown, unknown>,
  seconds: number,
) {
  const start = performance.now();
  let made = 0;
  yield* Effect.forEach(
    Array.from({ length: atOnce }),
    () =>
      Effect.whileLoop({
        while: () => performance.now() - start < seconds * 1000,
        body: () => create,
        step: () => made++,
      }),
    { concurrency: atOnce, discard: true },
  );
  return made / ((performance.now() - start) / 1000);
});

const median = (values: ReadonlyArray<number>) =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;

await Effect.runPromise(
  Effect.gen(function* () {
    const services = yield* Layer.build(layerPostgres({ url, schema }));
    const store = yield* Effect.provideContext(ChatStore, services);
    const registry = yield* Effect.provideContext(ChatbotRegistry, services);
    const chatbot = yield* Effect.provideService(registerChatbot, ChatbotRegistry, registry);
    const session = yield* makeBenchSession({ url, schema });

    const chat = { name: "A name of usual length", userRef: "user-1", helloMessage: "Hello!" };
    const batched = store.createChat(chatbot, chat, null);
    const hello = {
      question: "",
      answer: "Hello!",
      moderation: "none",
      flagged: false,
      usage: null,
    };
    const wanted = { name: chat.name, userRef: chat.userRef, entry: hello, keyed: null };
    const single = insertChats(session, chatbot, [wanted]);

    yield* rate(batched, 1);
    yield* rate(single, 1);
    const rounds = yield* Effect.forEach(Array.from({ length: Number(options.rounds) }), () =>
      Effect.all([rate(single, Number(options.seconds)), rate(batched, Number(options.seconds))]),
    );
    const ratios = rounds.map(([one, many]) => many / one);
    console.log(`one statement each  ${median(rounds.map(([one]) => one)).toFixed(0)} creates/s`);
    console.log(
      `batched             ${median(rounds.map(([, many]) => many)).toFixed(0)} creates/s`,
    );
    console.log(
      `ratio               ${median(ratios).toFixed(2)}  (rounds ${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)})`,
    );
    if (median(ratios) < least) process.exitCode = 1;
    yield* session.query("operator", `drop schema ${schema} cascade`);
  }).pipe(Effect.scoped),
);
