/**
 * What operators do: workspaces, chatbots, their settings and their keys. Every change is audited under
 * the name of its actor, and holds in every process within a second (where hints are lost, within 30).
 */
import { Clock, Context, Duration, Effect, Layer, Redacted, Schema, Struct } from "effect";
import { Digest, SecureRandom } from "effect/crypto";
import { generateKey, hashKey, keyId } from "./ApiKey.ts";
import { ChatbotSettings, defaultSettings, Name, type Chatbot } from "./Chatbot.ts";
import { scopes, type Scope } from "./ChatbotDirectory.ts";
import {
  ChatbotRegistry,
  type AuditRecord,
  type ChatbotChange,
  type KeyChange,
  type KeyRecord,
  type RegisteredChatbot,
} from "./ChatbotRegistry.ts";
import {
  ChatbotNotFound,
  DeclarationInvalid,
  KeyNotFound,
  type ChatbotTaken,
  type StorageUnavailable,
  type WorkspaceNotFound,
} from "./Errors.ts";
import { problemsOf } from "./Problems.ts";
import { compareText, Text } from "./Text.ts";

/** What is not named is what `defaultSettings` say. */
export interface ChatbotToCreate {
  readonly workspaceName: string;
  readonly name: string;
  readonly description?: string;
  readonly settings?: Partial<ChatbotSettings>;
}

export interface KeyToCreate {
  readonly name?: string | null;
  readonly scopes: ReadonlyArray<Scope>;
  readonly expiresAt?: Date | null;
}

/** A key that was just made. Its text is in no store: whoever loses it makes another. */
export interface CreatedKey {
  readonly id: string;
  readonly key: Redacted.Redacted;
}

export interface Workspace {
  readonly name: string;
  readonly chatbots: number;
}

export class Administration extends Context.Service<
  Administration,
  {
    /** A workspace is there as long as a chatbot is in it. Ascending by name. */
    readonly workspaces: Effect.Effect<ReadonlyArray<Workspace>, StorageUnavailable>;
    /** Moves all chatbots of a workspace to another name, which may be another workspace's. */
    readonly renameWorkspace: (
      from: string,
      to: string,
      actor: string,
    ) => Effect.Effect<
      void,
      DeclarationInvalid | WorkspaceNotFound | ChatbotTaken | StorageUnavailable
    >;
    /** Every chatbot with its keys, revoked and expired ones too, ascending by id. */
    readonly chatbots: Effect.Effect<ReadonlyArray<RegisteredChatbot>, StorageUnavailable>;
    readonly chatbot: (
      chatbot: number,
    ) => Effect.Effect<RegisteredChatbot, ChatbotNotFound | StorageUnavailable>;
    readonly createChatbot: (
      chatbot: ChatbotToCreate,
      actor: string,
    ) => Effect.Effect<Chatbot, DeclarationInvalid | ChatbotTaken | StorageUnavailable>;
    /** Changes what is named and leaves the rest. */
    readonly changeChatbot: (
      chatbot: number,
      change: ChatbotChange,
      actor: string,
    ) => Effect.Effect<
      Chatbot,
      DeclarationInvalid | ChatbotNotFound | ChatbotTaken | StorageUnavailable
    >;
    /** Makes one more key; a chatbot can have any number of live ones. */
    readonly createKey: (
      chatbot: number,
      key: KeyToCreate,
      actor: string,
    ) => Effect.Effect<CreatedKey, DeclarationInvalid | ChatbotNotFound | StorageUnavailable>;
    /** Changes what is named of a key that was not revoked. */
    readonly changeKey: (
      chatbot: number,
      keyId: string,
      change: KeyChange,
      actor: string,
    ) => Effect.Effect<void, DeclarationInvalid | KeyNotFound | StorageUnavailable>;
    /**
     * Makes a key with the name and scopes of another, which then expires after `keepFor`, so that its
     * users can change over. If that fails, so does the new key.
     */
    readonly rotateKey: (
      chatbot: number,
      keyId: string,
      keepFor: Duration.Duration,
      actor: string,
    ) => Effect.Effect<CreatedKey, ChatbotNotFound | KeyNotFound | StorageUnavailable>;
    /** Ends a key for ever. */
    readonly revokeKey: (
      chatbot: number,
      keyId: string,
      actor: string,
    ) => Effect.Effect<void, KeyNotFound | StorageUnavailable>;
    /** What was changed, newest first, at most `limit` lines. */
    readonly audit: (
      limit: number,
    ) => Effect.Effect<ReadonlyArray<AuditRecord>, StorageUnavailable>;
  }
>()("@parley/core/Administration") {
  static readonly layer: Layer.Layer<
    Administration,
    never,
    ChatbotRegistry | Digest.Digest | SecureRandom.SecureRandom
  > = Layer.effect(
    Administration,
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const digest = yield* Digest.Digest;
      const random = yield* SecureRandom.SecureRandom;

      const chatbot = (id: number) =>
        Effect.flatMap(registry.list, (all) => {
          const found = all.find((one) => one.chatbot.id === id);
          return found === undefined
            ? Effect.fail(new ChatbotNotFound({ chatbot: id }))
            : Effect.succeed(found);
        });

      /** Stores a key that was never used before: ids are random, and a collision is tried again. */
      const addKey = (id: number, key: Omit<KeyRecord, "id" | "hash">, actor: string) =>
        Effect.gen(function* () {
          const text = yield* generateKey;
          const hash = yield* hashKey(Redacted.value(text));
          const made = { id: keyId(Redacted.value(text))!, key: text };
          yield* registry.addKey(id, { ...key, id: made.id, hash }, actor);
          return made;
        }).pipe(
          Effect.provideService(SecureRandom.SecureRandom, random),
          Effect.provideService(Digest.Digest, digest),
          Effect.retry({ while: (error) => error._tag === "KeyTaken", times: 3 }),
          Effect.catchTag("KeyTaken", Effect.die),
        );

      return Administration.of({
        workspaces: Effect.map(registry.list, (all) =>
          [...Map.groupBy(all, ({ chatbot }) => chatbot.workspaceName)]
            .map(([name, chatbots]) => ({ name, chatbots: chatbots.length }))
            .toSorted((a, b) => compareText(a.name, b.name)),
        ),
        renameWorkspace: (from, to, actor) =>
          Effect.andThen(valid(Name, to), registry.renameWorkspace(from, to, actor)),

        chatbots: registry.list,
        chatbot,
        createChatbot: ({ description = "", name, settings, workspaceName }, actor) =>
          valid(Declaration, {
            workspaceName,
            name,
            description,
            settings: { ...defaultSettings, ...settings },
          }).pipe(
            Effect.flatMap((declared) => registry.create({ ...declared, keys: [] }, actor)),
            Effect.catchTag("KeyTaken", Effect.die),
          ),
        changeChatbot: (id, change, actor) =>
          Effect.flatMap(valid(Change, change), (valid) => registry.change(id, valid, actor)),

        createKey: (id, { expiresAt = null, name = null, scopes }, actor) =>
          Effect.flatMap(valid(Key, { name, scopes, expiresAt }), (key) => addKey(id, key, actor)),
        changeKey: (id, key, change, actor) =>
          Effect.flatMap(valid(ChangedKey, change), (valid) =>
            registry.changeKey(id, key, valid, actor),
          ),
        rotateKey: Effect.fnUntraced(function* (id, oldId, keepFor, actor) {
          const { keys } = yield* chatbot(id);
          const old = keys.find((key) => key.id === oldId && key.revokedAt === null);
          if (old === undefined) return yield* new KeyNotFound({ keyId: oldId });
          const made = yield* addKey(id, { ...old, expiresAt: null }, actor);
          const until = (yield* Clock.currentTimeMillis) + Duration.toMillis(keepFor);
          const expiresAt = new Date(Math.min(until, old.expiresAt?.getTime() ?? Infinity));
          yield* registry.changeKey(id, oldId, { expiresAt }, actor).pipe(
            // Nobody will ever know the text of the new key.
            Effect.onError(() => Effect.ignore(registry.revokeKey(id, made.id, actor))),
          );
          return made;
        }),
        revokeKey: registry.revokeKey,
        audit: registry.audit,
      });
    }),
  );
}

const isPointInTime = Schema.makeFilter<Date>(
  (date) => Number.isFinite(date.getTime()) || "is no point in time",
);

const Key = Schema.Struct({
  name: Schema.NullOr(Text),
  scopes: Schema.Array(Schema.Literals(scopes)).check(Schema.isUnique()),
  expiresAt: Schema.NullOr(Schema.Date.check(isPointInTime)),
});
const ChangedKey = Key.mapFields(Struct.map(Schema.optionalKey));

const Declaration = Schema.Struct({
  workspaceName: Name,
  name: Name,
  description: Text,
  settings: ChatbotSettings,
});
const Change = Declaration.mapFields(({ settings, ...rest }) => ({
  ...Struct.map(rest, Schema.optionalKey),
  settings: Schema.optionalKey(settings.mapFields(Struct.map(Schema.optionalKey))),
}));

/** The value, if it keeps the rules; all that breaks one is told. */
const valid = <S extends Schema.Top>(schema: S, value: S["Type"]) =>
  Effect.mapError(
    Schema.decodeEffect(Schema.toType(schema))(value, { onExcessProperty: "error", errors: "all" }),
    (error) => new DeclarationInvalid({ message: `${problemsOf(error)}.` }),
  );
