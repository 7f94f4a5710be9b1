import { Effect, Layer, Logger } from "effect";
import { Command } from "effect/cli";

/** Loaded only now: the other commands need neither HTTP nor language models. */
const layerServer = Layer.unwrap(
  Effect.map(
    Effect.promise(() => import("../Serve.ts")),
    (module) => module.layerServer,
  ),
);

export const serve = Command.make("serve", {}, () =>
  Effect.provideService(Layer.launch(layerServer), Logger.LogToStderr, false),
).pipe(
  Command.withDescription("Serve both interfaces until stopped"),
  Command.withExamples([
    { command: "parley serve", description: "Serve with the settings of the environment" },
  ]),
);
