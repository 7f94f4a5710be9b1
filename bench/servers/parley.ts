/**
 * Preloaded into Parley's server, this replaces the answerer that quotes documents with `answer`, because none of
 * Parley's own answerers costs next to nothing. The rest of the server is unchanged.
 */
import { registerHooks } from "node:module";

const source = `
  import { Answerer } from "@parley/core/ports";
  import { Layer, Stream } from "effect";
  import { answer, instantAnswer, pacedQuestion } from ${JSON.stringify(new URL("answers.ts", import.meta.url))};

  export const layerOffline = () =>
    Layer.succeed(Answerer, Answerer.of({
      answer: (_chatbot, _earlier, question) =>
        (question === pacedQuestion
          ? Stream.fromAsyncIterable(answer(question), (cause) => cause)
          : Stream.succeed(instantAnswer)
        ).pipe(Stream.map((text) => ({ _tag: "Delta", text }))),
    }));
`;

registerHooks({
  load: (url, context, next) =>
    url.endsWith("/packages/llm/src/answerers/OfflineAnswerer.ts")
      ? { format: "module", shortCircuit: true, source }
      : next(url, context),
});
