import { defaultSettings, encodeArchive, decodeArchive } from "@parley/core";
import { ChatArchive, ChatbotRegistry, ChatStore } from "@parley/core/ports";
import { layerMemory } from "@parley/store-memory";
import { Effect, Stream } from "effect";

const actor = "example";

const register = (name: string) =>
  ChatbotRegistry.use((registry) =>
    registry.create(
      { workspaceName: "Acme", name, description: "", settings: defaultSettings, keys: [] },
      actor,
    ),
  );

const program = Effect.gen(function* () {
  const { id: chatbot } = yield* register("Support");
  const { id: another } = yield* register("Archive");
  const store = yield* ChatStore;
  const archive = yield* ChatArchive;
  for (const userRef of ["user-7", "user-8"]) {
    yield* store.createChat(chatbot, { name: null, userRef, helloMessage: "Hello!" }, null);
  }

  const lines = yield* Stream.runCollect(encodeArchive(archive.export(chatbot, actor)));
  const bytes = Stream.encodeText(Stream.fromIterable(lines));
  const imported = yield* archive.import(another, decodeArchive(bytes), actor);

  const erased = yield* archive.erase(chatbot, { _tag: "UserRef", userRef: "user-7" }, actor);
  return { imported, erased };
});

console.log(await Effect.runPromise(Effect.provide(program, layerMemory)));
