/**
 * Random sequences of commands against two instances of a store and against plain arrays, which must agree at every
 * step. A disagreement is shrunk to a short sequence.
 */
import { Arbitrary, Effect, type Schema } from "effect";
import { ChatArchive } from "../ChatArchive.ts";
import { ChatStore } from "../ChatStore.ts";
import { TurnStore } from "../TurnStore.ts";
import { check, CheckFailed, type Check } from "./Check.ts";
import { ModelCommand } from "./ModelCommand.ts";
import { emptyState, step } from "./ModelSteps.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";
import { watched } from "./Watched.ts";

/** What a store needs for {@link followsModel}. */
export type ModelServices = ChatStore | TurnStore | ChatArchive | StoreUnderTest;

/**
 * Runs the commands over a new chatbot, and fails where the store and plain arrays disagree. For those who draw
 * and shrink the commands by a library of their own.
 */
export const followsModel = Effect.fnUntraced(function* (commands: ReadonlyArray<ModelCommand>) {
  const { newChatbot, second } = yield* StoreUnderTest;
  const state = emptyState(yield* newChatbot);
  for (const command of commands) {
    yield* "second" in command && command.second
      ? step(state, command).pipe(
          Effect.provideService(ChatStore, second.chats),
          Effect.provideService(TurnStore, second.turns),
          Effect.provideService(ChatArchive, second.archive),
        )
      : step(state, command);
  }
}, watched);

export interface ModelCheckOptions {
  /** How many sequences. */
  readonly runs?: number;
  /** How long one may be. */
  readonly commands?: number;
  /** The same seed gives the same sequences; a new one each time by default. */
  readonly seed?: number;
}

/** For how long a sequence is shrunk, in milliseconds: the shortest so far is better than a run that timed out. */
const patience = 10_000;

/** Fails, with a short sequence, unless the store follows whatever sequences of commands are drawn. */
export const agrees = Effect.fnUntraced(function* <Command, E, R>(
  command: Schema.Codec<Command>,
  follows: (commands: ReadonlyArray<Command>) => Effect.Effect<void, E, R>,
  { commands = 60, runs = 60, seed }: ModelCheckOptions,
) {
  let failedAt = Infinity;
  const failed = Effect.sync(() => {
    failedAt = Math.min(failedAt, performance.now());
  });
  const result = yield* Arbitrary.checkEffect(
    Arbitrary.array(Arbitrary.schema(command), { maxLength: commands }),
    (sequence) =>
      performance.now() - failedAt > patience
        ? Effect.succeed(true)
        : follows(sequence).pipe(
            Effect.as(true),
            Effect.onError(() => failed),
          ),
    // The size grows from nothing on, and only as many commands are drawn: most should be long.
    { runs, size: 8 * commands, maxShrinks: 1_000, ...(seed !== undefined && { seed }) },
  );
  const failure = Arbitrary.formatCheckFailure(result);
  if (failure !== undefined) {
    return yield* new CheckFailed({ what: failure, expected: "agreement", actual: result._tag });
  }
});

/** The store agrees with plain arrays over random sequences of commands. */
export const modelCheck = (options: ModelCheckOptions = {}): Check<ModelServices> =>
  check("the store agrees with plain arrays over random sequences of commands", () =>
    agrees(ModelCommand, followsModel, options),
  );
