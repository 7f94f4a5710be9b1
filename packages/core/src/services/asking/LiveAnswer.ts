/**
 * An answer in progress, which any number of requests can read.
 */
import {
  Array as Arr,
  Cause,
  Effect,
  Exit,
  Stream,
  type Duration,
  type Pull,
  type Scheduler,
} from "effect";
import type { Entry } from "../../model/Entry.ts";
import type { AskError } from "../../model/Errors.ts";
import { storableText } from "../../model/Text.ts";

export interface AskResult {
  /** The stored entry. */
  readonly entry: Entry;
  /** Whether an earlier request with the same idempotency key started the answer. */
  readonly replayed: boolean;
}

/** How much of an answer a reader has received: the id of the answer's turn, and the number of code points. */
export interface Progress {
  readonly turnId: string;
  readonly points: number;
}

/** An event in a streamed answer: the next delta or, as the last event, the stored entry. */
export type AnswerEvent = {
  /** Whether an earlier request with the same idempotency key started the answer. */
  readonly replayed: boolean;
  /** The reader's progress after this event. */
  readonly progress: Progress;
} & (
  | { readonly _tag: "Delta"; readonly text: string }
  | { readonly _tag: "Entry"; readonly entry: Entry }
);

/** A keep-alive value, which a stream emits at an interval alongside the answer. */
export interface KeepAlive<P> {
  readonly value: P;
  readonly every: Duration.Duration;
}

/** The result of a successful ask, with the id of the turn that answered it. */
export interface CompletedAsk extends AskResult {
  readonly turnId: string;
}

export class LiveAnswer {
  /** The number of requests that are reading the answer or waiting for it. */
  readers = 0;
  /** The id of the turn that produces the answer; `null` until the turn is taken. */
  turnId: string | null = null;
  text = "";
  /** Whether a reader has received some of the text, so that it can no longer be withdrawn. */
  hasBeenRead = false;
  /** Whether a client has stopped the ask. */
  isStopped = false;
  exit: Exit.Exit<CompletedAsk, AskError> | null = null;
  /** A high surrogate whose low surrogate has not arrived yet. */
  #half = "";
  /** Functions that wake the readers that have received all of the text so far. */
  readonly #wakers = new Set<() => void>();
  readonly #dispatcher: Scheduler.SchedulerDispatcher;

  /** @param dispatcher wakes all readers at the end of an iteration of the event loop, one after another */
  constructor(dispatcher: Scheduler.SchedulerDispatcher) {
    this.#dispatcher = dispatcher;
  }

  /** Starts or restarts the answer, in the given turn and without text. */
  reset(turnId: string): void {
    this.turnId = turnId;
    this.text = this.#half = "";
  }

  /**
   * Adds text in the form that every store keeps: without NUL, and with surrogate pairs kept together. Returns `false`
   * if it cuts the answer off at `limit` code units.
   */
  append(text: string, limit: number): boolean {
    const addition = this.#half + text;
    const prefix = addition.slice(0, limit - this.text.length);
    this.#half = /[\ud800-\udbff]$/.test(prefix) ? prefix.slice(-1) : "";
    this.text += storableText(prefix.slice(0, prefix.length - this.#half.length));
    this.#notify();
    return prefix === addition;
  }

  complete(exit: Exit.Exit<CompletedAsk, AskError>): void {
    this.exit = exit;
    if (Exit.isSuccess(exit)) {
      this.turnId = exit.value.turnId;
      this.text = exit.value.entry.answer;
    }
    this.#notify();
  }

  /**
   * Streams the answer from a reader's progress onwards, or from the start if that progress belongs to another turn.
   * Each delta contains all text since the reader's last delta: the text of one iteration of the event loop, or more
   * for a slow reader. `isJoined` tells whether another request started the answer.
   */
  subscribe<P>(
    after: Progress | null,
    isJoined: boolean,
    keepAlive: KeepAlive<P> | null,
  ): Stream.Stream<AnswerEvent | P, AskError> {
    return Stream.unwrap(
      Effect.gen({ self: this }, function* () {
        /** The reader's position in the text, in code points and in code units. */
        let points: number | null = null;
        let units = 0;
        let isOver = false;
        let isKeepAliveDue = false;
        let wake = () => {};
        if (keepAlive !== null) {
          yield* Effect.sync(() => {
            isKeepAliveDue = true;
            wake();
          }).pipe(Effect.delay(keepAlive.every), Effect.forever, Effect.forkScoped);
        }
        const change = Effect.callback<void>((resume) => {
          wake = () => resume(Effect.void);
          this.#wakers.add(wake);
          return Effect.sync(() => this.#wakers.delete(wake));
        });
        const pull: Pull.Pull<
          Arr.NonEmptyReadonlyArray<AnswerEvent | P>,
          AskError
        > = Effect.suspend(() => {
          const { exit, text, turnId } = this;
          if (isOver) return Cause.done();
          if (exit !== null && Exit.isFailure(exit)) return Effect.failCause(exit.cause);
          const events: Array<AnswerEvent | P> = isKeepAliveDue ? [keepAlive!.value] : [];
          isKeepAliveDue = false;
          if (turnId !== null) {
            if (points === null) {
              points = after?.turnId === turnId ? after.points : 0;
              units = Array.from(text).slice(0, points).join("").length;
            }
            const delta = text.slice(units);
            for (const _ of delta) points++;
            units = text.length;
            this.hasBeenRead ||= points > 0;
            const replayed = isJoined || exit?.value.replayed === true;
            const fields = { replayed, progress: { turnId, points } };
            if (delta !== "") events.push({ _tag: "Delta", text: delta, ...fields });
            if (exit !== null) events.push({ _tag: "Entry", entry: exit.value.entry, ...fields });
            isOver = exit !== null;
          }
          return Arr.isArrayNonEmpty(events) ? Effect.succeed(events) : next;
        });
        const next = Effect.flatMap(change, () => pull);
        return Stream.fromPull(Effect.succeed(pull));
      }),
    );
  }

  #notify(): void {
    for (const wake of this.#wakers) this.#dispatcher.scheduleTask(wake, 0);
    this.#wakers.clear();
  }
}
