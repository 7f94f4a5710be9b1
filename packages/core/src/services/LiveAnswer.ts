/**
 * An answer in progress, which any number of requests read.
 */
import { Deferred, Effect, Exit, Stream } from "effect";
import type { Entry } from "../model/Entry.ts";
import type { AskError } from "../model/Errors.ts";
import { storableText } from "../model/Text.ts";

/** The result of an ask. */
export interface Asked {
  /** The stored entry. */
  readonly entry: Entry;
  /** Whether an earlier request with the same idempotency key started the answer. */
  readonly replayed: boolean;
}

/** How much of an answer a reader has: so many code points of the answer of a turn. */
export interface Progress {
  readonly turn: string;
  readonly points: number;
}

/** The next piece of an answer or, once and last, the stored entry. */
export type AnswerEvent = {
  /** Whether an earlier request with the same idempotency key started the answer. */
  readonly replayed: boolean;
  /** How much of the answer a reader has with this event. */
  readonly reached: Progress;
} & (
  | { readonly _tag: "Delta"; readonly text: string }
  | { readonly _tag: "Entry"; readonly entry: Entry }
);

/** An ask that succeeded, and the turn that answered it. */
export interface Completed extends Asked {
  readonly turn: string;
}

export class LiveAnswer {
  /** How many requests wait for the answer. */
  readers = 0;
  /** The turn that answers; `null` until it is taken. */
  turn: string | null = null;
  text = "";
  /** Whether a reader has received some of the text, so that it cannot be taken back. */
  seen = false;
  exit: Exit.Exit<Completed, AskError> | null = null;
  /** A high surrogate whose other half is still to arrive. */
  #half = "";
  #changed = Deferred.makeUnsafe<void>();

  /** Starts the answer, or starts it again: in the given turn, without text. */
  reset(turn: string): void {
    this.turn = turn;
    this.text = this.#half = "";
  }

  /**
   * Adds text in the form that every store keeps: without NUL, and pairs of surrogates as a whole. Cuts the text off
   * at `limit` code units in all; returns whether all of it was added.
   */
  append(text: string, limit: number): boolean {
    const all = this.#half + text;
    const kept = all.slice(0, limit - this.text.length);
    this.#half = /[\ud800-\udbff]$/.test(kept) ? kept.slice(-1) : "";
    this.text += storableText(kept.slice(0, kept.length - this.#half.length));
    this.#notify();
    return kept === all;
  }

  complete(exit: Exit.Exit<Completed, AskError>): void {
    this.exit = exit;
    if (Exit.isSuccess(exit)) {
      this.turn = exit.value.turn;
      this.text = exit.value.entry.answer;
    }
    this.#notify();
  }

  /**
   * The answer from a reader's progress on, or from its start if that is of another turn. A slow reader receives all
   * text since its last piece as one. `joined`: whether another request started the answer.
   */
  subscribe(after: Progress | null, joined: boolean): Stream.Stream<AnswerEvent, AskError> {
    return Stream.suspend(() => {
      /** The reader's place in the text: in code points, and in code units. */
      let points: number | null = null;
      let units = 0;
      const next = Effect.fnUntraced({ self: this }, function* () {
        while (true) {
          const { exit, text, turn } = this;
          if (exit !== null && Exit.isFailure(exit)) return yield* Effect.failCause(exit.cause);
          if (turn !== null) {
            if (points === null) {
              points = after?.turn === turn ? after.points : 0;
              units = Array.from(text).slice(0, points).join("").length;
            }
            const delta = text.slice(units);
            points += Array.from(delta).length;
            units = text.length;
            this.seen ||= points > 0;
            const replayed = joined || exit?.value.replayed === true;
            const shared = { replayed, reached: { turn, points } };
            if (delta !== "") return { _tag: "Delta", text: delta, ...shared } as const;
            if (exit !== null)
              return { _tag: "Entry", entry: exit.value.entry, ...shared } as const;
          }
          yield* Deferred.await(this.#changed);
        }
      });
      return Stream.fromEffectRepeat(next()).pipe(Stream.takeUntil(({ _tag }) => _tag === "Entry"));
    });
  }

  #notify(): void {
    const changed = this.#changed;
    this.#changed = Deferred.makeUnsafe();
    Deferred.doneUnsafe(changed, Exit.void);
  }
}
