import { assert, describe, it } from "@effect/vitest";
import { Effect } from "effect";
import { tryModel } from "../../src/index.ts";
import { driven } from "../support/driven.ts";
import { finish, httpError, modelThat, type Reply, said, says } from "../support/models.ts";

const refusal = (message: string) =>
  httpError(400, { body: JSON.stringify({ error: { message } }) });

describe("tryModel", () => {
  const alive: Record<string, Reply> = {
    answers: says("pong"),
    "has no text in so few tokens": [...said(), finish("length")],
    "refuses so few tokens": refusal("Invalid 'max_output_tokens': expected a value >= 16."),
    "had too few tokens to end": refusal(
      "Could not finish the message because max_tokens was reached.",
    ),
  };
  for (const [name, reply] of Object.entries(alive)) {
    it.effect(`succeeds with a model that ${name}`, () => driven(tryModel(modelThat(() => reply))));
  }

  const dead: Record<string, Reply> = {
    "refuses the key": httpError(401),
    "does not know the bound of its answer by that name": refusal(
      "Unsupported parameter: 'max_tokens' is not supported with this model.",
    ),
    "finds another fault": refusal("The model is not for chats."),
    "is silent": "silence",
  };
  for (const [name, reply] of Object.entries(dead)) {
    it.effect(`fails with a model that ${name}`, () => {
      const model = modelThat(() => reply);
      return Effect.gen(function* () {
        yield* driven(Effect.flip(tryModel(model)), 1000);
        assert.strictEqual(model.doStreamCalls[0]!.maxOutputTokens, 1);
        assert.isTrue(model.doStreamCalls[0]!.abortSignal!.aborted);
      });
    });
  }
});
