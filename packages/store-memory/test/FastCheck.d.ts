/** The model's commands, drawn and shrunk by fast-check. */
import { type ModelServices } from "@parley/core/testing";
import { Effect } from "effect";
import fc from "fast-check";
/** The shortest sequence found over which the store and plain arrays disagree; `null` when there is none. */
export declare const disagreement: (
  options: Pick<fc.Parameters<void>, "numRuns" | "seed">,
) => Effect.Effect<
  | (
      | {
          readonly _tag: "Create";
          readonly second: boolean;
          readonly name: "" | "%" | "B" | "a" | "a_" | "ab" | "b" | "Äb" | "￮" | "😀" | null;
          readonly userRef: "" | "%" | "B" | "a" | "a_" | "ab" | "b" | "Äb" | "￮" | "😀" | null;
          readonly hello: "" | "%" | "B" | "a" | "a_" | "ab" | "b" | "Äb" | "￮" | "😀" | null;
        }
      | {
          readonly _tag: "CreateWithKey";
          readonly second: boolean;
          readonly name: "" | "%" | "B" | "a" | "a_" | "ab" | "b" | "Äb" | "￮" | "😀" | null;
          readonly key: number;
        }
      | {
          readonly _tag: "Ask";
          readonly second: boolean;
          readonly chat: number | null;
          readonly question: "" | "%" | "B" | "a" | "a_" | "ab" | "b" | "Äb" | "￮" | "😀" | null;
        }
      | {
          readonly order: readonly {
            readonly field: number;
            readonly descending: boolean;
          }[];
          readonly limit: number;
          readonly page: number;
          readonly id: number | null;
          readonly _tag: "List";
          readonly second: boolean;
          readonly search: "" | "%" | "B" | "a" | "a_" | "ab" | "b" | "Äb" | "￮" | "😀" | null;
          readonly userRef: "" | "%" | "B" | "a" | "a_" | "ab" | "b" | "Äb" | "￮" | "😀" | null;
        }
      | {
          readonly order: readonly {
            readonly field: number;
            readonly descending: boolean;
          }[];
          readonly limit: number;
          readonly page: number;
          readonly id: number | null;
          readonly _tag: "History";
          readonly second: boolean;
          readonly chat: number;
        }
      | {
          readonly _tag: "Erase";
          readonly second: boolean;
          readonly which: "chat" | "idle" | "userRef";
          readonly chat: number;
        }
      | {
          readonly _tag: "Move";
        }
      | {
          readonly _tag: "Pass";
        }
    )[]
  | null,
  never,
  ModelServices
>;
//# sourceMappingURL=FastCheck.d.ts.map
