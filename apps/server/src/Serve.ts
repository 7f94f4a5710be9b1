/**
 * The server: a store, an answerer, the core and the listeners, wired by the settings.
 */
import * as NodeServices from "@effect/platform-node/NodeServices";
import { Access, Asking, Chats, layerRetention } from "@parley/core";
import { layerRedaction, makeApp } from "@parley/http";
import { Console, Duration, Effect, Layer, Option, Redacted, type Scope } from "effect";
import { SecureRandom } from "effect/crypto";
import type { HttpServerRequest, HttpServerResponse } from "effect/http";
import { layerAnswerer } from "./AnswererOf.ts";
import { ChatbotDocuments } from "./ChatbotDocuments.ts";
import { firstStart } from "./FirstStart.ts";
import { hangups } from "./Hangups.ts";
import { layerLimits } from "./Limits.ts";
import { listen } from "./Listener.ts";
import { lookAhead } from "./LookAhead.ts";
import { makeManagement } from "./Management.ts";
import { layerModerator } from "./ModeratorOf.ts";
import { layerNodeDigest } from "./NodeDigest.ts";
import { provision } from "./provision/Provision.ts";
import { Settings, warnOfUnknown } from "./Settings.ts";
import { layerStore } from "./StoreOf.ts";

/** Listens until the scope closes. The store is ready before the first connection is accepted. */
const listeners = Effect.gen(function* () {
  const settings = yield* Settings;
  yield* warnOfUnknown;
  const { asks, askPort, basePaths, corsOrigins, host, managementPort, onDisconnect, port } =
    settings;
  // Time for an ask whose turn begins now, and for its last words.
  const grace = Duration.sum(asks.deadline, Duration.seconds(5));
  if (settings.provision !== null)
    yield* provision(settings.provision, process.env, "provisioning");
  yield* lookAhead;

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
  const interfaces = (serves: ReadonlyArray<"general" | "answers">) =>
    makeApp({ basePaths, corsOrigins, onDisconnect, serves });

  if (managementPort !== null) yield* listenTo(managementPort, yield* makeManagement);
  const origin = yield* listenTo(
    port,
    yield* interfaces(askPort === null ? ["general", "answers"] : ["general"]),
  );
  const askOrigin =
    askPort === null ? origin : yield* listenTo(askPort, yield* interfaces(["answers"]));
  // After listening: a key that was made for a start that failed, nobody would ever see.
  const firstKey = settings.provision === null ? yield* firstStart : Option.none();
  yield* Console.log(
    `General interface  ${origin}${basePaths.general}\n` +
      `Answers interface  ${askOrigin}${basePaths.answers}/\n` +
      `Documentation      ${origin}/docs`,
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

const core = Layer.mergeAll(Access.layer, Chats.layer, Asking.layer);

/** The whole server; it runs as long as its scope is open. */
export const layerServer = Layer.merge(Layer.effectDiscard(listeners), layerRetention).pipe(
  Layer.provide(core),
  Layer.provide([layerAnswerer, layerModerator]),
  Layer.provide(ChatbotDocuments.layer(hangups)),
  Layer.provide(layerLimits),
  Layer.provide(layerStore),
  Layer.provide([layerNodeDigest, SecureRandom.layerWebCrypto, NodeServices.layer, layerRedaction]),
  Layer.provide(Settings.layer),
);
