/**
 * What random sequences do to a registry.
 */
import { Schema } from "effect";

const Small = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 9 }));

const FewNames = Schema.Literals(["a", "b"]);
/** Names that are easily taken for each other, and mostly two that meet. */
const Name = Schema.Union([
  FewNames,
  FewNames,
  Schema.Literals(["A", "a ", "a/b", "b/a", "ab", "é", "e\u0301", "🍣", "🍺", "\uffee"]),
]);
const FewWorkspaces = Schema.Literals(["", "b"]);
/** What the names of a sequence's workspaces end in. */
const Workspace = Schema.Union([
  FewWorkspaces,
  FewWorkspaces,
  Schema.Literals(["/a", "a", "B", "b ", "é", "e\u0301", "🍣", "🍺"]),
]);
/** What the ids of a sequence's keys end in. */
export const keyIds = [..."abcdefghijAB"];
const KeyId = Schema.Literals(keyIds);
const KeyName = Schema.NullOr(Schema.Literals(["", "a", "A", "é", "e\u0301"]));
const Scopes = Schema.Literals(["", "read", "ask", "read,ask", "read,write,ask"]);
/** Ends of keys, and of those that are replaced. */
const End = Schema.Literals([
  "1970-01-01T00:00:00.000Z",
  "2001-02-03T04:05:06.007Z",
  "2096-02-29T23:59:59.999Z",
  "2096-03-01T00:00:00.000Z",
  "9999-12-31T23:59:59.997Z",
  "2300-01-01T00:00:00.000Z",
]);
const LongText = Schema.Literals(["", "a", "A", "a ", "a\u200b", "é", "e\u0301", "'; 😀"]);

const key = { name: KeyName, scopes: Scopes, expiresAt: Schema.NullOr(End) };

const Settings = Schema.Struct({
  helloMessage: Schema.optionalKey(Schema.NullOr(LongText)),
  moderationErrorMessage: Schema.optionalKey(LongText),
  instructions: Schema.optionalKey(Schema.NullOr(LongText)),
  model: Schema.optionalKey(Schema.NullOr(Name)),
  moderation: Schema.optionalKey(Schema.NullOr(Schema.Literals(["off", "words"]))),
  knowledge: Schema.optionalKey(Schema.NullOr(Schema.Literals(["a", "A"]))),
  retentionDays: Schema.optionalKey(Schema.NullOr(Schema.Literals([1, 36_500]))),
});

const Change = Schema.Struct({
  _tag: Schema.Literal("Change"),
  chatbot: Small,
  workspace: Schema.optionalKey(Workspace),
  name: Schema.optionalKey(Name),
  description: Schema.optionalKey(LongText),
  settings: Schema.optionalKey(Settings),
});
const ChangeKey = Schema.Struct({
  _tag: Schema.Literal("ChangeKey"),
  chatbot: Small,
  key: Small,
  name: Schema.optionalKey(KeyName),
  scopes: Schema.optionalKey(Scopes),
  expiresAt: Schema.optionalKey(Schema.NullOr(End)),
});

/** What is written; numbers stand for chatbots and their keys, whichever there are. */
const RegistryWrite = Schema.Union([
  Schema.Struct({
    _tag: Schema.Literal("Create"),
    workspace: Workspace,
    name: Name,
    description: LongText,
    settings: Settings,
    keys: Schema.Array(Schema.Struct({ id: KeyId, ...key })).check(Schema.isMaxLength(3)),
  }),
  // More often than the others.
  Change,
  Change,
  Change,
  Schema.Struct({ _tag: Schema.Literal("RenameWorkspace"), from: Workspace, to: Workspace }),
  Schema.Struct({ _tag: Schema.Literal("AddKey"), chatbot: Small, id: KeyId, ...key }),
  ChangeKey,
  ChangeKey,
  Schema.Struct({
    _tag: Schema.Literal("ReplaceKey"),
    chatbot: Small,
    key: Small,
    by: KeyId,
    expiresAt: Schema.NullOr(End),
    end: End,
  }),
  Schema.Struct({ _tag: Schema.Literal("RevokeKey"), chatbot: Small, key: Small }),
  Schema.Struct({ _tag: Schema.Literal("Use"), keys: Schema.Array(KeyId) }),
]);
export type RegistryWrite = typeof RegistryWrite.Type;

/** Whether another instance over the same data is told. */
const second = Schema.Boolean;

const Alone = Schema.Struct({ _tag: Schema.Literal("Alone"), second, write: RegistryWrite });
/** At the same time by both instances. */
const Together = Schema.Struct({
  _tag: Schema.Literal("Together"),
  second,
  writes: Schema.Tuple([RegistryWrite, RegistryWrite]),
});

export const RegistryCommand = Schema.Union([
  // More often than the others.
  Alone,
  Alone,
  Alone,
  Alone,
  Together,
  Together,
  /** Given up on soon after it began. */
  Schema.Struct({
    _tag: Schema.Literal("Interrupted"),
    second,
    write: RegistryWrite,
    after: Small,
  }),
  Schema.Struct({ _tag: Schema.Literal("Look"), limit: Small }),
  /** A millisecond, half a second, a minute, half an hour, a month. */
  Schema.Struct({
    _tag: Schema.Literal("Pass"),
    millis: Schema.Literals([1, 500, 61_000, 1_800_000, 31 * 86_400_000]),
  }),
]);
export type RegistryCommand = typeof RegistryCommand.Type;
