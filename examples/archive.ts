import {
  ChatArchive,
  ChatStore,
  defaultSettings,
  linesOf,
  recordsOf,
  type Chatbot,
} from "@parley/core";
import { layerMemoryWith } from "@parley/store-memory";
import { Effect, Stream } from "effect";

const helpdesk: Chatbot = {
  id: 1,
  name: "Helpdesk",
  description: "",
  workspaceName: "Acme",
  settings: defaultSettings,
};
const copy: Chatbot = { ...helpdesk, id: 2, name: "Copy" };

const program = Effect.gen(function* () {
  const store = yield* ChatStore;
  const archive = yield* ChatArchive;
  for (const userRef of ["user-7", "user-8"]) {
    yield* store.createChat(helpdesk.id, { name: null, userRef, helloMessage: "Hello!" }, null);
  }

  const lines = yield* Stream.runCollect(linesOf(archive.export(helpdesk.id, "ann")));
  const bytes = Stream.encodeText(Stream.fromIterable(lines));
  const imported = yield* archive.import(copy.id, recordsOf(bytes), "ann");

  const which = { _tag: "UserRef", userRef: "user-7" } as const;
  const erased = yield* archive.erase(helpdesk.id, which, "ann");
  return { imported, erased };
});

console.log(await Effect.runPromise(Effect.provide(program, layerMemoryWith([helpdesk, copy]))));
