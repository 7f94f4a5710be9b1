/**
 * An answer in progress: its text so far, for any number of readers that come and go.
 */
import { Deferred, Effect, Exit, Stream } from "effect";
import type { Entry } from "../model/Entry.ts";
import type { AskError } from "../model/Errors.ts";
import { storableText } from "../model/Text.ts";

/** The result of an ask. */
export interface Asked {
  readonly entry: Entry;
  /** Whether an earlier request with the same key made it. */
  readonly replayed: boolean;
}

/** How far a reader got: so many code points of the answer that the turn gives. */
export interface Progress {
  readonly turn: string;
  readonly points: number;
}

/** The next piece of the answer and how far it reaches, or, once and last, the stored entry. */
export type AnswerEvent = {
  /** Whether an earlier request with the same key began the answer. */
  readonly replayed: boolean;
  /** How far the answer reaches with this piece. */
  readonly reached: Progress;
} & (
  | { readonly _tag: "Delta"; readonly text: string }
  | { readonly _tag: "Entry"; readonly entry: Entry }
);

/** The stored entry, and the turn that made it. */
export interface Completed extends Asked {
  readonly turn: string;
}

export interface LiveAnswer {
  /** How many wait for the answer. */
  readers: number;
  /** Known once the turn is taken. */
  turn: string | null;
  text: string;
  /** A high surrogate whose other half has not come yet. */
  half: string;
  /** Whether a reader got something of the text, so that it cannot be taken back. */
  seen: boolean;
  exit: Exit.Exit<Completed, AskError> | null;
  changed: Deferred.Deferred<void>;
}

export const makeLiveAnswer = (): LiveAnswer => ({
  readers: 0,
  turn: null,
  text: "",
  half: "",
  seen: false,
  exit: null,
  changed: Deferred.makeUnsafe(),
});

const notify = (live: LiveAnswer): void => {
  const { changed } = live;
  live.changed = Deferred.makeUnsafe();
  Deferred.doneUnsafe(changed, Exit.void);
};

/** Begins anew in the given turn, with no text. */
export const reset = (live: LiveAnswer, turn: string): void => {
  live.turn = turn;
  live.text = live.half = "";
};

/** Adds text, as every store can keep it: without NUL, and a pair of surrogates only as a whole. */
export const append = (live: LiveAnswer, text: string): void => {
  const all = live.half + text;
  const splits = /[\ud800-\udbff]$/.test(all);
  live.half = splits ? all.slice(-1) : "";
  const whole = storableText(splits ? all.slice(0, -1) : all);
  if (whole === "") return;
  live.text += whole;
  notify(live);
};

export const complete = (live: LiveAnswer, exit: Exit.Exit<Completed, AskError>): void => {
  live.exit = exit;
  if (Exit.isSuccess(exit)) {
    live.turn = exit.value.turn;
    live.text = exit.value.entry.answer;
  }
  notify(live);
};

/** Waits until the answer is complete. */
export const completed = (live: LiveAnswer): Effect.Effect<Asked, AskError> =>
  Effect.suspend(() =>
    live.exit === null ? Effect.andThen(Deferred.await(live.changed), completed(live)) : live.exit,
  );

/**
 * The answer from where a reader got to, or from its start if that was another turn's. A reader that
 * is slow gets the text since its last piece in one.
 */
export const subscribe = (
  live: LiveAnswer,
  after: Progress | null,
  joined: boolean,
): Stream.Stream<AnswerEvent, AskError> =>
  Stream.suspend(() => {
    /** Code units and code points given so far; `null` before the turn is known. */
    let at: { readonly units: number; readonly points: number } | null = null;
    let complete = false;
    const give = (event: AnswerEvent) => Effect.succeed([event, undefined] as const);
    const next: Effect.Effect<readonly [AnswerEvent, void] | undefined, AskError> = Effect.suspend(
      () => {
        if (complete) return Effect.succeed(undefined);
        const { changed, exit, text, turn } = live;
        if (exit !== null && Exit.isFailure(exit)) return Effect.failCause(exit.cause);
        if (turn === null) return Effect.andThen(Deferred.await(changed), next);
        if (at === null) {
          const points = after?.turn === turn ? after.points : 0;
          at = { points, units: unitsOf(text, points) };
          live.seen ||= points > 0;
        }
        const replayed = joined || exit?.value.replayed === true;
        if (text.length > at.units) {
          const delta = text.slice(at.units);
          at = { units: text.length, points: at.points + pointsIn(delta) };
          live.seen = true;
          return give({
            _tag: "Delta",
            text: delta,
            reached: { turn, points: at.points },
            replayed,
          });
        }
        if (exit === null) return Effect.andThen(Deferred.await(changed), next);
        complete = true;
        const { entry } = exit.value;
        return give({ _tag: "Entry", entry, reached: { turn, points: at.points }, replayed });
      },
    );
    return Stream.unfold(undefined, () => next);
  });

const pointsIn = (text: string): number => {
  let points = 0;
  for (const _ of text) points++;
  return points;
};

/** Where a text's first `points` code points end. */
const unitsOf = (text: string, points: number): number => {
  let units = 0;
  for (const point of text) {
    if (points-- <= 0) return units;
    units += point.length;
  }
  return units;
};
