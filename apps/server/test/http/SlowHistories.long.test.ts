/**
 * A key whose clients hardly read the long histories that they ask for.
 */
import { expect, it } from "@effect/vitest";
import { defaultSettings, generateKey, keyRecord, layerParley } from "@parley/core";
import { Answerer, ChatbotRegistry, ChatStore, TurnStore } from "@parley/core/ports";
import { makeApp } from "@parley/http";
import { layerMemory } from "@parley/store-memory";
import { Duration, Effect, Layer, Redacted, Stream } from "effect";
import { SecureRandom } from "effect/crypto";
import { once } from "node:events";
import { connect, Server, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { vi } from "vitest";
import { listen } from "../../src/http/Listener.ts";
import { progressOf } from "../../src/http/NodeInternals.ts";
import { makeRequestQueue, RequestQueue } from "../../src/http/RequestQueue.ts";
import { Lifecycle } from "../../src/Lifecycle.ts";

/** Of a history; more than the system can buffer. */
const size = 14_000_000;
const entries = 100;
const answer = "a".repeat(size / entries);

it.live(
  "of 25 histories that a key's clients read at 64 kB in ten seconds, 14 are in memory until their clients are disconnected, the others are refused, and another key's are answered",
  () =>
    Effect.gen(function* () {
      const keys = yield* Effect.replicateEffect(generateKey, 2);
      const [slowKey, politeKey] = keys.map(Redacted.value);
      const registry = yield* ChatbotRegistry;
      const { id: chatbot } = yield* registry.create(
        {
          workspaceName: "W",
          name: "B",
          description: "",
          settings: defaultSettings,
          keys: yield* Effect.forEach([slowKey!, politeKey!], (key) => keyRecord(key)),
        },
        "test",
      );
      const fields = { name: null, userRef: null, helloMessage: null };
      const { chat } = yield* (yield* ChatStore).createChat(chatbot, fields, null);
      const turns = yield* TurnStore;
      for (let n = 0; n < entries; n++) {
        const result = yield* turns.take(chatbot, chat.id, null);
        const entry = { question: "q", answer, moderation: "none", flagged: false, usage: null };
        if (result._tag === "TurnTaken") yield* turns.append(result.turn, entry);
      }

      const listenSpy = vi.spyOn(Server.prototype, "listen");
      const queue = makeRequestQueue();
      const origin = yield* listen(yield* makeApp({ turns: queue.turns }), {
        host: "127.0.0.1",
        port: 0,
        grace: Duration.seconds(1),
      }).pipe(Effect.provideService(RequestQueue, queue));
      const peers: Array<Socket> = [];
      (listenSpy.mock.contexts[0] as Server).on("connection", (peer) => peers.push(peer));
      listenSpy.mockRestore();
      const path = `/api/chats/${chat.id}/history?limit=${entries}`;

      yield* Effect.promise(async () => {
        const clients = Array.from({ length: 25 }, () => {
          const socket = connect(Number(new URL(origin).port), "127.0.0.1");
          socket.on("error", () => {});
          socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\nX-Api-Key: ${slowKey}\r\n\r\n`);
          return { socket, head: once(socket, "readable").then(() => String(socket.read(12))) };
        });
        const timer = setInterval(() => {
          for (const { socket } of clients) socket.read(65_536);
        }, 10_000);
        await Promise.race(clients.map(({ head }) => head));
        let served = 0;
        do {
          const response = await fetch(`${origin}${path}`, {
            headers: { "x-api-key": politeKey! },
          });
          expect(response.status).toBe(200);
          expect((await response.arrayBuffer()).byteLength).toBeGreaterThan(size);
          served++;
          await sleep(250);
        } while (peers.some((peer) => progressOf(peer).queued > 0));
        clearInterval(timer);
        const heads = await Promise.all(clients.map(({ head }) => head));
        for (const { socket } of clients) socket.destroy();
        expect(heads.filter((head) => head === "HTTP/1.1 200")).toHaveLength(14);
        expect(heads.filter((head) => head === "HTTP/1.1 500")).toHaveLength(11);
        expect(served).toBeGreaterThan(20);
      });
    }).pipe(
      Effect.scoped,
      Effect.provide(
        layerParley({
          store: layerMemory,
          answerer: Layer.succeed(Answerer, Answerer.of({ answer: () => Stream.empty })),
        }),
      ),
      Effect.provide(SecureRandom.layerWebCrypto),
      Effect.provideService(Lifecycle, { phase: "serving", signal: null }),
    ),
  90_000,
);
