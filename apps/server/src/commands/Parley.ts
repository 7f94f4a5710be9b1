/**
 * The command line.
 */
import { generateKey } from "@parley/core";
import { Console, Effect, Layer, Redacted } from "effect";
import { Command } from "effect/cli";
import { SecureRandom } from "effect/crypto";
import { layerServer } from "./Serve.ts";

const serve = Command.make("serve", {}, () => Layer.launch(layerServer)).pipe(
  Command.withDescription("Serve both interfaces until stopped"),
);

const generate = Command.make("generate", {}, () =>
  generateKey.pipe(
    Effect.flatMap((key) => Console.log(JSON.stringify({ key: Redacted.value(key) }))),
    Effect.provide(SecureRandom.layerWebCrypto),
  ),
).pipe(Command.withDescription("Print a fresh API key as JSON; nothing is stored"));

const key = Command.make("key").pipe(
  Command.withDescription("API keys"),
  Command.withSubcommands([generate]),
);

export const parley = Command.make("parley").pipe(
  Command.withDescription("A chatbot conversation service"),
  Command.withSubcommands([serve, key]),
  Command.run({ version: "0.1.0" }),
);
