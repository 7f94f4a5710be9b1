/**
 * The documents of each chatbot: of the folder that its settings name, or the usual ones.
 */
import type { Knowledge } from "@parley/llm";
import { Context, Effect, Layer, Path, type Stream } from "effect";
import { fileURLToPath } from "node:url";
import { makeDocuments } from "./Documents.ts";
import { Settings } from "./Settings.ts";

/** This project's own documentation, which answers when no other documents and no model are named. */
const ownDocuments = fileURLToPath(new URL("../../../docs", import.meta.url));

export class ChatbotDocuments extends Context.Service<
  ChatbotDocuments,
  {
    /** Those of the folder of this name, read when they are first wanted; the usual ones for `null`. */
    readonly named: (
      name: string | null,
    ) => Effect.Effect<Knowledge | null, { readonly message: string }>;
  }
>()("@parley/server/ChatbotDocuments") {
  /**
   * The usual ones are read at once: without them a server must not start.
   *
   * @param again asks for all that were read to be read again
   */
  static readonly layer = (again: Stream.Stream<void>) =>
    Layer.effect(
      ChatbotDocuments,
      Effect.gen(function* () {
        const { knowledgeDir, knowledgeRoot, llms } = yield* Settings;
        const path = yield* Path.Path;
        const documents = yield* makeDocuments(again);
        const usual = knowledgeDir ?? (llms.length === 0 ? ownDocuments : null);
        if (usual !== null) yield* documents(usual);
        return ChatbotDocuments.of({
          named: Effect.fnUntraced(function* (name) {
            if (name === null) return usual === null ? null : yield* documents(usual);
            if (knowledgeRoot !== null) return yield* documents(path.join(knowledgeRoot, name));
            return yield* Effect.fail(
              new Error(
                `a chatbot has the documents "${name}", but PARLEY_KNOWLEDGE_ROOT is not set`,
              ),
            );
          }),
        });
      }),
    );
}
