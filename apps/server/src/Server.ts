/**
 * The server: a store, an answerer, the core and the listeners, wired by the settings.
 */
import * as NodeServices from "@effect/platform-node/NodeServices";
import { Access, ChatbotRegistry, layerRetention } from "@parley/core";
import { layerRedaction, makeApp } from "@parley/http";
import { makeDocumentation } from "@parley/http/docs";
import { makePlayground } from "@parley/http/playground";
import { Console, Duration, Effect, Layer, Option, Redacted, type Scope, Stream } from "effect";
import { SecureRandom } from "effect/crypto";
import type { HttpServerRequest, HttpServerResponse } from "effect/http";
import { listen } from "./http/Listener.ts";
import { makeManagement } from "./http/Management.ts";
import { layerAsking } from "./layers/Asking.ts";
import { layerDigest } from "./layers/Digest.ts";
import { Documents, layerDocuments, reloadOnSighup } from "./layers/Documents.ts";
import { layerStore } from "./layers/Store.ts";
import { firstStart } from "./provision/FirstStart.ts";
import { provision } from "./provision/Provision.ts";
import { readSettings, Settings } from "./Settings.ts";
import { hasTerminal } from "./StopSignals.ts";

/** Logs settings that do nothing, and settings of chatbots that this server cannot follow. */
const startupChecks = Effect.gen(function* () {
  const { warnings } = yield* readSettings(process.env);
  for (const warning of warnings) yield* Effect.logWarning(warning);

  const registered = yield* ChatbotRegistry.use(({ list }) => list);
  const chatbots = registered.map(({ chatbot }) => chatbot);
  const documents = yield* Documents;
  for (const name of new Set(chatbots.map(({ settings }) => settings.knowledge))) {
    // A mistake in the settings of one chatbot must not keep the others from answering.
    yield* Effect.catch(documents.named(name), ({ message }) => Effect.logError(message));
  }
  const withModel = chatbots.filter(({ settings }) => settings.model !== null);
  if (withModel.length > 0 && (yield* Settings).llms.length === 0) {
    const ids = withModel.map(({ id }) => id).join(", ");
    yield* Effect.logWarning(
      `PARLEY_LLM_BASE_URL is not set: chatbots that name a model answer with passages of documents alone: ${ids}`,
    );
  }
});

/** Listens until the scope closes. The store is ready before the first connection is accepted. */
const listeners = Effect.gen(function* () {
  const settings = yield* Settings;
  const { askPort, basePaths, corsOrigins, host, managementPort, onDisconnect, port } = settings;
  if (settings.provision !== null) {
    yield* provision(settings.provision, process.env, "provisioning");
  }
  yield* startupChecks;

  // An ask whose turn begins now may take its whole deadline.
  const grace = Duration.sum(settings.asks.deadline, Duration.seconds(5));
  const listenTo = Effect.fnUntraced(function* (
    port: number,
    app: Effect.Effect<
      HttpServerResponse.HttpServerResponse,
      never,
      HttpServerRequest.HttpServerRequest | Scope.Scope
    >,
  ) {
    const bound = yield* listen(app, { host, port, grace });
    return `http://${host.includes(":") ? `[${host}]` : host}:${bound}`;
  });
  const documentation = settings.docs ? [makeDocumentation] : [];
  const interfaces = (serves: ReadonlyArray<"general" | "answers">, pages = documentation) =>
    makeApp({ basePaths, corsOrigins, onDisconnect, pages, serves });

  if (managementPort !== 0) yield* listenTo(managementPort, yield* makeManagement);
  const askListener =
    askPort === null ? null : yield* listenTo(askPort, yield* interfaces(["answers"]));
  // The page must know the port that the answers interface got.
  const answersPort = askListener === null ? null : Number(new URL(askListener).port || 80);
  const playground = settings.playground ? [makePlayground({ answersPort })] : [];
  const origin = yield* listenTo(
    port,
    yield* interfaces(askListener === null ? ["general", "answers"] : ["general"], [
      ...playground,
      ...documentation,
    ]),
  );
  const askOrigin = askListener ?? origin;
  // After listening: nobody would see the key of a start that fails.
  const firstKey = settings.provision === null ? yield* firstStart : Option.none();
  yield* Console.log(
    `General interface  ${origin}${basePaths.general}\n` +
      `Answers interface  ${askOrigin}${basePaths.answers}/` +
      (settings.docs ? `\nDocumentation      ${origin}/docs` : ""),
  );
  if (Option.isSome(firstKey)) {
    const key = Redacted.value(firstKey.value);
    yield* Console.log(
      `\nAPI key (shown only now)  ${key}\n\nTry it:\n` +
        `  curl -s ${askOrigin}${basePaths.answers}/ -H 'x-api-key: ${key}' \\\n` +
        `    -H 'content-type: application/json' -d '{"query":"How do I change the port?"}'`,
    );
  }
});

/** The whole server; it runs as long as its scope is open. */
export const layerServer = Layer.merge(Layer.effectDiscard(listeners), layerRetention).pipe(
  Layer.provide(Access.layer),
  Layer.provide(layerAsking),
  // At the same time: a database takes a while to start.
  Layer.provide([layerStore, layerDocuments(hasTerminal ? Stream.empty : reloadOnSighup)]),
  Layer.provide([layerDigest, SecureRandom.layerWebCrypto, NodeServices.layer, layerRedaction]),
  Layer.provide(Settings.layer),
);
