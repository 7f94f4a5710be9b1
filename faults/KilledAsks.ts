/**
 * A program that asks, and is killed or stopped at a named moment: before, while or after a port is
 * called. The ports are wrapped here; the product knows nothing of it. Of several asks each waits at
 * that moment for the last one to get there.
 *
 * It is told what to do in its environment, writes which ask makes which call to its output, the ports of
 * its connections, and, if it was not killed, how each ask ended.
 */
import {
  Answerer,
  Asking,
  AskLimits,
  Moderator,
  TurnStore,
  AnswerUnavailable,
  type AnswerPart,
  type Ask,
  type Chatbot,
  type RetryKey,
} from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Cause, Deferred, Duration, Effect, Exit, Layer, Redacted, Stream } from "effect";
import { Digest } from "effect/crypto";
import { subscribe } from "node:diagnostics_channel";
import { writeSync } from "node:fs";
import type { Socket } from "node:net";

export interface Moment {
  readonly call: string;
  readonly side: "before" | "during" | "after";
  /** How far `during` is into the call, in milliseconds. */
  readonly millis: number;
  /** SIGSTOP: the asks go on with SIGCONT. */
  readonly signal: "SIGKILL" | "SIGSTOP";
}

export interface AskToKill {
  /** `null` for a new chat. */
  readonly chatId: number | null;
  readonly question: string;
  /** The question itself, or none; at most one ask has neither key nor chat. */
  readonly key: string | null;
  /**
   * What the question meets: an answer, a moderator that flags it, a model that fails for good, or a chat
   * whose turn another holds for longer than an ask has patience.
   */
  readonly fate: "answered" | "flagged" | "failed" | "crowded";
}

export interface KilledAsks {
  readonly url: string;
  readonly chatbot: Chatbot;
  readonly asks: ReadonlyArray<AskToKill>;
  /** `null`: it is not killed. */
  readonly moment: Moment | null;
  /** The answer, in its two pieces. */
  readonly pieces: readonly [string, string];
}

const { asks, chatbot, moment, pieces, url } = JSON.parse(
  process.env["KILLED_ASKS"]!,
) as KilledAsks;

// What was sent before the end is still carried out: the test waits for the end of these connections.
subscribe("net.client.socket", (message) => {
  const { socket } = message as { readonly socket: Socket };
  socket.once("connect", () => writeSync(1, `port ${socket.localPort}\n`));
});

const strike = () => process.kill(process.pid, moment!.signal);

let absent = asks.length;
const complete = Deferred.makeUnsafe<void>();

/** Waits for the other asks, and then for the signal. */
const meet = Effect.suspend(() => {
  if (--absent > 0) return Deferred.await(complete);
  if (moment!.side === "during") {
    const end = performance.now() + moment!.millis;
    // Timers are late.
    const wait = () => (performance.now() >= end ? strike() : setImmediate(wait));
    setImmediate(wait);
  } else strike();
  return Deferred.succeed(complete, undefined);
});

const made = new Set<string>();

/** A call that an ask makes; only the first of its name counts. */
const wrapped = <A, E, R>(
  ask: AskToKill,
  call: string,
  effect: Effect.Effect<A, E, R>,
): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    const name = `${asks.indexOf(ask)} ${call}`;
    if (made.has(name)) return effect;
    made.add(name);
    writeSync(1, `${name}\n`);
    if (moment?.call !== call) return effect;
    // It is over when it failed, too.
    return moment.side === "after"
      ? Effect.onExit(effect, () => meet)
      : Effect.andThen(meet, effect);
  });

const asking = (question: string): AskToKill => asks.find((ask) => ask.question === question)!;

const turnOf = (chat: number | null, key: RetryKey | null): AskToKill =>
  asks.find((ask) =>
    key === null ? ask.key === null && ask.chatId === chat : ask.key === key.key,
  )!;

/** Completed by the first renewal, which the model waits for. */
const renewed = new Map(asks.map((ask) => [ask, Deferred.makeUnsafe<void>()]));

const turns = Layer.effect(
  TurnStore,
  Effect.map(TurnStore, (store) =>
    TurnStore.of({
      take: (chatbot, chat, key) =>
        wrapped(turnOf(chat, key), "take", store.take(chatbot, chat, key)),
      earlier: (turn, before) =>
        wrapped(turnOf(turn.chat, turn.retryKey), "earlier", store.earlier(turn, before)),
      renew: (turn) => {
        const ask = turnOf(turn.chat, turn.retryKey);
        return Effect.tap(wrapped(ask, "renew", store.renew(turn)), () =>
          Deferred.succeed(renewed.get(ask)!, undefined),
        );
      },
      append: (turn, entry) =>
        wrapped(turnOf(turn.chat, turn.retryKey), "append", store.append(turn, entry)),
      release: (turn) => wrapped(turnOf(turn.chat, turn.retryKey), "release", store.release(turn)),
      leave: (chatbot, chat) =>
        wrapped(
          asks.find(({ chatId }) => chatId === chat)!,
          "leave",
          store.leave(chatbot, chat),
        ),
      freed: store.freed,
    }),
  ),
);

const usage = {
  provider: "test",
  model: "test",
  promptTokens: 1,
  completionTokens: 1,
  attempts: 1,
  latencyMillis: 1,
};

const answerer = Layer.succeed(
  Answerer,
  Answerer.of({
    answer: (_, earlier, question) => {
      const ask = asking(question);
      const part = (call: string, value: AnswerPart) =>
        Stream.fromEffect(wrapped(ask, call, Effect.succeed(value)));
      const begins = Effect.andThen(Stream.runDrain(earlier), Deferred.await(renewed.get(ask)!));
      const parts =
        ask.fate === "failed"
          ? Stream.fail(new AnswerUnavailable({ reason: "test", passing: false }))
          : Stream.concat(
              part("first piece", { _tag: "Delta", text: pieces[0] }),
              Stream.concat(
                part("last piece", { _tag: "Delta", text: pieces[1] }),
                part("usage", { _tag: "Usage", usage }),
              ),
            );
      return Stream.concat(
        Stream.drain(Stream.fromEffect(wrapped(ask, "answer", begins))),
        parts,
      ).pipe(Stream.ensuring(wrapped(ask, "end of the answer", Effect.void)));
    },
  }),
);

const moderator = Layer.succeed(
  Moderator,
  Moderator.of({
    check: (_, question) => {
      const ask = asking(question);
      const flagged = ask.fate === "flagged";
      return wrapped(
        ask,
        "check",
        Effect.succeed({ category: flagged ? "test" : "none", flagged }),
      );
    },
  }),
);

const layer = Asking.layer.pipe(
  Layer.provide([
    turns.pipe(Layer.provide(layerPostgres({ url: Redacted.make(url) }))),
    answerer,
    moderator,
    Digest.layerWebCrypto,
  ]),
);

const all = Asking.use((service) =>
  Effect.forEach(
    asks,
    ({ chatId, key, question }) =>
      Effect.exit(service.ask(chatbot, { chatId, question, key } as unknown as Ask)),
    { concurrency: "unbounded" },
  ),
).pipe(
  Effect.provide(layer),
  Effect.updateService(AskLimits, (limits) => ({
    ...limits,
    renewal: Duration.millis(20),
    patience: Duration.millis(300),
  })),
);

for (const [at, exit] of (await Effect.runPromise(all)).entries()) {
  const error = Exit.isFailure(exit) ? Cause.squash(exit.cause) : null;
  const why = error instanceof AnswerUnavailable ? `${error._tag}: ${error.reason}` : error;
  writeSync(1, `${at} ended: ${why ?? "stored"}\n`);
}
