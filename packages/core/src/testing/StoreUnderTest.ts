/**
 * What the checks need besides the ports: a way to make tenants, to look behind the store's back, and
 * to let time pass.
 */
import { Context, Effect } from "effect";
import type { ChatArchive } from "../ChatArchive.ts";
import { defaultSettings } from "../Chatbot.ts";
import { ChatbotRegistry } from "../ChatbotRegistry.ts";
import type { ChatStore } from "../ChatStore.ts";
import type { NewEntry } from "../Entry.ts";
import type { TurnStore } from "../TurnStore.ts";

/** A chat as it lies in the storage, read by another path than the port's. */
export interface StoredChat {
  readonly id: number;
  readonly name: string | null;
  readonly userRef: string | null;
  readonly createTime: Date;
  /** In order of creation. */
  readonly entries: ReadonlyArray<NewEntry & { readonly id: number; readonly createTime: Date }>;
}

export class StoreUnderTest extends Context.Service<
  StoreUnderTest,
  {
    /** Makes a chatbot without chats and gives its id. */
    readonly newChatbot: Effect.Effect<number>;
    /** All chats of a chatbot in order of creation, read past the store's own code. */
    readonly peek: (chatbot: number) => Effect.Effect<ReadonlyArray<StoredChat>>;
    /**
     * Lets leases, the ends of turns and retry keys grow older by so many milliseconds: by the test clock where the
     * store reads Effect's `Clock`, by changing the rows where it reads the database's.
     */
    readonly pass: (millis: number) => Effect.Effect<void>;
    /**
     * A second instance over the same data, as another process would have: `Layer.build(Layer.fresh(…))`
     * of the store's layer.
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

/** Registers a chatbot of a new name, for stores that have a registry. */
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
