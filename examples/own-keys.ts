import { Access, ChatbotId, defaultSettings, keyId, type Chatbot } from "@parley/core";
import { ChatbotDirectory } from "@parley/core/ports";
import { Effect, Layer } from "effect";
import { Digest } from "effect/crypto";
import { createHash } from "node:crypto";

const chatbot: Chatbot = {
  id: ChatbotId.make(1),
  name: "Helpdesk",
  description: "",
  workspaceName: "Acme",
  settings: defaultSettings,
};

const key = process.env["API_KEY"]!;
const hash = createHash("sha256").update(key).digest();

const ownDirectory = Layer.succeed(
  ChatbotDirectory,
  ChatbotDirectory.of({
    find: (id) =>
      Effect.succeed(
        id === keyId(key)
          ? { hash, scopes: ["read", "ask"], expiresInMillis: null, chatbot, visitor: "user-7" }
          : null,
      ),
    recordUse: () => Effect.void,
  }),
);

const principal = Access.use((access) => access.authenticate(key)).pipe(
  Effect.provide(Access.layer.pipe(Layer.provide([ownDirectory, Digest.layerWebCrypto]))),
);
const { scopes, visitor } = await Effect.runPromise(principal);
console.log(scopes, visitor);
