import { Moderator } from "@parley/core/ports";
import { assert, it } from "@effect/vitest";
import { Effect } from "effect";
import { layerWordList } from "../../src/index.ts";
import { chatbotWith } from "../support/chat.ts";

const check = (question: string) =>
  Moderator.use((moderator) => moderator.check(chatbotWith(null), question));

it.effect("layerWordList flags profanity, including disguised spellings", () =>
  Effect.gen(function* () {
    for (const question of [
      "What the fuck?",
      "FUUUUCK!",
      "you b1tch",
      "ʃṳ𝒸𝗄 is fine, ƒuck is not",
      "kiss my a$$",
      "you 455hole, asshole",
    ]) {
      const flagged = { category: "profanity", flagged: true };
      assert.deepStrictEqual(yield* check(question), flagged, question);
    }
  }).pipe(Effect.provide(layerWordList)),
);

it.effect("layerWordList does not flag names, numbers, places and medical terms", () =>
  Effect.gen(function* () {
    for (const question of [
      "Where is my order 455 of 4550, 717 or 7177?",
      "How far is Scunthorpe from Penistone, Essex and Middlesex?",
      "Who wrote Moby Dick? Was it Dickens or Dickinson?",
      "Is E. E. Cummings by the cockpit, with cumin and shiitake in a cocktail?",
      "Is the flame retardant assessed by an analyst of Arsenal?",
      "She graduated cum laude; tit for tat; van Dyke; a booby trap.",
      "Do great tits eat rapeseed and grapes?",
      "Which therapist treats a disease of the vagina or the penis?",
      "What does the law say about sex discrimination?",
      "The pen is mightier than the sword; is the glass screen a bass?",
      "Set PARLEY_ASSETS_URL=https://push.it/4s5?a=5&s=5",
      "Привет! 你好，世界? Grüß Gott",
    ]) {
      assert.isFalse((yield* check(question)).flagged, question);
    }
  }).pipe(Effect.provide(layerWordList)),
);
