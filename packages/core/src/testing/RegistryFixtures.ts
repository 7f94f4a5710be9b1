/**
 * What the checks of `ChatbotRegistry` and `ChatbotDirectory` make and look at.
 */
import { Effect } from "effect";
import { defaultSettings } from "../Chatbot.ts";
import { ChatbotRegistry, type KeyRecord, type NewChatbot } from "../ChatbotRegistry.ts";

let names = 0;
/** A name that was not used before in this run; keys take their ids from it. */
export const fresh = (kind: string) => `${kind} ${Date.now()} ${++names}`;

export const newKey = (more: Partial<KeyRecord> = {}): KeyRecord => ({
  id: fresh("key"),
  hash: Uint8Array.from({ length: 32 }, (_, n) => (n * 7) % 256),
  name: null,
  scopes: ["read", "ask"],
  expiresAt: null,
  ...more,
});

export const newChatbot = (more: Partial<NewChatbot> = {}): NewChatbot => ({
  workspaceName: "Workspace",
  name: fresh("chatbot"),
  description: "Description — '; 😀",
  settings: { ...defaultSettings, helloMessage: "Hello" },
  keys: [],
  ...more,
});

export const byId = (a: { readonly id: string }, b: { readonly id: string }) =>
  a.id < b.id ? -1 : 1;

export const found = (id: number) =>
  ChatbotRegistry.use((registry) =>
    Effect.map(registry.list, (all) => all.find(({ chatbot }) => chatbot.id === id)),
  );

export const keyOf = (chatbot: number, keyId: string) =>
  Effect.map(found(chatbot), (one) => one?.keys.find(({ id }) => id === keyId));

/** The newest lines of a chatbot's audit, oldest first. */
export const notesOf = (chatbot: number) =>
  ChatbotRegistry.use((registry) =>
    Effect.map(registry.audit(1000), (lines) =>
      lines
        .filter((line) => line.chatbot === chatbot)
        .map(({ action, actor, detail }) => `${actor} ${action} ${detail}`)
        .toReversed(),
    ),
  );

/** Both at once, and what came of each; in every other round the second begins first. */
export const bothAtOnce = <A>(round: number, both: ReadonlyArray<Effect.Effect<A>>) =>
  round % 2 === 0
    ? Effect.all(both, { concurrency: 2 })
    : Effect.map(Effect.all(both.toReversed(), { concurrency: 2 }), (came) => came.toReversed());
