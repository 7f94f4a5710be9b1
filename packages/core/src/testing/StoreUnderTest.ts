/**
 * A store under test. Besides the ports, the checks need chatbots, a way to let time pass, and a second instance.
 */
import { Context, Effect, Layer, type Scope } from "effect";
import { TestClock } from "effect/testing";
import { defaultSettings } from "../model/Chatbot.ts";
import type { ChatbotId } from "../model/Ids.ts";
import { ChatArchive } from "../ports/ChatArchive.ts";
import { ChatbotDirectory } from "../ports/ChatbotDirectory.ts";
import { ChatbotRegistry } from "../ports/ChatbotRegistry.ts";
import { ChatStore } from "../ports/ChatStore.ts";
import type { StorePorts } from "../ports/Store.ts";
import { TurnStore } from "../ports/TurnStore.ts";

/** The ports of one instance of a store. */
export interface Instance {
  readonly chats: ChatStore["Service"];
  readonly turns: TurnStore["Service"];
  readonly archive: ChatArchive["Service"];
  readonly directory: ChatbotDirectory["Service"];
  readonly registry: ChatbotRegistry["Service"];
}

/** What the checks need besides the ports. */
export class StoreUnderTest extends Context.Service<
  StoreUnderTest,
  {
    /** Registers a chatbot without chats and returns its id. */
    readonly newChatbot: Effect.Effect<ChatbotId>;
    /** Ages leases, the end times of turns, idempotency keys and spending by this many milliseconds. */
    readonly pass: (millis: number) => Effect.Effect<void>;
    /** Whether the store reads Effect's `Clock`, which tests can set to any time. */
    readonly readsTestClock: boolean;
    /** A second instance over the same data, as another process would have. */
    readonly second: Instance;
    /** Opens one more instance over the same data, until the scope closes. */
    readonly open: Effect.Effect<Instance, never, Scope.Scope>;
  }
>()("@parley/core/testing/StoreUnderTest") {}

/** The services that `storeChecks` requires: the five ports of a store, and {@link StoreUnderTest}. */
export type StoreServices = StorePorts | StoreUnderTest;

/**
 * Provides the store and everything else that `storeChecks` requires. The store's layer is built twice, so both builds
 * must use the same data: the same file, database or memory. `pass` lets time pass in the store; by default it advances
 * the test clock, which is right for a store that reads Effect's `Clock`. For a store that reads a database's clock,
 * `pass` must backdate the rows.
 */
export const storeUnderTest = <E, R = never>(
  store: Layer.Layer<StorePorts, E, R>,
  { pass }: { readonly pass?: (millis: number) => Effect.Effect<void> } = {},
): Layer.Layer<StoreServices, E, R> =>
  Layer.effect(
    StoreUnderTest,
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const environment = yield* Effect.context<R>();
      const open = Effect.flatMap(Effect.scope, (scope) =>
        Layer.buildWithScope(Layer.fresh(store), scope).pipe(
          Effect.provide(environment),
          Effect.map(instanceOf),
        ),
      );
      return StoreUnderTest.of({
        newChatbot: Effect.provideService(registerChatbot, ChatbotRegistry, registry),
        pass: pass ?? TestClock.adjust,
        readsTestClock: pass === undefined,
        second: yield* open,
        open: Effect.orDie(open),
      });
    }),
  ).pipe(Layer.provideMerge(store));

export const instanceOf = (ports: Context.Context<StorePorts>): Instance => ({
  chats: Context.get(ports, ChatStore),
  turns: Context.get(ports, TurnStore),
  archive: Context.get(ports, ChatArchive),
  directory: Context.get(ports, ChatbotDirectory),
  registry: Context.get(ports, ChatbotRegistry),
});

let names = 0;
/** Returns a name or key id that has not been used before. */
export const fresh = (kind: string) => `${kind} ${Date.now()} ${++names}`;

/** Registers a chatbot under a new name and returns its id. */
export const registerChatbot = ChatbotRegistry.use((registry) =>
  Effect.suspend(() =>
    registry.create(
      {
        workspaceName: "Conformance",
        name: fresh("Chatbot"),
        description: "",
        settings: defaultSettings,
        keys: [],
      },
      "conformance",
    ),
  ),
).pipe(
  Effect.map(({ id }) => id),
  Effect.orDie,
);
