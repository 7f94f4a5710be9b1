/**
 * Exposes the services of the core as promises and async iterables.
 */
import { Context, Duration, Effect, Layer, Logger, Metric, Schema, Struct } from "effect";
import { ChatbotSettings, LongText, Name } from "../model/Chatbot.ts";
import { optionsOf } from "../model/Options.ts";
import { makeCheck } from "../model/SchemaErrors.ts";
import { Moderator } from "../ports/Moderator.ts";
import { Access } from "../services/access/Access.ts";
import { Administration } from "../services/Administration.ts";
import { AskLimits } from "../services/asking/AskLimits.ts";
import { BackgroundSleep, unreferencedSleep } from "../services/BackgroundSleep.ts";
import { layerParley } from "../services/Parley.ts";
import { eraseExpired, layerErasure } from "../services/Retention.ts";
import { EntryEvents } from "../services/asking/EntryEvents.ts";
import { placeOf } from "../model/Errors.ts";
import { makeBots } from "./Bot.ts";
import { makeCalls } from "./Calls.ts";
import type * as api from "./Interface.ts";

/**
 * Opens the store. Rejects with the underlying error if the store, answerer or moderator cannot be used, and with
 * `ArgumentInvalid` if an option is invalid. Close the result before the process exits.
 */
export const openParley: (options: api.ParleyOptions) => Promise<api.Parley> = async (options) => {
  const wholeOptions = {
    actor: "openParley",
    answerMillis: Duration.toMillis(AskLimits.defaultValue().deadline),
    log: console.error,
    moderator: Moderator.layerOff,
    questionLength: AskLimits.defaultValue().questionLength,
    ...optionsOf("openParley", options, optionNames),
  };
  await Effect.runPromise(checkOptions(wholeOptions));
  const { actor, answerMillis, log, onEntry, onError, questionLength, ...wiring } = wholeOptions;
  const loggers = log === false ? [] : [Logger.map(Logger.formatLogFmt, (line) => log(line))];
  const deadline = Duration.millis(answerMillis);
  const limits = { ...AskLimits.defaultValue(), deadline, questionLength };
  const layer = layerErasure.pipe(
    Layer.provideMerge(layerParley(wiring)),
    Layer.provideMerge(Logger.layer(loggers)),
    // In a shared registry, the gauges of two instances would overwrite each other.
    Layer.provideMerge(Layer.succeed(Metric.MetricRegistry, new Map())),
    Layer.provideMerge(Layer.succeed(AskLimits, limits)),
    // A program that never calls `close` still exits by itself.
    Layer.provideMerge(Layer.succeed(BackgroundSleep, unreferencedSleep)),
  );
  const { close, context, iterate, run } = await makeCalls(layer, answerMillis + 5_000);
  const administration = Context.get(context, Administration);
  const events = Context.get(context, EntryEvents);
  /** Calls a function of the program, and logs what it throws. */
  const call = (name: string, f: () => unknown) =>
    Effect.runForkWith(context)(
      Effect.tryPromise(async () => f()).pipe(
        Effect.catch(({ cause }) => Effect.logError(`${name} failed: ${placeOf(cause)}`)),
      ),
    );
  if (onEntry !== undefined)
    events.subscribe("entry", (stored) => call("onEntry", () => onEntry(stored)));
  if (onError !== undefined)
    events.subscribe("failure", (error) => call("onError", () => onError(error)));
  const bind = makeBots(context, { iterate, run }, actor);

  const findOrCreate = Effect.fnUntraced(function* (declaration: api.ChatbotDeclaration) {
    yield* checkDeclaration(declaration);
    const { description, name, workspace: workspaceName, ...settings } = declaration;
    const change = { ...(description !== undefined && { description }), settings };
    const find = Effect.map(administration.chatbots, (all) =>
      all.find(({ chatbot }) => chatbot.name === name && chatbot.workspaceName === workspaceName),
    );
    const createOrChange = Effect.gen(function* () {
      const existing = yield* find;
      return existing === undefined
        ? yield* administration.createChatbot({ ...change, name, workspaceName }, actor)
        : yield* administration.changeChatbot(existing.chatbot.id, change, actor);
    });
    return yield* Effect.retry(createOrChange, {
      // Another call or process created or deleted the chatbot in the meantime.
      while: ({ _tag }) => _tag === "ChatbotTaken" || _tag === "ChatbotNotFound",
      times: 3,
    });
  });

  return {
    chatbot: async (declaration) =>
      bind(await run(findOrCreate(optionsOf("chatbot", declaration, declarationOptions)))),
    authenticate: async (text) => {
      const access = Context.get(context, Access);
      const principal = await run(access.authenticate(text));
      return { bot: bind(principal.chatbot, principal), scopes: principal.scopes };
    },
    eraseExpired: () => run(eraseExpired),
    close,
    [Symbol.asyncDispose]: close,
    layer: Layer.succeedContext(context),
  };
};

const aFunction = Schema.declare(
  (value): value is (...values: ReadonlyArray<any>) => unknown => typeof value === "function",
  { expected: "a function" },
);

const functionOrLayer = Schema.declare(
  (value): value is Function | Layer.Any => typeof value === "function" || Layer.isLayer(value),
  { expected: "a function or a layer" },
);

const checkOptions = makeCheck(
  Schema.Struct({
    store: Schema.declare((value): value is Layer.Any => Layer.isLayer(value), {
      expected: "a store, such as memory() or postgres(url)",
    }),
    answerer: functionOrLayer,
    moderator: functionOrLayer,
    actor: Name,
    log: Schema.declare(
      (log): log is NonNullable<api.ParleyOptions["log"]> =>
        log === false || typeof log === "function",
      {
        expected: "a function or false",
      },
    ),
    answerMillis: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 3_600_000 })),
    questionLength: Schema.Int.check(Schema.isBetween({ minimum: 200, maximum: 20_000 })),
    onEntry: Schema.optionalKey(aFunction),
    onError: Schema.optionalKey(aFunction),
  }),
);

const optionNames = {
  store: true,
  answerer: true,
  moderator: false,
  log: false,
  actor: false,
  answerMillis: false,
  questionLength: false,
  onEntry: false,
  onError: false,
} as const;

const declarationOptions = {
  workspace: true,
  name: true,
  description: false,
  ...(Object.fromEntries(Object.keys(ChatbotSettings.fields).map((name) => [name, false])) as {
    readonly [Name in keyof ChatbotSettings]: false;
  }),
} as const;

const checkDeclaration = makeCheck(
  Schema.Struct({
    workspace: Name,
    name: Name,
    description: Schema.optionalKey(LongText),
    ...ChatbotSettings.mapFields(Struct.map(Schema.optionalKey)).fields,
  }),
);
