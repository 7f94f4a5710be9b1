/**
 * Telemetry for operators: log lines about failures, spans, and metrics for asks and keys. None of them quotes user
 * text, except perhaps in the stack trace of a defect. Metric names follow OpenTelemetry; the attribute `unit` of a
 * metric is its unit.
 */
import { Cause, Clock, Context, Effect, Exit, Metric, Option, Tracer } from "effect";
import type { Entry, Usage } from "../model/Entry.ts";
import { AnswerUnavailable, Overloaded, StorageUnavailable } from "../model/Errors.ts";
import type { AskedModel } from "./asking/AskLimits.ts";

/**
 * Returns the reason for a failure, without user text or keys; `null` for a client's mistake. Other properties of an
 * error may quote rows.
 */
const reasonOf = (error: unknown): string | null => {
  if (error instanceof AnswerUnavailable) return error.reason;
  if (error instanceof StorageUnavailable || error instanceof Overloaded) return error.message;
  return null;
};

const tagOf = (error: unknown): string =>
  (error as { readonly _tag?: string })._tag ?? "the request is not valid";

/** The errors that an ask's own log line has reported, so that the request that gets them does not. */
const loggedErrors = new WeakSet<object>();
const wasLogged = (error: unknown): boolean =>
  typeof error === "object" && error !== null && loggedErrors.delete(error);

/**
 * Logs each reason for a failure on a separate line: a defect, a failed answer, a failed store or an overloaded server.
 * Mistakes made by clients are not logged.
 */
export const logFailure = Effect.fnUntraced(function* (cause: Cause.Cause<unknown>) {
  for (const reason of cause.reasons) {
    if (wasLogged(Cause.isFailReason(reason) ? reason.error : Cause.squash(cause))) continue;
    if (Cause.isDieReason(reason)) {
      yield* Effect.logError(
        "Unexpected error in a request",
        Cause.pretty(Cause.die(reason.defect)),
      );
    } else if (Cause.isFailReason(reason)) {
      const text = reasonOf(reason.error);
      if (text === null) continue;
      yield* Effect.annotateLogs(Effect.logWarning(tagOf(reason.error)), "reason", text);
    }
  }
});

/** Whether each ask gets a log line; otherwise, only those that fail or are slow do. */
export const LogAsks = Context.Reference("@parley/core/LogAsks", { defaultValue: () => false });

/** An ask that takes longer gets a log line, in milliseconds. */
const slowAsk = 5_000;

/** Logs an ask in one line, unless it was refused, or nobody needs the line. */
export const logAsk = Effect.fnUntraced(function* (
  exit: Exit.Exit<unknown, unknown>,
  fields: Readonly<Record<string, unknown>> & { readonly ms: number },
) {
  if (Exit.isSuccess(exit)) {
    if ((yield* LogAsks) || fields.ms > slowAsk)
      yield* Effect.annotateLogs(Effect.logInfo("Ask"), fields);
    return;
  }
  const { cause } = exit;
  const error = Cause.squash(cause);
  if (Cause.hasInterruptsOnly(cause) || error instanceof Overloaded) return;
  // An answerer may fail with the same object each time.
  wasLogged(error);
  yield* Effect.annotateLogs(logFailure(cause), fields);
  if (typeof error === "object" && error !== null) loggedErrors.add(error);
});

/** Whether a tracer exports spans. */
export const isTraced: Effect.Effect<boolean> = Effect.map(
  Tracer.Tracer,
  (tracer) => tracer !== Tracer.nativeTracer,
);

/** Ends a span with only the reason for a failure, because exporters would send an error together with its causes. */
export const endSpan = (
  span: Tracer.Span,
  exit: Exit.Exit<unknown, unknown>,
): Effect.Effect<void> =>
  Effect.map(Clock.currentTimeNanos, (now) => {
    if (Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)) return span.end(now, exit);
    const reason = Option.match(Cause.findErrorOption(exit.cause), {
      onNone: () => "Unexpected error in a request",
      onSome: (error) => reasonOf(error) ?? tagOf(error),
    });
    span.end(now, Exit.fail(reason));
  });

/** Runs the effect in a span with this name, or without a span if there is no tracer. */
export const inSpan = <A, E>(
  effect: Effect.Effect<A, E>,
  name: string,
  attributes: Readonly<Record<string, unknown>> = {},
  kind: Tracer.SpanKind = "internal",
): Effect.Effect<A, E> =>
  Effect.flatMap(isTraced, (hasTracer) =>
    hasTracer
      ? Effect.acquireUseRelease(
          Effect.makeSpan(name, { attributes, kind }),
          (span) => Effect.withParentSpan(effect, span),
          endSpan,
        )
      : effect,
  );

/**
 * Names an operation of a service or an adapter. With a tracer, each call is a span, as `inSpan` makes it. `Effect.fn`
 * would export the cause of a failure, which may quote a user, and takes 11 us a call even without a tracer.
 */
export const operation =
  (name: string) =>
  <Arguments extends ReadonlyArray<any>, A, E, R>(
    call: (...values: Arguments) => Effect.Effect<A, E, R>,
  ) =>
  (...values: Arguments): Effect.Effect<A, E, R> =>
    inSpan(call(...values) as Effect.Effect<A, E>, name);

/** Registers a gauge whose value is computed only when the metrics are read. */
export const registerGauge = (
  context: Context.Context<never>,
  name: string,
  description: string,
  attributes: Readonly<Record<string, string>>,
  read: () => number,
) =>
  Metric.registerUnsafe(Metric.gauge(name, { description, attributes }), context, {
    get: () => ({ value: read() }),
    update: () => {},
    modify: () => {},
  });

/**
 * Makes metrics for a label that has thousands of values, such as a key's id: the `size` busiest values have their own
 * series, and all others share the label `other`. Returns a function that updates one of a value's metrics, selected by
 * its index in the result of `describe`.
 *
 * No series decreases: when a value gets a label, its earlier events stay in `other`. A value with twice as many events
 * as the least busy labelled value replaces it, and the replaced value stays in `other` for good.
 */
export const makeTopLabels = (
  context: Context.Context<never>,
  describe: (label: string) => ReadonlyArray<Metric.Metric<number, unknown>>,
  size = 50,
) => {
  const events = new Map<string, number>();
  const others = describe("other");
  const metricsByLabel = new Map<string, typeof others>();
  const replace = (value: string, count: number) => {
    const least = [...metricsByLabel.keys()].reduce((a, b) =>
      events.get(b)! < events.get(a)! ? b : a,
    );
    if (count < 2 * events.get(least)!) return;
    for (const metric of metricsByLabel.get(least)!) Metric.removeUnsafe(metric, context);
    metricsByLabel.delete(least);
    events.set(least, -Infinity);
    metricsByLabel.set(value, describe(value));
  };
  return (value: string, index: number, amount: number): void => {
    const count = (events.get(value) ?? 0) + 1;
    events.set(value, count);
    if (!metricsByLabel.has(value)) {
      if (metricsByLabel.size < size) metricsByLabel.set(value, describe(value));
      else replace(value, count);
    }
    (metricsByLabel.get(value) ?? others)[index]!.updateUnsafe(amount, context);
  };
};

export const makeKeyRequests = Effect.map(Effect.context<never>(), (context) =>
  makeTopLabels(context, (key) => [
    Metric.counter("parley.requests", {
      description: "Requests with a valid key or visitor token, by key id",
      attributes: { key },
      incremental: true,
    }),
  ]),
);

/** The maximum number of keys with a series for their budget. Later keys get none. */
const budgetSeries = 1000;

/**
 * Returns a function that records the share of its daily budget that a key has spent, and how many milliseconds remain
 * of the day. When the day ends, the share becomes 0, even without another ask.
 */
export const makeBudgetGauges = Effect.map(Effect.context<never>(), (context) => {
  const clock = Context.get(context, Clock.Clock);
  const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6;
  const shares = new Map<string, { readonly share: number; readonly until: number }>();
  return (key: string, share: number, endsInMillis: number): void => {
    const isNew = !shares.has(key);
    if (isNew && shares.size >= budgetSeries) return;
    shares.set(key, { share, until: now() + endsInMillis });
    const description = "Share of a key's daily budget spent as of its last ask today, by key id";
    if (isNew)
      registerGauge(context, "parley.key.budget.used", description, { key }, () => {
        const { share, until } = shares.get(key)!;
        return now() < until ? share : 0;
      });
  };
});

/** Makes a histogram of times in seconds. */
export const secondsHistogram = (
  name: string,
  description: string,
  boundaries: ReadonlyArray<number>,
  attributes: Readonly<Record<string, string>> = {},
) => Metric.histogram(name, { description, boundaries, attributes: { ...attributes, unit: "s" } });

const boundaries = [
  0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 120,
];
const waitingAsks = Metric.gauge("parley.asks.waiting", {
  description: "Asks waiting for their chat's turn",
});
const runningAsks = Metric.gauge("parley.asks.running", {
  description: "Asks being answered",
});
const waitTime = secondsHistogram(
  "parley.ask.wait.duration",
  "How long an ask waits for its turn",
  boundaries,
);
const firstDeltaTime = secondsHistogram(
  "parley.ask.first_delta.duration",
  "Time from the start of an ask's turn to the first delta of its answer",
  boundaries,
);
const answerTimes = (model: string) =>
  ["stored", "failed"].map((outcome) =>
    secondsHistogram(
      "parley.ask.answer.duration",
      "Time from the start of an ask's turn until its answer is stored or the ask fails",
      boundaries,
      { model, outcome },
    ),
  );
const chatbotTokens = (chatbot: string) =>
  ["input", "output"].map((direction) =>
    Metric.counter("parley.chatbot.tokens", {
      description: "Tokens used by stored answers, as reported by the providers",
      attributes: { chatbot, direction },
      incremental: true,
    }),
  );

/** Counts ratings that users have given. */
export const countRating = (rating: string, count = 1): Effect.Effect<void> =>
  Metric.update(
    Metric.counter("parley.ratings", {
      description: "Ratings that users have given to entries",
      attributes: { rating },
      incremental: true,
    }),
    count,
  );

/**
 * Returns a function to call when an ask starts waiting for its turn. That function starts timing the ask, and returns
 * functions that record what happens to it.
 */
export const makeAskTimes = Effect.map(Effect.context<never>(), (context) => {
  const clock = Context.get(context, Clock.Clock);
  const now = () => clock.currentTimeMillisUnsafe() / 1000;
  // A metric does not appear until it has a value.
  for (const gauge of [waitingAsks, runningAsks]) gauge.modifyUnsafe(0, context);
  const timeAnswer = makeTopLabels(context, answerTimes);
  const countTokens = makeTopLabels(context, chatbotTokens);
  return (chatbot: number) => {
    const startedAt = now();
    let since = startedAt;
    const fields: Record<string, unknown> = {};
    const millisSince = (time: number) => Math.round((now() - time) * 1000);
    let state = waitingAsks;
    let isSilent = true;
    waitingAsks.modifyUnsafe(1, context);
    return {
      onTurn: () => {
        waitingAsks.modifyUnsafe(-1, context);
        state = runningAsks;
        runningAsks.modifyUnsafe(1, context);
        waitTime.updateUnsafe(now() - since, context);
        fields["waitMs"] = millisSince(since);
        since = now();
      },
      onDelta: () => {
        if (!isSilent) return;
        firstDeltaTime.updateUnsafe(now() - since, context);
        fields["firstDeltaMs"] = millisSince(since);
        isSilent = false;
      },
      onStored: (
        usage: Usage | null,
        { chatId: chat, id: entry }: Pick<Entry, "chatId" | "id">,
      ) => {
        Object.assign(fields, { chat, entry });
        timeAnswer(usage?.model ?? "none", 0, now() - since);
        if (usage === null) return;
        const { attempts, completionTokens, model, promptTokens } = usage;
        Object.assign(fields, { model, attempts, tokens: promptTokens + completionTokens });
        countTokens(String(chatbot), 0, usage.promptTokens);
        countTokens(String(chatbot), 1, usage.completionTokens);
      },
      onFailure: ({ attempts, model, tokens }: typeof AskedModel.Service) => {
        timeAnswer(model ?? "none", 1, now() - since);
        if (model !== null) Object.assign(fields, { model, attempts, tokens });
      },
      /** Ends the measurement, and returns the fields of the ask's log line. */
      onEnd: () => {
        state.modifyUnsafe(-1, context);
        return { ...fields, ms: millisSince(startedAt) };
      },
    };
  };
});

export type AskTimes = ReturnType<Effect.Success<typeof makeAskTimes>>;
