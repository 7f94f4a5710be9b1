/**
 * The needs of the checks besides the ports: chatbots, a clock that a test can move, and a second instance.
 */
import { Context, Effect } from "effect";
import type { ChatArchive } from "../ports/ChatArchive.ts";
import { defaultSettings } from "../model/Chatbot.ts";
import { ChatbotRegistry } from "../ports/ChatbotRegistry.ts";
import type { ChatStore } from "../ports/ChatStore.ts";
import type { TurnStore } from "../ports/TurnStore.ts";

/** The needs of the checks besides the ports. */
export class StoreUnderTest extends Context.Service<
  StoreUnderTest,
  {
    /** Registers a chatbot without chats and returns its id: {@link registerChatbot}, for a store with a registry. */
    readonly newChatbot: Effect.Effect<number>;
    /**
     * Makes leases, the ends of turns and idempotency keys older by so many milliseconds: by the test clock where the
     * store reads Effect's `Clock`, by an update of the rows where it reads the database's clock.
     */
    readonly pass: (millis: number) => Effect.Effect<void>;
    /**
     * A second instance over the same data, as another process has: `Layer.build(Layer.fresh(…))` of the store's layer.
     */
    readonly second: {
      readonly chats: ChatStore["Service"];
      readonly turns: TurnStore["Service"];
      readonly archive: ChatArchive["Service"];
      readonly registry: ChatbotRegistry["Service"];
    };
  }
>()("@parley/core/testing/StoreUnderTest") {}

let chatbots = 0;

/** Registers a chatbot under a new name and returns its id. */
export const registerChatbot = ChatbotRegistry.use((registry) =>
  Effect.suspend(() =>
    registry.create(
      {
        workspaceName: "Conformance",
        name: `Chatbot ${Date.now()} ${++chatbots}`,
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
