/**
 * The work of operators: workspaces, chatbots, their settings and their keys. Every change adds a line with its actor
 * to the audit. It takes effect in every process within a second, or within 30 seconds if a notification is lost.
 */
import {
  Clock,
  Context,
  Duration,
  Effect,
  Layer,
  Predicate,
  Redacted,
  Schema,
  Struct,
} from "effect";
import { Digest, SecureRandom } from "effect/crypto";
import { generateKey, keyRecord, scopes, type KeyRecord, type Scope } from "../model/ApiKey.ts";
import { ChatArchive } from "../ports/ChatArchive.ts";
import {
  ChatbotSettings,
  defaultSettings,
  LongText,
  Name,
  type Chatbot,
} from "../model/Chatbot.ts";
import {
  ChatbotRegistry,
  type AuditRecord,
  type ChatbotChange,
  type KeyChange,
  type RegisteredChatbot,
  type Replaced,
} from "../ports/ChatbotRegistry.ts";
import {
  ChatbotNotFound,
  DeclarationInvalid,
  KeyNotFound,
  WorkspaceNotFound,
  type ChatbotTaken,
  type KeyTaken,
  type StorageUnavailable,
  type WorkspaceTaken,
} from "../model/Errors.ts";
import { problemsOf } from "../model/SchemaErrors.ts";
import { compareText, isStorable, Text } from "../model/Text.ts";

/** A chatbot to create. Settings that are absent have the values of `defaultSettings`. */
export interface ChatbotToCreate {
  readonly workspaceName: string;
  readonly name: string;
  readonly description?: string;
  readonly settings?: Partial<ChatbotSettings>;
}

/** A key to create. Without `expiresAt` it never expires. */
export interface KeyToCreate {
  readonly name?: string | null;
  readonly scopes: ReadonlyArray<Scope>;
  readonly expiresAt?: Date | null;
}

/** How to replace a key. */
export interface KeyRotation {
  /** How long the old key stays valid. */
  readonly keepFor: Duration.Duration;
  /** When the new key expires; `null`, the default: never. */
  readonly expiresAt?: Date | null;
}

/** A new key. No store has its text: an operator who loses it creates another key. */
export interface CreatedKey {
  readonly id: string;
  readonly key: Redacted.Redacted;
}

/** A new key that replaces another. */
export interface RotatedKey extends CreatedKey {
  /** The name and scopes of both keys, and when the old one expires. */
  readonly replaced: Replaced;
}

/** A workspace and the number of its chatbots. */
export interface Workspace {
  readonly name: string;
  readonly chatbots: number;
}

/**
 * Methods fail with `DeclarationInvalid` if an argument breaks a rule, and then write nothing. The name of an actor
 * has 1 to 255 code points.
 */
export class Administration extends Context.Service<
  Administration,
  {
    /** The workspaces that have a chatbot, in ascending order of name. */
    readonly workspaces: Effect.Effect<ReadonlyArray<Workspace>, StorageUnavailable>;
    /** Renames a workspace. Only with `merge`, `to` may be a workspace that has chatbots: the two become one. */
    readonly renameWorkspace: (
      from: string,
      to: string,
      options: { readonly merge?: boolean },
      actor: string,
    ) => Effect.Effect<
      void,
      DeclarationInvalid | WorkspaceNotFound | WorkspaceTaken | ChatbotTaken | StorageUnavailable
    >;
    /** Every chatbot with its keys, revoked and expired ones included, in ascending order of id. */
    readonly chatbots: Effect.Effect<ReadonlyArray<RegisteredChatbot>, StorageUnavailable>;
    readonly chatbot: (
      chatbot: number,
    ) => Effect.Effect<RegisteredChatbot, ChatbotNotFound | StorageUnavailable>;
    readonly createChatbot: (
      chatbot: ChatbotToCreate,
      actor: string,
    ) => Effect.Effect<Chatbot, DeclarationInvalid | ChatbotTaken | StorageUnavailable>;
    /** Changes the given fields and leaves the others. */
    readonly changeChatbot: (
      chatbot: number,
      change: ChatbotChange,
      actor: string,
    ) => Effect.Effect<
      Chatbot,
      DeclarationInvalid | ChatbotNotFound | ChatbotTaken | StorageUnavailable
    >;
    /**
     * Deletes a chatbot with its keys and chats, and returns the number of erased chats. It revokes the keys first
     * and erases the chats before the chatbot. If it is interrupted, the same call finishes the deletion.
     */
    readonly deleteChatbot: (
      chatbot: number,
      actor: string,
    ) => Effect.Effect<number, DeclarationInvalid | ChatbotNotFound | StorageUnavailable>;
    /** Creates a key. A chatbot can have any number of live keys. */
    readonly createKey: (
      chatbot: number,
      key: KeyToCreate,
      actor: string,
    ) => Effect.Effect<CreatedKey, DeclarationInvalid | ChatbotNotFound | StorageUnavailable>;
    /** Changes the given fields of a key; fails with `KeyNotFound` if the key is revoked. */
    readonly changeKey: (
      chatbot: number,
      keyId: string,
      change: KeyChange,
      actor: string,
    ) => Effect.Effect<void, DeclarationInvalid | KeyNotFound | StorageUnavailable>;
    /**
     * Creates a key with the name and scopes of another. The other expires after `keepFor`, or earlier if it would
     * have, so that its users can change over. Both or neither.
     */
    readonly rotateKey: (
      chatbot: number,
      keyId: string,
      rotation: KeyRotation,
      actor: string,
    ) => Effect.Effect<RotatedKey, DeclarationInvalid | KeyNotFound | StorageUnavailable>;
    /** Revokes a key for good. */
    readonly revokeKey: (
      chatbot: number,
      keyId: string,
      actor: string,
    ) => Effect.Effect<void, DeclarationInvalid | KeyNotFound | StorageUnavailable>;
    /** The newest `limit` lines of the audit, newest first. */
    readonly audit: (
      limit: number,
    ) => Effect.Effect<ReadonlyArray<AuditRecord>, DeclarationInvalid | StorageUnavailable>;
  }
>()("@parley/core/Administration") {
  static readonly layer: Layer.Layer<
    Administration,
    never,
    ChatArchive | ChatbotRegistry | Digest.Digest | SecureRandom.SecureRandom
  > = Layer.effect(
    Administration,
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const archive = yield* ChatArchive;
      const digest = yield* Digest.Digest;
      const random = yield* SecureRandom.SecureRandom;

      const chatbot = (id: number) =>
        Effect.flatMap(registry.list, (all) => {
          const found = all.find((one) => one.chatbot.id === id);
          return found === undefined
            ? Effect.fail(new ChatbotNotFound({ chatbot: id }))
            : Effect.succeed(found);
        });

      /** A fresh key, stored by `store`: ids are random, and a collision is tried again. */
      const withFreshKey = <A, E>(
        store: (key: Pick<KeyRecord, "id" | "hash">) => Effect.Effect<A, E | KeyTaken>,
      ) =>
        Effect.gen(function* () {
          const key = yield* generateKey;
          const { hash, id } = yield* keyRecord(Redacted.value(key));
          return { id, key, stored: yield* store({ id, hash }) };
        }).pipe(
          Effect.provideService(SecureRandom.SecureRandom, random),
          Effect.provideService(Digest.Digest, digest),
          Effect.retry({ while: Predicate.isTagged("KeyTaken"), times: 3 }),
          Effect.catchIf(isKeyTaken, Effect.die),
        );

      const known = (id: number) =>
        isChatbotId(id) ? Effect.void : Effect.fail(new ChatbotNotFound({ chatbot: id }));
      const knownKey = (id: number, key: string) =>
        isChatbotId(id) && isStorable(key)
          ? Effect.void
          : Effect.fail(new KeyNotFound({ keyId: key }));

      return Administration.of({
        workspaces: Effect.map(registry.list, (all) => {
          const chatbots = new Map<string, number>();
          for (const { chatbot } of all) {
            const { workspaceName: name } = chatbot;
            chatbots.set(name, (chatbots.get(name) ?? 0) + 1);
          }
          return Array.from(chatbots, ([name, chatbots]) => ({ name, chatbots })).toSorted((a, b) =>
            compareText(a.name, b.name),
          );
        }),
        renameWorkspace: Effect.fnUntraced(function* (from, to, { merge = false }, actor) {
          yield* valid(Named.actor, { actor });
          yield* valid(Named.to, { to });
          if (!isStorable(from)) return yield* new WorkspaceNotFound({ workspaceName: from });
          yield* registry.renameWorkspace(from, to, { merge }, actor);
        }),

        chatbots: registry.list,
        chatbot,
        createChatbot: Effect.fnUntraced(function* (
          { description = "", name, settings, workspaceName },
          actor,
        ) {
          yield* valid(Named.actor, { actor });
          const declared = yield* valid(Declaration, {
            workspaceName,
            name,
            description,
            settings: { ...defaultSettings, ...settings },
          });
          return yield* registry
            .create({ ...declared, keys: [] }, actor)
            .pipe(Effect.catchTag("KeyTaken", Effect.die));
        }),
        changeChatbot: Effect.fnUntraced(function* (id, change, actor) {
          yield* valid(Named.actor, { actor });
          yield* known(id);
          return yield* registry.change(id, yield* valid(Change, change), actor);
        }),

        deleteChatbot: Effect.fnUntraced(function* (id, actor) {
          yield* valid(Named.actor, { actor });
          const { keys } = yield* chatbot(id);
          for (const key of keys.filter(({ revokedAt }) => revokedAt === null)) {
            // Another operator may have revoked the key meanwhile.
            yield* Effect.catchTag(
              registry.revokeKey(id, key.id, actor),
              "KeyNotFound",
              () => Effect.void,
            );
          }
          const erased = yield* archive.erase(id, { _tag: "All" }, actor);
          yield* registry.delete(id, actor);
          return erased;
        }),

        createKey: Effect.fnUntraced(function* (
          id,
          { expiresAt = null, name = null, scopes },
          actor,
        ) {
          yield* valid(Named.actor, { actor });
          yield* known(id);
          const key = yield* valid(Key, { name, scopes, expiresAt });
          const made = yield* withFreshKey((fresh) =>
            registry.addKey(id, { ...key, ...fresh }, actor),
          );
          return { id: made.id, key: made.key };
        }),
        changeKey: Effect.fnUntraced(function* (id, key, change, actor) {
          yield* valid(Named.actor, { actor });
          yield* knownKey(id, key);
          yield* registry.changeKey(id, key, yield* valid(ChangedKey, change), actor);
        }),
        rotateKey: Effect.fnUntraced(function* (id, key, { expiresAt = null, keepFor }, actor) {
          yield* valid(Named.actor, { actor });
          yield* knownKey(id, key);
          const now = yield* Clock.currentTimeMillis;
          const end = new Date(now + Duration.toMillis(keepFor));
          yield* valid(Named.rotation, { keepFor: end, expiresAt });
          const made = yield* withFreshKey((fresh) =>
            registry.replaceKey(id, key, { ...fresh, expiresAt }, end, actor),
          );
          return { id: made.id, key: made.key, replaced: made.stored };
        }),
        revokeKey: Effect.fnUntraced(function* (id, key, actor) {
          yield* valid(Named.actor, { actor });
          yield* knownKey(id, key);
          yield* registry.revokeKey(id, key, actor);
        }),
        audit: (limit) => Effect.andThen(valid(Named.limit, { limit }), registry.audit(limit)),
      });
    }),
  );
}

const isKeyTaken = (error: unknown): error is KeyTaken => Predicate.isTagged(error, "KeyTaken");

const isChatbotId = (id: number) => Number.isInteger(id) && id > 0 && id < 2 ** 31;

/** A time that every store keeps, and whose year has four digits in ISO 8601. */
export const PointInTime = Schema.Date.check(
  Schema.makeFilter<Date>(
    (date) =>
      (date.getTime() >= Date.UTC(1970) && date.getTime() < Date.UTC(10_000)) ||
      "is no point in time between 1970 and 9999",
  ),
);

/** The scopes of a key, at least one, each at most once. */
export const Scopes = Schema.Array(Schema.Literals(scopes)).check(
  Schema.isNonEmpty({ message: `must name at least one of ${scopes.join(", ")}` }),
  Schema.isUnique(),
);

const Key = Schema.Struct({
  name: Schema.NullOr(Text),
  scopes: Scopes,
  expiresAt: Schema.NullOr(PointInTime),
});
const ChangedKey = Key.mapFields(Struct.map(Schema.optionalKey));

const Declaration = Schema.Struct({
  workspaceName: Name,
  name: Name,
  description: LongText,
  settings: ChatbotSettings,
});
const Change = Declaration.mapFields(({ settings, ...rest }) => ({
  ...Struct.map(rest, Schema.optionalKey),
  settings: Schema.optionalKey(settings.mapFields(Struct.map(Schema.optionalKey))),
}));

/** Arguments, each as a field, so that a message names it. */
const Named = {
  actor: Schema.Struct({ actor: Text.check(Schema.isNonEmpty(), Schema.isMaxCodePoints(255)) }),
  to: Schema.Struct({ to: Name }),
  rotation: Schema.Struct({ keepFor: PointInTime, expiresAt: Schema.NullOr(PointInTime) }),
  limit: Schema.Struct({
    limit: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2 ** 31 - 1 })),
  }),
};

/** The value, if it keeps the rules; the message names every field that breaks one. */
const valid = <S extends Schema.Top>(schema: S, value: S["Type"]) =>
  Effect.mapError(
    Schema.decodeEffect(Schema.toType(schema))(value, { onExcessProperty: "error", errors: "all" }),
    (error) => new DeclarationInvalid({ message: `${problemsOf(error)}.` }),
  );
