/**
 * What a store over memory alone has no need of: a line of the instances that wait for a chat's turn.
 */
import type { Taken } from "@parley/core";
import { Effect } from "effect";
import { atPresent, type Memory } from "../../src/Memory.ts";
import { isHeld, knownRequest } from "../../src/Tenant.ts";
import { shared, withTurns, type Stores } from "./Faults.ts";

interface Line {
  waiting: Array<object>;
  /** When each of them asked last. */
  readonly asked: Map<object, number>;
  endedAt: number;
}
const lines = shared(() => new Map<string, Line>());

/**
 * The same stores, whose instances wait for each other in turn. What can be wrong with it: who does not come in time
 * keeps its place, who asks again goes to the end, who does not ask every two seconds loses its place, or who leaves
 * one chat's line leaves all of them.
 */
export const inLine = (
  stores: Stores,
  memory: Memory,
  wrong?: "keeps late" | "goes back" | "must ask" | "leaves all",
): Stores => {
  const { turns } = stores;
  const me = {};
  const lineOf = (chatbot: number, chat: number): Line => {
    const name = `${chatbot}/${chat}`;
    let line = lines(memory).get(name);
    if (line === undefined) {
      lines(memory).set(name, (line = { waiting: [], asked: new Map(), endedAt: -Infinity }));
    }
    return line;
  };
  const leave = (line: Line) => {
    line.waiting = line.waiting.filter((one) => one !== me);
  };
  const wait = (line: Line, now: number) => {
    if (wrong === "goes back") leave(line);
    if (!line.waiting.includes(me)) line.waiting.push(me);
    line.asked.set(me, now);
  };
  /** Notes when a turn ends. */
  const ending = <A, E>(
    { chat, chatbot, id }: { readonly chat: number | null; chatbot: number; id: string },
    end: Effect.Effect<A, E>,
  ): Effect.Effect<A, E> =>
    atPresent<A, E>((now) => {
      const stored = chat === null ? undefined : memory.tenant(chatbot).byId.get(chat);
      const held = stored?.turn?.turn === id;
      return Effect.tap(end, () =>
        Effect.sync(() => {
          if (held && stored.turn === null) lineOf(chatbot, stored.id).endedAt = now;
        }),
      );
    });

  return withTurns(stores, {
    take: (chatbot, chat, retryKey) =>
      atPresent((now) => {
        const tenant = memory.tenant(chatbot);
        const stored = chat === null ? undefined : tenant.byId.get(chat);
        if (stored === undefined) return turns.take(chatbot, chat, retryKey);
        const known = retryKey === null ? undefined : knownRequest(tenant, retryKey.key, now);
        if (
          known !== undefined &&
          (known.fingerprint !== retryKey!.fingerprint ||
            known.entry !== null ||
            isHeld(known.holder, now))
        ) {
          return turns.take(chatbot, chat, retryKey);
        }
        const line = lineOf(chatbot, stored.id);
        const ended = stored.turn?.until ?? line.endedAt;
        if (wrong === "must ask") {
          line.waiting = line.waiting.filter((one) => now - line.asked.get(one)! <= 2000);
        }
        if (!isHeld(stored.turn, now)) {
          const isLate = now - ended > 2000;
          if (isLate && wrong !== "keeps late") line.waiting = [];
          const [first] = line.waiting;
          if (!isLate && first !== undefined && first !== me) {
            wait(line, now);
            const forMillis = Math.max(1, ended + 2000 - now);
            return Effect.succeed<Taken>({ _tag: "Held", forMillis, by: "chat" });
          }
        }
        return Effect.tap(turns.take(chatbot, chat, retryKey), (taken) =>
          Effect.sync(() => {
            if (taken._tag === "Turn") leave(line);
            else if (taken._tag === "Held" && taken.by === "chat") wait(line, now);
          }),
        );
      }),
    append: (turn, entry) => ending(turn, turns.append(turn, entry)),
    release: (turn) => ending(turn, turns.release(turn)),
    leave: (chatbot, chat) =>
      Effect.sync(() => {
        if (wrong === "leaves all") lines(memory).forEach(leave);
        else leave(lineOf(chatbot, chat));
      }),
  });
};
