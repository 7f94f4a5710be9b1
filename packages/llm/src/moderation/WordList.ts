/**
 * Moderation with a list of English words, without an external service.
 */
import { Moderator, unflagged } from "@parley/core/ports";
import { Effect, Layer } from "effect";

/** Names and harmless phrases that contain a word from the list. */
const harmless =
  `blue tit, blue tits, booby prize, booby trap, booby-trap, boobytrap, chink in, cockpit, cum laude, cumin,
  cummings, dickinson, dick cheney, fag end, fagin, great tit, great tits, moby dick, penistone, philip k. dick,
  pussy willow, pussycat, rape seed, rapeseed, retardant, rio negro, shiitake, shitake, tit for tat, tit-for-tat,
  van dyke, vandyke`.split(/,\s+/);

/** Words left out of the list, because they are common in questions about health. */
const medical = new Set("anal anus ejaculate orgasm penis sex testicle vagina".split(" "));

/**
 * A `Moderator` that flags English profanity, including disguised spellings, as `profanity`. This heuristic ignores
 * meaning and other languages. The first question loads the list.
 */
export const layerWordList: Layer.Layer<Moderator> = Layer.effect(
  Moderator,
  Effect.map(Effect.cached(Effect.promise(() => loadMatcher())), (getMatcher) =>
    Moderator.of({
      check: (_chatbot, question) =>
        Effect.map(getMatcher, (matcher) => {
          const isProfane = matcher
            .getAllMatches(question)
            // The matcher reads digits and symbols as letters. A match without a letter, such as 455, does not count.
            .some(({ endIndex, startIndex }) =>
              /[a-z\u0080-\u{10ffff}]/iu.test(question.slice(startIndex, endIndex + 1)),
            );
          return isProfane ? { category: "profanity", flagged: true } : unflagged;
        }),
    }),
  ),
);

const loadMatcher = async () => {
  const { DataSet, englishDataset, englishRecommendedTransformers, RegExpMatcher } =
    await import("obscenity");
  const words = new DataSet<{ originalWord: string }>()
    .addAll(englishDataset)
    .removePhrasesIf(({ metadata }) => medical.has(metadata?.originalWord ?? ""))
    .build();
  return new RegExpMatcher({
    ...words,
    whitelistedTerms: [...(words.whitelistedTerms ?? []), ...harmless],
    ...englishRecommendedTransformers,
  });
};
