/**
 * Manages chatbots, their settings and their keys for operators. Every change is recorded in the audit log with its
 * actor, and takes effect in every process within a second.
 */
import { Clock, Context, Duration, Effect, Layer, Redacted, Schema, Struct } from "effect";
import { Digest, SecureRandom } from "effect/crypto";
import {
  admitsAnonymous,
  defaultScopes,
  generateKey,
  hashKey,
  KeyBounds,
  keyId,
  plainKey,
  visitorDefaults,
  PointInTime,
  Scopes,
  signingSecretOf,
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
import { ArgumentInvalid, KeyNotFound } from "../model/Errors.ts";
import type { ChatbotId } from "../model/Ids.ts";
import { makeCheck } from "../model/SchemaErrors.ts";
import { Text } from "../model/Text.ts";
import { operation } from "./Telemetry.ts";

/** A new key. The store does not keep the key itself: an operator who loses it has to create another. */
export interface CreatedKey {
  readonly id: string;
  readonly key: Redacted.Redacted;
  /** The secret with which a backend signs visitor tokens; `null` for a key that signs none. */
  readonly signingSecret: Redacted.Redacted | null;
}

/** The fields that an operator chooses for a key that is to be generated. */
type ChosenFields = Omit<KeyChange, "signingSecret"> &
  Pick<KeyRecord, "scopes"> & {
    /** Whether the key signs visitor tokens; `false` by default. */
    readonly visitors?: boolean;
  };

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

  const findKey = Effect.fnUntraced(function* (id: ChatbotId, keyId: string) {
    const { keys } = yield* registry.get(id);
    const key = keys.find((key) => key.id === keyId && key.revokedAt === null);
    return key ?? (yield* new KeyNotFound({ keyId }));
  });

  const createChatbot = operation("Administration.createChatbot")(
    Effect.fnUntraced(function* (
      {
        keys = [],
        settings,
        ...names
      }: ChatbotChange &
        Pick<Chatbot, "workspaceName" | "name"> & { readonly keys?: ReadonlyArray<KeyRecord> },
      actor: string,
    ) {
      const chatbot = { description: "", ...names, settings: { ...defaultSettings, ...settings } };
      yield* checkChatbot({ ...chatbot, actor });
      for (const key of keys) yield* checkKey(key);
      return yield* registry.create({ ...chatbot, keys }, actor);
    }),
  );

  const changeChatbot = operation("Administration.changeChatbot")(
    Effect.fnUntraced(function* (id: ChatbotId, change: ChatbotChange, actor: string) {
      yield* checkChatbot({ ...change, actor });
      return yield* registry.change(id, change, actor);
    }),
  );

  const deleteChatbot = operation("Administration.deleteChatbot")(
    Effect.fnUntraced(function* (id: ChatbotId, actor: string) {
      yield* checkChatbot({ actor });
      const { keys } = yield* registry.get(id);
      for (const key of keys.filter(({ revokedAt }) => revokedAt === null)) {
        // Another operator may have revoked the key in the meantime.
        const revoke = registry.revokeKey(id, key.id, actor);
        yield* Effect.catchTag(revoke, "KeyNotFound", () => Effect.void);
      }
      const chats = yield* archive.erase(id, { _tag: "All" }, actor);
      yield* registry.delete(id, actor);
      return chats;
    }),
  );

  const addKey = operation("Administration.addKey")(
    Effect.fnUntraced(function* (id: ChatbotId, key: KeyRecord, actor: string) {
      yield* checkArguments({ actor });
      yield* checkKey(key);
      yield* registry.addKey(id, key, actor);
    }),
  );

  const createKey = operation("Administration.createKey")(
    Effect.fnUntraced(function* (
      id: ChatbotId,
      { visitors = false, ...fields }: ChosenFields,
      actor: string,
    ) {
      if (Number(fields.expiresAt ?? Infinity) <= (yield* Clock.currentTimeMillis)) {
        const reason = "is in the past";
        const message = `expiresAt: ${reason}.`;
        return yield* new ArgumentInvalid({ field: "expiresAt", reason, message });
      }
      const { createdKey, record } = yield* newKey(visitors);
      yield* addKey(
        id,
        { ...plainKey, ...(visitors && visitorDefaults), ...fields, ...record },
        actor,
      );
      return createdKey;
    }),
  );

  const changeKey = operation("Administration.changeKey")(
    Effect.fnUntraced(function* (id: ChatbotId, keyId: string, change: KeyChange, actor: string) {
      yield* checkArguments({ keyId, actor });
      yield* checkKey(change, yield* findKey(id, keyId));
      yield* registry.changeKey(id, keyId, change, actor);
    }),
  );

  const rotateKey = operation("Administration.rotateKey")(
    Effect.fnUntraced(function* (
      id: ChatbotId,
      oldKey: string,
      {
        expiresAt = null,
        keepFor,
      }: { readonly keepFor: Duration.Duration; readonly expiresAt?: Date | null },
      actor: string,
    ) {
      const millis = Duration.toMillis(keepFor);
      yield* checkArguments({ keyId: oldKey, keepFor: millis, expiresAt, actor });
      const current = yield* findKey(id, oldKey);
      const fields = Struct.omit(current, ["createdAt", "lastUsedAt", "revokedAt"]);
      const { createdKey, record } = yield* newKey(current.signingSecret !== null);
      yield* registry.addKey(id, { ...fields, ...record, expiresAt }, actor);
      const end = new Date((yield* registry.now).getTime() + millis);
      const isEarlier = current.expiresAt !== null && current.expiresAt <= end;
      const replacedKey = { ...fields, expiresAt: isEarlier ? current.expiresAt : end };
      yield* registry.changeKey(id, oldKey, { expiresAt: replacedKey.expiresAt }, actor);
      return { ...createdKey, replacedKey };
    }),
  );

  const revokeKey = operation("Administration.revokeKey")(
    Effect.fnUntraced(function* (id: ChatbotId, keyId: string, actor: string) {
      yield* checkArguments({ keyId, actor });
      yield* registry.revokeKey(id, keyId, actor);
    }),
  );

  const person = operation("Administration.person")(
    Effect.fnUntraced(function* (userRef: string): Effect.fn.Return<Person, ArgumentInvalid> {
      yield* checkPerson({ userRef });
      const { randomBytes } = Context.get(services, SecureRandom.SecureRandom);
      const salt = (yield* sha256(yield* randomBytes(16))).slice(0, 32);
      return { userRef, digest: yield* digestWith(salt, userRef) };
    }),
  );

  const audit = operation("Administration.audit")(
    Effect.fnUntraced(function* (limit: number, userRef?: string) {
      if (userRef === undefined) return yield* registry.audit(limit);
      const entries = yield* Effect.filter(yield* registry.audit(limit, userRef), ({ detail }) => {
        const [digest, salt] = /sha256:(\w+):\w+$/.exec(detail) ?? [];
        return salt === undefined
          ? Effect.succeed(false)
          : Effect.map(digestWith(salt, userRef), (own) => own === digest);
      });
      return entries.slice(0, limit);
    }),
  );

  return {
    /** Lists every chatbot with its keys, including revoked and expired keys, in ascending order of id. */
    chatbots: registry.list,
    /** Returns a chatbot with its keys. Fails with `ChatbotNotFound` if no chatbot has the id. */
    chatbot: registry.get,
    /** Creates a chatbot and its keys, all or nothing. Absent settings take their values from `defaultSettings`. */
    createChatbot,
    /** Changes the given fields of a chatbot and leaves its other fields unchanged. */
    changeChatbot,
    /**
     * Deletes a chatbot with its keys and chats, and returns the number of erased chats. Keys are revoked first, then
     * chats are erased, and the chatbot is deleted last. If a call is interrupted, another call completes the deletion.
     */
    deleteChatbot,
    /** Generates a key. Absent fields take their values from `plainKey`. A chatbot can have any number of live keys. */
    createKey,
    /** Adds a key that was generated elsewhere. Fails with `KeyTaken` if a key with its id exists. */
    addKey,
    /** Changes the given fields of a key; fails with `KeyNotFound` if the key is unknown or revoked. */
    changeKey,
    /** Checks a key as `addKey` does or, with `current`, a change to the current key as `changeKey` does. */
    checkKey,
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

const checkArguments = makeCheck(
  Schema.Struct({
    keyId: Schema.optionalKey(Text),
    keepFor: Schema.optionalKey(
      Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 1e14 })),
    ),
    expiresAt: Schema.optionalKey(Schema.NullOr(PointInTime)),
    actor: Name,
  }),
);

const checkFields = makeCheck(
  Schema.Struct({
    name: Schema.NullOr(Text),
    scopes: Scopes,
    expiresAt: Schema.NullOr(PointInTime),
    ...KeyBounds.fields,
  }).mapFields(Struct.map(Schema.optionalKey)),
);

const checkKey = Effect.fnUntraced(function* (
  { hash: _, id: _id, ...change }: KeyChange & Partial<KeyRecord>,
  current: Partial<KeyRecord> = {},
) {
  yield* checkFields(change);
  const key = { ...current, ...change };
  if (key.anonymous === true && !admitsAnonymous(key))
    return yield* invalid(
      "anonymous",
      "A key whose widget anyone can use needs visitors, visitorRatePerMinute and tokensPerDay",
    );
  const { origins = [], visitorRatePerMinute = null } = change;
  const field = origins.length > 0 ? "origins" : "visitorRatePerMinute";
  if (key.signingSecret == null && (origins.length > 0 || visitorRatePerMinute !== null))
    return yield* invalid(field, `${field} has no effect on a key without visitors`);
  const { scopes = defaultScopes } = key;
  const isWidgetChange = change.scopes !== undefined || change.origins !== undefined;
  const hasWidget = key.origins !== undefined && key.origins.length > 0;
  if (isWidgetChange && hasWidget && !defaultScopes.every((scope) => scopes.includes(scope)))
    return yield* invalid(
      "scopes",
      `A widget reads and creates chats and asks in them, so scopes must list ${defaultScopes.join(", ")}`,
    );
});

const invalid = (field: string, reason: string) =>
  new ArgumentInvalid({ field, reason, message: `${reason}.` });
