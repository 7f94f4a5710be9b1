/**
 * Moderation without a service: a list of English words.
 */
import { type Moderation, Moderator } from "@parley/core";
import { Effect, Layer } from "effect";

export interface WordListOptions {
  /** Words and phrases that are allowed even though the list would find a word in them. */
  readonly allow?: ReadonlyArray<string>;
}

/** Names and harmless words in which the list finds others. */
const harmless =
  `blue tit, blue tits, booby prize, booby trap, booby-trap, boobytrap, chink in, cockpit, cum laude, cumin,
  cummings, dickinson, dick cheney, fag end, fagin, great tit, great tits, moby dick, penistone, philip k. dick,
  pussy willow, pussycat, rape seed, rapeseed, retardant, rio negro, shiitake, shitake, tit for tat, tit-for-tat,
  van dyke, vandyke`.split(/,\s+/);

/** Words of the list that honest questions about health and people need. */
const ordinary = new Set("anal anus ejaculate orgasm penis sex testicle vagina".split(" "));

/**
 * A `Moderator` that flags English profanity as `profanity`, also when it is spelt with other signs.
 * A heuristic: it knows no other language and no meaning. The list is loaded when the layer is built.
 */
export const layerWordList = (options: WordListOptions = {}): Layer.Layer<Moderator> =>
  Layer.effect(
    Moderator,
    Effect.gen(function* () {
      const { DataSet, englishDataset, englishRecommendedTransformers, RegExpMatcher } =
        yield* Effect.promise(() => import("obscenity"));
      const words = new DataSet<{ originalWord: string }>()
        .addAll(englishDataset)
        .removePhrasesIf(({ metadata }) => ordinary.has(metadata?.originalWord ?? ""))
        .build();
      const matcher = new RegExpMatcher({
        ...words,
        whitelistedTerms: [
          ...(words.whitelistedTerms ?? []),
          ...harmless,
          ...(options.allow ?? []).map((phrase) => phrase.toLowerCase()),
        ],
        ...englishRecommendedTransformers,
      });
      const flags = (question: string) =>
        matcher
          .getAllMatches(question)
          // Digits and signs count as letters, and 455 would be a word.
          .some(({ endIndex, startIndex }) =>
            /[a-z\u0080-\u{10ffff}]/iu.test(question.slice(startIndex, endIndex + 1)),
          );
      return Moderator.of({
        check: (_chatbot, question) =>
          Effect.sync((): Moderation =>
            flags(question)
              ? { category: "profanity", flagged: true }
              : { category: "none", flagged: false },
          ),
      });
    }),
  );
