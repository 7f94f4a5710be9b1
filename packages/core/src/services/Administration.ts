/**
 * Manages chatbots, their settings and their keys for operators. Every change is recorded in the audit log with its
 * actor, and takes effect in every process within a second.
 */
import { Context, Duration, Effect, Layer, Redacted, Schema, Struct } from "effect";
import { Digest, SecureRandom } from "effect/crypto";
import {
  generateKey,
  hashKey,
  keyId,
  plainKey,
  Origins,
  PointInTime,
  RatePerMinute,
  Scopes,
  signingSecretOf,
  TokensPerDay,
  type KeyRecord,
} from "../model/ApiKey.ts";
import { ChatArchive, type Person } from "../ports/ChatArchive.ts";
import {
  ChatbotSettings,
  defaultSettings,
  LongText,
  Name,
  type Chatbot,
} from "../model/Chatbot.ts";
import { ChatbotRegistry, type ChatbotChange, type KeyChange } from "../ports/ChatbotRegistry.ts";
import { ChatbotNotFound, KeyNotFound, type ArgumentInvalid } from "../model/Errors.ts";
import type { ChatbotId } from "../model/Ids.ts";
import { makeCheck } from "../model/SchemaErrors.ts";
import { Text } from "../model/Text.ts";

/** A new key. The store does not keep the key itself: an operator who loses it has to create another. */
export interface CreatedKey {
  readonly id: string;
  readonly key: Redacted.Redacted;
  /** The secret with which a backend signs visitor tokens; `null` for a key that signs none. */
  readonly signingSecret: Redacted.Redacted | null;
}

/** The key fields that an operator chooses. Whether a key signs visitor tokens is decided when it is created. */
type ChosenFields = Omit<KeyChange, "signingSecret">;

const make = Effect.gen(function* () {
  const registry = yield* ChatbotRegistry;
  const archive = yield* ChatArchive;
  const services = yield* Effect.context<Digest.Digest | SecureRandom.SecureRandom>();

  /** Generates a key and its registry record. The key signs visitor tokens if `signs` is `true`. */
  const newKey = Effect.fnUntraced(function* (signs: boolean) {
    const key = yield* generateKey;
    const text = Redacted.value(key);
    const id = keyId(text)!;
    const secret = signs ? yield* signingSecretOf(text) : null;
    const createdKey = { id, key, signingSecret: secret === null ? null : Redacted.make(secret) };
    return { createdKey, record: { id, hash: yield* hashKey(text), signingSecret: secret } };
  }, Effect.provideContext(services));

  const sha256 = (data: Uint8Array) =>
    Context.get(services, Digest.Digest).digestHex(Digest.sha256, data);
  const digestWith = (salt: string, userRef: string) =>
    Effect.map(
      sha256(new TextEncoder().encode(`${salt}:${userRef}`)),
      (hash) => `sha256:${salt}:${hash}`,
    );

  const findChatbot = Effect.fnUntraced(function* (id: ChatbotId) {
    const chatbot = (yield* registry.list).find(({ chatbot }) => chatbot.id === id);
    return chatbot ?? (yield* new ChatbotNotFound({ chatbot: id }));
  });

  const createChatbot = Effect.fn("Administration.createChatbot")(function* (
    {
      description = "",
      name,
      settings: chosenSettings,
      workspaceName,
    }: ChatbotChange & Pick<Chatbot, "workspaceName" | "name">,
    actor: string,
  ) {
    const settings = { ...defaultSettings, ...chosenSettings };
    const chatbot = { workspaceName, name, description, settings };
    yield* checkChatbot({ ...chatbot, actor });
    return yield* registry.create({ ...chatbot, keys: [] }, actor);
  });

  const changeChatbot = Effect.fn("Administration.changeChatbot")(function* (
    id: ChatbotId,
    change: ChatbotChange,
    actor: string,
  ) {
    yield* checkChatbot({ ...change, actor });
    return yield* registry.change(id, change, actor);
  });

  const deleteChatbot = Effect.fn("Administration.deleteChatbot")(function* (
    id: ChatbotId,
    actor: string,
  ) {
    yield* checkChatbot({ actor });
    const { keys } = yield* findChatbot(id);
    for (const key of keys.filter(({ revokedAt }) => revokedAt === null)) {
      // Another operator may have revoked the key in the meantime.
      const revoke = registry.revokeKey(id, key.id, actor);
      yield* Effect.catchTag(revoke, "KeyNotFound", () => Effect.void);
    }
    const chats = yield* archive.erase(id, { _tag: "All" }, actor);
    yield* registry.delete(id, actor);
    return chats;
  });

  const createKey = Effect.fn("Administration.createKey")(function* (
    id: ChatbotId,
    {
      visitors = false,
      ...fields
    }: ChosenFields & Pick<KeyRecord, "scopes"> & { readonly visitors?: boolean },
    actor: string,
  ) {
    yield* checkKey({ ...fields, actor });
    const { createdKey, record } = yield* newKey(visitors);
    yield* registry.addKey(id, { ...plainKey, ...fields, ...record }, actor);
    return createdKey;
  });

  const changeKey = Effect.fn("Administration.changeKey")(function* (
    id: ChatbotId,
    keyId: string,
    change: ChosenFields,
    actor: string,
  ) {
    yield* checkKey({ ...change, keyId, actor });
    yield* registry.changeKey(id, keyId, change, actor);
  });

  const rotateKey = Effect.fn("Administration.rotateKey")(function* (
    id: ChatbotId,
    oldKey: string,
    {
      expiresAt = null,
      keepFor,
    }: { readonly keepFor: Duration.Duration; readonly expiresAt?: Date | null },
    actor: string,
  ) {
    const millis = Duration.toMillis(keepFor);
    yield* checkKey({ keyId: oldKey, keepFor: millis, expiresAt, actor });
    const { keys } = yield* findChatbot(id);
    const current = keys.find((key) => key.id === oldKey && key.revokedAt === null);
    if (current === undefined) return yield* new KeyNotFound({ keyId: oldKey });
    const fields = Struct.omit(current, ["createdAt", "lastUsedAt", "revokedAt"]);
    const { createdKey, record } = yield* newKey(current.signingSecret !== null);
    yield* registry.addKey(id, { ...fields, ...record, expiresAt }, actor);
    const end = new Date((yield* registry.now).getTime() + millis);
    const isEarlier = current.expiresAt !== null && current.expiresAt <= end;
    const replacedKey = { ...fields, expiresAt: isEarlier ? current.expiresAt : end };
    yield* registry.changeKey(id, oldKey, { expiresAt: replacedKey.expiresAt }, actor);
    return { ...createdKey, replacedKey };
  });

  const revokeKey = Effect.fn("Administration.revokeKey")(function* (
    id: ChatbotId,
    keyId: string,
    actor: string,
  ) {
    yield* checkKey({ keyId, actor });
    yield* registry.revokeKey(id, keyId, actor);
  });

  const person = Effect.fn("Administration.person")(function* (
    userRef: string,
  ): Effect.fn.Return<Person, ArgumentInvalid> {
    yield* checkPerson({ userRef });
    const { randomBytes } = Context.get(services, SecureRandom.SecureRandom);
    const salt = (yield* sha256(yield* randomBytes(16))).slice(0, 32);
    return { userRef, digest: yield* digestWith(salt, userRef) };
  });

  const audit = Effect.fn("Administration.audit")(function* (limit: number, userRef?: string) {
    if (userRef === undefined) return yield* registry.audit(limit);
    const entries = yield* Effect.filter(yield* registry.audit(2 ** 31 - 1), ({ detail }) => {
      const [digest, salt] = /sha256:(\w+):\w+$/.exec(detail) ?? [];
      return salt === undefined
        ? Effect.succeed(false)
        : Effect.map(digestWith(salt, userRef), (own) => own === digest);
    });
    return entries.slice(0, limit);
  });

  return {
    /** Lists every chatbot with its keys, including revoked and expired keys, in ascending order of id. */
    chatbots: registry.list,
    /** Returns a chatbot with its keys. Fails with `ChatbotNotFound` if no chatbot has the id. */
    chatbot: findChatbot,
    /** Creates a chatbot. Absent settings take their values from `defaultSettings`. */
    createChatbot,
    /** Changes the given fields of a chatbot and leaves its other fields unchanged. */
    changeChatbot,
    /**
     * Deletes a chatbot with its keys and chats, and returns the number of erased chats. Keys are revoked first, then
     * chats are erased, and the chatbot is deleted last. If a call is interrupted, another call completes the deletion.
     */
    deleteChatbot,
    /**
     * Creates a key. Absent fields take their values from `plainKey`. A chatbot can have any number of live keys. The
     * key signs visitor tokens if `visitors` is `true`; the default is `false`.
     */
    createKey,
    /** Changes the given fields of a key; fails with `KeyNotFound` if the key is unknown or revoked. */
    changeKey,
    /**
     * Replaces a key with a new one that has the same fields, signs visitor tokens only if the old key does, and never
     * expires unless `expiresAt` is given. The old key, returned as `replacedKey`, expires after `keepFor`, which gives
     * its users time to switch, or at its original expiry if that is earlier. Fails with `KeyNotFound` if the old key
     * is unknown or revoked.
     */
    rotateKey,
    /** Revokes a key for good; fails with `KeyNotFound` if the key is unknown or already revoked. */
    revokeKey,
    /** Returns a person for exports and erasures. The digest's random salt makes precomputed digests useless. */
    person,
    /** Returns the newest `limit` audit entries, newest first; with a `userRef`, only entries with its digest. */
    audit,
  };
});

/**
 * A method that changes something fails with `ArgumentInvalid`, and writes nothing, if an argument is invalid. An actor
 * must be a valid `Name`.
 */
export class Administration extends Context.Service<Administration>()(
  "@parley/core/Administration",
  { make },
) {
  static readonly layer = Layer.effect(Administration, Administration.make);
}

const checkChatbot = makeCheck(
  Schema.Struct({
    workspaceName: Schema.optionalKey(Name),
    name: Schema.optionalKey(Name),
    description: Schema.optionalKey(LongText),
    settings: Schema.optionalKey(ChatbotSettings.mapFields(Struct.map(Schema.optionalKey))),
    actor: Name,
  }),
);

const checkPerson = makeCheck(Schema.Struct({ userRef: Text }));

const checkKey = makeCheck(
  Schema.Struct({
    keyId: Schema.optionalKey(Text),
    name: Schema.optionalKey(Schema.NullOr(Text)),
    scopes: Schema.optionalKey(Scopes),
    expiresAt: Schema.optionalKey(Schema.NullOr(PointInTime)),
    ratePerMinute: Schema.optionalKey(Schema.NullOr(RatePerMinute)),
    visitorRatePerMinute: Schema.optionalKey(Schema.NullOr(RatePerMinute)),
    tokensPerDay: Schema.optionalKey(Schema.NullOr(TokensPerDay)),
    origins: Schema.optionalKey(Origins),
    anonymous: Schema.optionalKey(Schema.Boolean),
    keepFor: Schema.optionalKey(
      Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 1e14 })),
    ),
    actor: Name,
  }),
);
