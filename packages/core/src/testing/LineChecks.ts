/**
 * What `TurnStore` promises instances that wait for a chat's turn, over random sequences: two of them stand in the
 * lines of two chats as in plain arrays.
 */
import { Effect, Schema } from "effect";
import type { ChatStore } from "../ChatStore.ts";
import { turnLease, turnPrecedence, TurnStore, type Turn } from "../TurnStore.ts";
import { check, same, type Check } from "./Check.ts";
import { bothTurns, createAll, entry, newChatbot, pass } from "./Fixtures.ts";
import { agrees } from "./ModelChecks.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

/** Which instance. */
const second = Schema.Boolean;
/** Which of two chats. */
const other = Schema.Boolean;

const Take = Schema.Struct({ _tag: Schema.Literal("Take"), second, other });

const LineCommand = Schema.Union([
  // More often than the others.
  Take,
  Take,
  Take,
  Schema.Struct({ _tag: Schema.Literal("Leave"), second, other }),
  Schema.Struct({ _tag: Schema.Literal("End"), other, append: Schema.Boolean }),
  /** Mostly a little. */
  Schema.Struct({
    _tag: Schema.Literal("Pass"),
    millis: Schema.Literals([300, 400, 500, 600, 2_100, turnLease]),
  }),
]);

/** Who stands where, and whose turn it is or was last. */
interface Line {
  readonly chat: number;
  turn: Turn | null;
  /** Who has the turn. */
  holder: boolean;
  /** When the turn ends or ended. */
  end: number;
  places: ReadonlyArray<boolean>;
}

const followsLine = Effect.fnUntraced(function* (
  commands: ReadonlyArray<(typeof LineCommand)["Type"]>,
) {
  const chatbot = yield* newChatbot;
  const store = yield* TurnStore;
  const under = yield* StoreUnderTest;
  const turnsOf = (isSecond: boolean) => (isSecond ? under.second.turns : store);
  const lines = (yield* createAll(chatbot, [{}, {}])).map(({ id }): Line => ({
    chat: id,
    turn: null,
    holder: false,
    end: -1_000_000,
    places: [],
  }));
  let now = 0;
  const go = (millis: number) => {
    now += millis;
    return pass(millis);
  };
  for (const command of commands) {
    if (command._tag === "Pass") {
      yield* go(command.millis);
      continue;
    }
    const line = lines[command.other ? 1 : 0]!;
    const since = now - line.end;
    // Never so near the end of the time that it depends on how long the calls took.
    if (since > -turnLease / 4 && since <= 0 && line.turn !== null) yield* go(1 - since);
    if (since > turnPrecedence / 2 && since <= turnPrecedence)
      yield* go(turnPrecedence + 1 - since);
    const isLate = now - line.end > turnPrecedence;
    const isHeld = line.turn !== null && now < line.end;
    if (command._tag === "End") {
      if (line.turn === null || !isHeld) continue;
      const turns = turnsOf(line.holder);
      yield* command.append ? turns.append(line.turn, entry("q")) : turns.release(line.turn);
      line.turn = null;
      line.end = now;
      continue;
    }
    const me = command.second;
    if (command._tag === "Leave") {
      yield* turnsOf(me).leave(chatbot, line.chat);
      line.places = line.places.filter((one) => one !== me);
      continue;
    }
    const taken = yield* turnsOf(me).take(chatbot, line.chat, null);
    const [first = me] = line.places;
    const waits = isHeld || (first !== me && !isLate);
    yield* same(
      `what ${me ? "the second" : "the first"} gets`,
      taken._tag,
      waits ? "Held" : "Turn",
    );
    if (taken._tag !== "Turn") {
      if (!line.places.includes(me)) line.places = [...line.places, me];
      // Nobody comes at the same moment.
      yield* go(1);
      continue;
    }
    line.turn = taken.turn;
    line.holder = me;
    line.end = now + turnLease;
    const behind = line.places.filter((one) => one !== me);
    line.places = isLate ? [] : behind;
    // Whether another that was behind and did not come in time either still has its place is open.
    if (isLate && behind.length > 0) yield* turnsOf(!me).leave(chatbot, line.chat);
  }
});

export const lineChecks: ReadonlyArray<Check<ChatStore | TurnStore | StoreUnderTest>> = [
  check("two instances stand in the lines of two chats as in plain arrays", () =>
    Effect.andThen(bothTurns, agrees(LineCommand, followsLine, { runs: 40 })),
  ),
];
