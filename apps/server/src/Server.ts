/**
 * The server: a store, an answerer, the core and the listeners, wired together according to the settings.
 */
import { Access, Administration, Asking, keyState, layerRetention } from "@parley/core";
import { ChatbotRegistry } from "@parley/core/ports";
import {
  layerNoRequestSpans,
  makeApp,
  makeRequestTelemetry,
  makeVisitorTokens,
  type AppOptions,
} from "@parley/http";
import { makeDocumentation } from "@parley/pages/docs";
import { makeGuide, type Place } from "@parley/pages/guide";
import { makePlayground } from "@parley/pages/playground";
import { makeWidgetPages, noWelcome } from "@parley/pages/widget";
import { Cause, Duration, Effect, Exit, Layer, Scope, Stream } from "effect";
import { announceStart } from "./Announcement.ts";
import { clientAddressBehind, parseNetworks } from "./http/ClientAddress.ts";
import { listen } from "./http/Listener.ts";
import { RequestQueue } from "./http/RequestQueue.ts";
import { makeManagement } from "./http/Management.ts";
import { layerAsking } from "./layers/AskingLayer.ts";
import {
  Documents,
  layerDocuments,
  ownDocuments,
  ownReadme,
  reloadOnSighup,
} from "./layers/Documents.ts";
import { layerObservability } from "./layers/Observability.ts";
import { layerStore } from "./layers/StoreLayer.ts";
import { Lifecycle } from "./Lifecycle.ts";
import { firstStart, provision } from "./provision/Provision.ts";
import { Settings } from "./Settings.ts";
import { hasTerminal } from "./StopSignals.ts";

/** Logs how many answers a stopping server waits for. */
const reportAnswers = Effect.gen(function* () {
  // Gives `drain` time to refuse the asks that are still waiting for their turn.
  yield* Effect.sleep("100 millis");
  const answers = yield* Asking.use(({ inProgress }) => inProgress);
  if (answers === 0) return;
  yield* Effect.logInfo(
    `Waiting for ${answers} ${answers === 1 ? "answer" : "answers"}; a second signal stops the server immediately`,
  );
});

/**
 * Stops the interfaces. After a SIGTERM they first keep serving for PARLEY_DRAIN_DELAY, so that load balancers notice
 * that the server is no longer ready. Then they accept no more connections, and requests in flight complete.
 */
const stop = Effect.fnUntraced(function* (
  interfaces: Scope.Closeable,
  exit: Exit.Exit<unknown, unknown>,
) {
  const { signal } = yield* Lifecycle;
  const { drainDelay } = yield* Settings;
  if (signal === "SIGTERM" && !Duration.isZero(drainDelay)) {
    yield* Effect.logInfo(
      `Stopping: no longer ready, but still serving for another ${Duration.format(drainDelay)}`,
    );
    yield* Effect.sleep(drainDelay);
  }
  const { drain } = yield* Asking;
  yield* Effect.all([drain, Scope.close(interfaces, exit), reportAnswers], { concurrency: 3 });
});

/** Creates the guide from the pages of this project's documentation. */
const guideOf = Effect.fnUntraced(function* (places: ReadonlyArray<Place>) {
  const { own } = yield* Documents;
  return yield* makeGuide({
    readme: ownReadme,
    folder: ownDocuments,
    search: (question, limit) => Effect.map(own, ({ search }) => search(question, limit)),
    places,
  });
});

/** Suggestions of chatbots that answer from this project's documentation and have none of their own. */
const ownQuestions = [
  "How do I start it?",
  "How do I connect a language model?",
  "How do I put a chat on my website?",
];

/**
 * A function that returns the greeting and the questions that the chatbot's owner suggests. A key or visitor token
 * without the scope `read` gets neither.
 */
const welcomeFor = Effect.gen(function* () {
  const { authenticate } = yield* Access;
  const { knowledgeDir, llms } = yield* Settings;
  const defaults = knowledgeDir === null && llms.length === 0 ? ownQuestions : [];
  const tokens = makeVisitorTokens();
  return (key: string) =>
    Effect.gen(function* () {
      const { chatbot, scopes } = yield* authenticate(key, { tokens });
      const { helloMessage, suggestedQuestions } = chatbot.settings;
      if (!scopes.includes("read")) return noWelcome;
      return {
        greeting: helloMessage,
        questions: suggestedQuestions.length > 0 ? suggestedQuestions : defaults,
        mayDelete: scopes.includes("delete"),
      };
    }).pipe(Effect.orElseSucceed(() => noWelcome));
});

/** Warns that, behind an untrusted proxy, all clients share one limit on tokens for anonymous visitors. */
const warnOfSharedLimit = Effect.gen(function* () {
  const chatbots = yield* ChatbotRegistry.use(({ list }) => list);
  const now = yield* ChatbotRegistry.use((registry) => registry.now);
  const isOpen = chatbots.some(({ keys }) =>
    keys.some((key) => key.anonymous && keyState(key, now.getTime()) === "live"),
  );
  if (isOpen)
    yield* Effect.logWarning(
      "A key's widget gives visitor tokens to anyone, but only a few per minute to each client address. If this server is behind a proxy, set PARLEY_TRUSTED_PROXIES: otherwise all clients share one limit",
    );
});

/** Listens until the scope closes. The store is ready before the first connection is accepted. */
const runListeners = Effect.gen(function* () {
  const settings = yield* Settings;
  const lifecycle = yield* Lifecycle;
  const { askPort, basePaths, corsOrigins, host, logRequests, onDisconnect, port } = settings;
  if (settings.provision !== null) {
    yield* provision(settings.provision, process.env, "provisioning", true);
  }

  // An ask whose turn starts just before the server stops may still run until its deadline.
  const grace = Duration.sum(settings.asks.deadline, Duration.seconds(5));
  const { recordRefusal: onRefusal } = yield* makeRequestTelemetry(logRequests);
  const { turns } = yield* RequestQueue;
  const listenTo = (port: number, app: Parameters<typeof listen>[0], setting: string, at = host) =>
    listen(app, { host: at, port, setting, grace, onRefusal, onDisconnect });
  // The management listener closes last.
  const management =
    settings.management === null
      ? null
      : yield* listenTo(
          settings.management.port,
          yield* makeManagement,
          "PARLEY_MANAGEMENT_PORT",
          settings.management.host,
        );
  const interfaceScope = yield* Effect.acquireRelease(Scope.make("parallel"), stop);
  const startListener = Effect.fnUntraced(function* (
    port: number,
    setting: string,
    options: AppOptions,
  ) {
    const app = yield* makeApp({
      basePaths,
      clientAddress: clientAddressBehind(parseNetworks(settings.trustedProxies)!),
      corsOrigins,
      logRequests,
      onDisconnect,
      turns,
      ...options,
    });
    return yield* Scope.provide(listenTo(port, app, setting), interfaceScope);
  });
  const askListener =
    askPort === null
      ? null
      : yield* startListener(askPort, "PARLEY_ASK_PORT", {
          serves: ["answers"],
          pages: settings.pages ? [makeDocumentation()] : [],
        });
  // The playground and the widget need to know the actual port of the answers interface.
  const answersPort = askListener === null ? null : Number(new URL(askListener).port || 80);
  const places: ReadonlyArray<Place> = ["playground", "guide", "docs"];
  const model = settings.llms.length > 0;
  const quoteSource = settings.knowledgeDir === null ? "guide" : "documents";
  const answerer = model ? "model" : quoteSource;
  const welcome = yield* welcomeFor;
  const pages = settings.pages
    ? [
        makePlayground({ answersPort, answerer, places, welcome }),
        makeDocumentation({ places }),
        yield* guideOf(places),
      ]
    : [];
  const origin = yield* startListener(port, "PARLEY_PORT", {
    serves: askListener === null ? ["general", "answers"] : ["general"],
    pages,
    // Served even with `PARLEY_PAGES=off`: an operator turns the widget on for each key, by giving the key origins.
    widget: makeWidgetPages({ answersPort, basePaths, model, welcome }),
  });
  if (settings.trustedProxies === "") yield* warnOfSharedLimit;
  // Created only once the listeners are running: if the start failed, nobody would see the key.
  const firstKey = settings.provision === null ? yield* firstStart : null;
  yield* announceStart(
    {
      general: `${origin}${basePaths.general}`,
      answers: `${askListener ?? origin}${basePaths.answers}/`,
      pages: settings.pages ? origin : null,
      management,
    },
    firstKey,
  );
  // Last, because a script may wait until the server is ready, and then read the file with the first key.
  if (lifecycle.phase === "starting") lifecycle.phase = "serving";
});

/** Logs the warnings before the store and the listeners start, because an ignored variable may be why they fail. */
const logWarnings = Effect.flatMap(Settings, ({ warnings }) =>
  Effect.forEach(warnings, (warning) => Effect.logWarning(warning), { discard: true }),
);

/** Writes the last log line of a server, unless the start fails: then the error is the last line. */
const logStop = Effect.addFinalizer((exit) =>
  Exit.isFailure(exit) && !Cause.hasInterruptsOnly(exit.cause)
    ? Effect.void
    : Effect.logInfo("Parley has stopped"),
);

/** The whole server, which runs for as long as its scope is open. */
export const layerServer = Layer.merge(Layer.effectDiscard(runListeners), layerRetention).pipe(
  Layer.provide([Access.layer, Administration.layer]),
  // Also provides `Chats`.
  Layer.provide(layerAsking),
  // Built concurrently, because a database takes a while to start.
  Layer.provide([layerStore, layerDocuments(hasTerminal ? Stream.empty : reloadOnSighup)]),
  Layer.provide(layerNoRequestSpans),
  Layer.provide(Layer.effectDiscard(Effect.andThen(logWarnings, logStop))),
  Layer.provide(layerObservability),
  Layer.provide([Settings.layer, Lifecycle.layer]),
);
