/**
 * The work of operators: workspaces, chatbots, their settings and their keys. Every change adds a line with its actor
 * to the audit. It takes effect in every process within a second.
 */
import { Clock, Context, Duration, Effect, Layer, Redacted, Schema, Struct } from "effect";
import { Digest, SecureRandom } from "effect/crypto";
import { generateKey, keyRecord, scopes, type Scope } from "../model/ApiKey.ts";
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
  type RegisteredChatbot,
  type Replaced,
} from "../ports/ChatbotRegistry.ts";
import {
  ChatbotNotFound,
  DeclarationInvalid,
  KeyNotFound,
  WorkspaceNotFound,
  type ChatbotTaken,
  type StorageUnavailable,
  type WorkspaceTaken,
} from "../model/Errors.ts";
import { describeSchemaError } from "../model/SchemaErrors.ts";
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
  /** How many requests each server process accepts in a minute; `null`, the default: any number. */
  readonly ratePerMinute?: number | null;
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

type Registry = ChatbotRegistry["Service"];

/** A method of the registry behind a check of its arguments. */
type Checked<Method> = Method extends (...args: infer Args) => Effect.Effect<infer A, infer E>
  ? (...args: Args) => Effect.Effect<A, E | DeclarationInvalid>
  : never;

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
    readonly chatbots: Registry["list"];
    readonly chatbot: (
      chatbot: number,
    ) => Effect.Effect<RegisteredChatbot, ChatbotNotFound | StorageUnavailable>;
    readonly createChatbot: (
      chatbot: ChatbotToCreate,
      actor: string,
    ) => Effect.Effect<Chatbot, DeclarationInvalid | ChatbotTaken | StorageUnavailable>;
    /** Changes the given fields and leaves the others. */
    readonly changeChatbot: Checked<Registry["change"]>;
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
    readonly changeKey: Checked<Registry["changeKey"]>;
    /**
     * Creates a key with the name, scopes and rate of another. The other expires after `keepFor`, or earlier if it
     * would have, so that its users can change over. Both or neither.
     */
    readonly rotateKey: (
      chatbot: number,
      keyId: string,
      rotation: KeyRotation,
      actor: string,
    ) => Effect.Effect<RotatedKey, DeclarationInvalid | KeyNotFound | StorageUnavailable>;
    /** Revokes a key for good. */
    readonly revokeKey: Checked<Registry["revokeKey"]>;
    /** The newest `limit` lines of the audit, newest first. */
    readonly audit: Checked<Registry["audit"]>;
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

      const freshKey = Effect.gen(function* () {
        const key = yield* generateKey;
        const { hash, id } = yield* keyRecord(Redacted.value(key));
        return { key, record: { id, hash } };
      }).pipe(
        Effect.provideService(SecureRandom.SecureRandom, random),
        Effect.provideService(Digest.Digest, digest),
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
          yield* validate("renameWorkspace", { to, actor });
          if (!isStorable(from)) return yield* new WorkspaceNotFound({ workspaceName: from });
          yield* registry.renameWorkspace(from, to, { merge }, actor);
        }),

        chatbots: registry.list,
        chatbot,
        createChatbot: Effect.fnUntraced(function* (
          { description = "", name, settings: given, workspaceName },
          actor,
        ) {
          const settings = { ...defaultSettings, ...given };
          const declared = { workspaceName, name, description, settings };
          yield* validate("createChatbot", { ...declared, actor });
          return yield* registry
            .create({ ...declared, keys: [] }, actor)
            .pipe(Effect.catchTag("KeyTaken", Effect.die));
        }),
        changeChatbot: Effect.fnUntraced(function* (id, change, actor) {
          yield* validate("changeChatbot", { ...change, actor });
          yield* known(id);
          return yield* registry.change(id, change, actor);
        }),

        deleteChatbot: Effect.fnUntraced(function* (id, actor) {
          yield* validate("deleteChatbot", { actor });
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
          { expiresAt = null, name = null, ratePerMinute = null, scopes },
          actor,
        ) {
          const fields = { name, scopes, expiresAt, ratePerMinute };
          yield* validate("createKey", { ...fields, actor });
          yield* known(id);
          const { key, record } = yield* freshKey;
          yield* registry
            .addKey(id, { ...record, ...fields }, actor)
            .pipe(Effect.catchTag("KeyTaken", Effect.die));
          return { id: record.id, key };
        }),
        changeKey: Effect.fnUntraced(function* (id, key, change, actor) {
          yield* validate("changeKey", { ...change, actor });
          yield* knownKey(id, key);
          yield* registry.changeKey(id, key, change, actor);
        }),
        rotateKey: Effect.fnUntraced(function* (id, oldKey, { expiresAt = null, keepFor }, actor) {
          const end = new Date((yield* Clock.currentTimeMillis) + Duration.toMillis(keepFor));
          yield* validate("rotateKey", { keepFor: end, expiresAt, actor });
          yield* knownKey(id, oldKey);
          const { key, record } = yield* freshKey;
          const replaced = yield* registry
            .replaceKey(id, oldKey, { ...record, expiresAt }, end, actor)
            .pipe(Effect.catchTag("KeyTaken", Effect.die));
          return { id: record.id, key, replaced };
        }),
        revokeKey: Effect.fnUntraced(function* (id, key, actor) {
          yield* validate("revokeKey", { actor });
          yield* knownKey(id, key);
          yield* registry.revokeKey(id, key, actor);
        }),
        audit: (limit) => Effect.andThen(validate("audit", { limit }), registry.audit(limit)),
      });
    }),
  );
}

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

/** A number of requests in a minute. */
export const RatePerMinute = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1_000_000 }));

const keyFields = {
  name: Schema.NullOr(Text),
  scopes: Scopes,
  expiresAt: Schema.NullOr(PointInTime),
  ratePerMinute: Schema.NullOr(RatePerMinute),
};

const chatbotFields = { workspaceName: Name, name: Name, description: LongText };

const actor = Text.check(Schema.isNonEmpty(), Schema.isMaxCodePoints(255));

/** The rules of each method's arguments, by their names, which its messages quote. */
const Arguments = {
  renameWorkspace: Schema.Struct({ to: Name, actor }),
  createChatbot: Schema.Struct({ ...chatbotFields, settings: ChatbotSettings, actor }),
  changeChatbot: Schema.Struct({
    ...Struct.map(chatbotFields, Schema.optionalKey),
    settings: Schema.optionalKey(ChatbotSettings.mapFields(Struct.map(Schema.optionalKey))),
    actor,
  }),
  deleteChatbot: Schema.Struct({ actor }),
  createKey: Schema.Struct({ ...keyFields, actor }),
  changeKey: Schema.Struct({ ...Struct.map(keyFields, Schema.optionalKey), actor }),
  rotateKey: Schema.Struct({ keepFor: PointInTime, expiresAt: keyFields.expiresAt, actor }),
  revokeKey: Schema.Struct({ actor }),
  audit: Schema.Struct({
    limit: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2 ** 31 - 1 })),
  }),
};

/** Fails with a message that names every field that breaks a rule. */
const validate = <Method extends keyof typeof Arguments>(
  method: Method,
  values: (typeof Arguments)[Method]["Type"],
): Effect.Effect<void, DeclarationInvalid> =>
  Schema.decodeUnknownEffect(Schema.toType(Arguments[method] as Schema.Top))(values, {
    onExcessProperty: "error",
    errors: "all",
  }).pipe(
    Effect.asVoid,
    Effect.mapError(
      (error) => new DeclarationInvalid({ message: `${describeSchemaError(error)}.` }),
    ),
  );
