import { generateKey } from "@parley/core";
import { Console, Effect, Redacted } from "effect";
import { Command } from "effect/cli";
import { SecureRandom } from "effect/crypto";

const generate = Command.make("generate", {}, () =>
  generateKey.pipe(
    Effect.flatMap((key) => Console.log(JSON.stringify({ key: Redacted.value(key) }))),
    Effect.provide(SecureRandom.layerWebCrypto),
  ),
).pipe(
  Command.withDescription("Print a fresh API key as JSON; nothing is stored"),
  Command.withExamples([
    { command: "parley key generate", description: "A key for the provisioning file" },
  ]),
);

export const key = Command.make("key").pipe(
  Command.withDescription("API keys"),
  Command.withSubcommands([generate]),
);
