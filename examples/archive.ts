import { ChatArchive, ChatStore, linesOf, recordsOf } from "@parley/core";
import { layerMemory } from "@parley/store-memory";
import { Effect, Stream } from "effect";

const [chatbot, another] = [1, 2];

const program = Effect.gen(function* () {
  const store = yield* ChatStore;
  const archive = yield* ChatArchive;
  for (const userRef of ["user-7", "user-8"]) {
    yield* store.createChat(chatbot, { name: null, userRef, helloMessage: "Hello!" }, null);
  }

  const lines = yield* Stream.runCollect(linesOf(archive.export(chatbot)));
  const bytes = Stream.encodeText(Stream.fromIterable(lines));
  const imported = yield* archive.import(another, recordsOf(bytes));

  const erased = yield* archive.erase(chatbot, { _tag: "UserRef", userRef: "user-7" });
  // Once, after the last of several erasures.
  const isCleared = yield* archive.compact("thorough");
  return { imported, erased, isCleared };
});

console.log(await Effect.runPromise(Effect.provide(program, layerMemory)));
