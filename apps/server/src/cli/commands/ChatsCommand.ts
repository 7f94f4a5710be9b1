/**
 * Shows chats, posts in them, erases them, and moves them between stores.
 */
import {
  Asking,
  ChatId,
  Administration,
  isBlank,
  type Metadata,
  decodeArchive,
  entryIncludes,
  PostMetadata,
  UserRef,
  encodeArchive,
  defaultEntryQuery,
  defaultChatQuery,
} from "@parley/core";
import { ChatArchive, ChatStore, type Erasable } from "@parley/core/ports";
import { Console, Effect, Option, Schema, Stdio, Stream } from "effect";
import { Argument, Command, Flag } from "effect/cli";
import { actor, onDatabase, record, recordRead } from "../Database.ts";
import { makeCommand, withHelp } from "../Declaration.ts";
import { usageError } from "../CommandErrors.ts";
import {
  chatbotFlag,
  chatbotOf,
  chatbotsOf,
  countFlag,
  sinceFlag,
  switchFlag,
  textFlag,
  valuesOf,
} from "../Flags.ts";
import { pluralize, details, print, table, write, type Cell } from "../Output.ts";

const pageFlags = {
  chatbot: chatbotFlag,
  limit: countFlag("limit", 100).pipe(
    Flag.withDefault(defaultEntryQuery.limit),
    Flag.withDescription(`Rows per page (default: ${defaultEntryQuery.limit})`),
  ),
  page: countFlag("page", Number.MAX_SAFE_INTEGER).pipe(
    Flag.withDefault(1),
    Flag.withDescription("Page number"),
  ),
  text: switchFlag(
    "text",
    "Also show users' texts: names, questions, answers, comments and metadata",
  ),
};

/** Returns the texts if they may be shown, and only their lengths otherwise. */
const textFields = (
  texts: Readonly<Record<string, string | Metadata | null | undefined>>,
  isShown: boolean,
): Readonly<Record<string, Cell>> =>
  Object.fromEntries(
    Object.entries(texts).map(([name, text = null]) => {
      if (isShown) return [name, text];
      const length = text && [...(typeof text === "string" ? text : JSON.stringify(text))].length;
      return [`${name}Length`, length];
    }),
  );

const personOf = (userRef: Option.Option<string>) =>
  Administration.use(({ person }) => Effect.transposeOption(Option.map(userRef, person)));

const list = makeCommand("list", {
  description: "List chats, newest first, with the total count",
  examples: {
    "parley chats list --user-ref user-7": "List a user's newest chats",
    "parley chats list --search invoice --text": "Find chats by name, and show the names",
  },
  flags: {
    ...pageFlags,
    search: textFlag("search", "Only chats whose name contains this text, ignoring case"),
    userRef: textFlag("user-ref", "Only chats with this userRef"),
  },
  run: Effect.fnUntraced(function* ({ chatbot: selector, limit, page, search, text, userRef }) {
    const { chatbot } = yield* chatbotOf(selector);
    if (text) yield* recordRead(chatbot.id, "chat names");
    const filter = { search: Option.getOrNull(search), userRef: Option.getOrNull(userRef) };
    const query = { ...defaultChatQuery, limit, page, ...filter };
    const { items, total } = yield* ChatStore.use((store) => store.listChats(chatbot.id, query));
    const chats = items.map(({ name, ...chat }) => ({ ...chat, ...textFields({ name }, text) }));
    const columns = ["id", "createTime", "userRef", text ? "name" : "nameLength"];
    const rows = table(chats, columns);
    yield* print({ total, chats }, `${rows}\n${chats.length} of ${pluralize(total, "chat")}`);
  }, onDatabase),
});

const show = makeCommand("show", {
  description: "Show a chat's history, newest entries first",
  examples: {
    "parley chats show 17": "Show each entry's time, text lengths, moderation and rating",
    "parley chats show 17 --text": "Also show questions, answers, comments and metadata",
  },
  flags: {
    ...pageFlags,
    id: Argument.Int("id").pipe(Argument.withDescription("Id of the chat")),
  },
  run: Effect.fnUntraced(function* ({ chatbot: selector, id, limit, page, text }) {
    const { chatbot } = yield* chatbotOf(selector);
    const store = yield* ChatStore;
    if (text) yield* recordRead(chatbot.id, `chat ${id}`);
    const { items, total } = yield* store.listEntries(chatbot.id, ChatId.make(id), {
      ...defaultEntryQuery,
      limit,
      page,
      include: entryIncludes,
    });
    const entries = items.map(
      ({ answer, chatId: _, comment, metadata, question, rating = null, ...entry }) => ({
        ...entry,
        rating,
        ...textFields({ question, answer, comment, metadata }, text),
      }),
    );
    const rows = entries.map((entry) => details(Object.entries<Cell>(entry)));
    const footer = `${rows.length} of ${pluralize(total, "entry", "entries")}`;
    yield* print({ total, entries }, [...rows, footer].join("\n\n"));
  }, onDatabase),
});

const erase = makeCommand("erase", {
  description: "Permanently erase chats, including their entries; `parley usage` still counts them",
  examples: {
    "parley chats erase --id 17": "Erase one chat",
    "parley chats erase --user-ref user-7": "Erase all of a user's chats",
    "parley chats erase --user-ref user-7 --workspace Acme":
      "Erase a user's chats in every chatbot in a workspace",
    "parley chats erase --idle-since 2026-01-01": "Erase chats with no entries since this date",
  },
  flags: {
    chatbot: chatbotFlag,
    workspace: textFlag(
      "workspace",
      "With --user-ref: erase the user's chats in every chatbot in this workspace",
    ),
    id: Flag.Int("id").pipe(Flag.optional, Flag.withDescription("Erase the chat with this id")),
    userRef: textFlag("user-ref", "Erase all chats with this userRef"),
    idleSince: sinceFlag("idle-since", "Erase all chats with no entries since this time"),
  },
  run: Effect.fnUntraced(function* ({ chatbot: selector, id, idleSince, userRef, workspace }) {
    const person = yield* personOf(userRef);
    const limit = idleSince && (yield* idleSince);
    const [erasable, ...others] = [
      Option.map(id, (id): Erasable => ({ _tag: "Chat", id: ChatId.make(id) })),
      Option.map(person, (person): Erasable => ({ _tag: "UserRef", ...person })),
      Option.map(Option.fromUndefinedOr(limit), (limit): Erasable => ({
        _tag: "IdleSince",
        limit,
      })),
    ].flatMap(Option.toArray);
    const isWide = Option.isSome(workspace);
    const isClear = !isWide || (Option.isSome(person) && Option.isNone(selector));
    if (erasable === undefined || others.length > 0 || !isClear)
      return yield* usageError(
        "Give exactly one of --id, --user-ref and --idle-since; --workspace requires --user-ref and cannot be combined with --chatbot.",
        '"parley chats erase --help" explains the command, with examples.',
      );
    const archive = yield* ChatArchive;
    const chatbots = yield* chatbotsOf(workspace, selector);
    const by = yield* actor;
    const erasures = yield* Effect.forEach(chatbots, ({ chatbot: { id: chatbot } }) =>
      Effect.map(archive.erase(chatbot, erasable, by), (erased) => ({ chatbot, erased })),
    );
    const chats = erasures.reduce((sum, { erased }) => sum + erased, 0);
    yield* print(isWide ? erasures : erasures[0], `Erased ${pluralize(chats, "chat")}.`);
  }, onDatabase),
});

const post = makeCommand("post", {
  description: "Add an entry without a question to a chat, such as a colleague's answer",
  examples: {
    'parley chats post 17 "It is in stock again." --author Ann': "Post a colleague's answer",
    "parley chats post 17 < notice.txt": "Post a file",
    'parley chats post 17 "See page 3." --metadata \'{"sources":[{"title":"Manual"}]}\'':
      "Post an answer with its source",
  },
  flags: {
    chatbot: chatbotFlag,
    id: Argument.Int("id").pipe(
      Argument.withSchema(ChatId),
      Argument.withDescription("Id of the chat"),
    ),
    text: Argument.String("text").pipe(
      Argument.optional,
      Argument.withDescription("The text (default: read from standard input)"),
    ),
    author: Flag.String("author").pipe(
      Flag.filter(
        (author) => Schema.is(UserRef)(author) && !isBlank(author),
        () => "Expected 1 to 60 characters",
      ),
      Flag.optional,
      Flag.withDescription("Who wrote the text, as users see it (metadata.author)"),
    ),
    metadata: Flag.String("metadata").pipe(
      Flag.filterMap(
        Schema.decodeUnknownOption(Schema.fromJsonString(PostMetadata)),
        () =>
          "Expected a JSON object of at most 16 KiB with an author of at most 60 characters, if any",
      ),
      Flag.optional,
      Flag.withDescription("Metadata of the entry, as a JSON object"),
    ),
  },
  run: Effect.fnUntraced(function* ({ chatbot: selector, id: chatId, text, ...flags }) {
    const { layerPosting } = yield* Effect.promise(() => import("../../layers/AskingLayer.ts"));
    const { chatbot } = yield* chatbotOf(selector);
    const { stdin } = yield* Stdio.Stdio;
    const { author, metadata } = valuesOf(flags);
    const post = {
      chatId,
      text: Option.isSome(text)
        ? text.value
        : (yield* Stream.mkString(Stream.decodeText(stdin))).trimEnd(),
      metadata: author === undefined ? (metadata ?? null) : { ...metadata, author },
    };
    const { entry } = yield* Asking.use((asking) => asking.post(chatbot, post)).pipe(
      Effect.tap(({ entry }) => record(chatbot.id, "post", `chat ${chatId}, entry ${entry.id}`)),
      Effect.uninterruptible,
      Effect.provide(layerPosting),
    );
    const { createTime, id } = entry;
    yield* print({ chat: chatId, id, createTime }, `Posted entry ${id} in chat ${chatId}.`);
  }, onDatabase),
});

const exportChats = makeCommand("export", {
  description: "Export a chatbot's chats and entries as newline-delimited JSON",
  examples: {
    "parley chats export | gzip > chats.ndjson.gz": "Export to a compressed file",
    "parley chats export --user-ref user-7 > user-7.ndjson": "Export a user's chats",
  },
  flags: { chatbot: chatbotFlag, userRef: textFlag("user-ref", "Only chats with this userRef") },
  run: Effect.fnUntraced(function* ({ chatbot: selector, userRef }) {
    const { chatbot } = yield* chatbotOf(selector);
    const person = Option.getOrUndefined(yield* personOf(userRef));
    const archive = yield* ChatArchive;
    let records = 0;
    yield* archive.export(chatbot.id, yield* actor, person).pipe(
      Stream.tap(() => Effect.sync(() => records++)),
      encodeArchive,
      // Writes several lines at once, but few enough that the longest ones fit into one string.
      Stream.rechunk(16),
      Stream.runForEachArray((lines) => write(lines.join(""))),
    );
    yield* Console.error(`Exported ${pluralize(records, "record")} (chats and entries).`);
  }, onDatabase),
});

const importChats = makeCommand("import", {
  description: "Import chats into a chatbot without chats, keeping their ids and times",
  examples: { "parley chats import --chatbot 2 < chats.ndjson": "Import a file" },
  flags: { chatbot: chatbotFlag },
  run: Effect.fnUntraced(function* ({ chatbot: selector }) {
    const { chatbot } = yield* chatbotOf(selector);
    const archive = yield* ChatArchive;
    const { stdin } = yield* Stdio.Stdio;
    const chats = yield* archive.import(chatbot.id, decodeArchive(stdin), yield* actor);
    yield* print({ chatbot: chatbot.id, imported: chats }, `Imported ${pluralize(chats, "chat")}.`);
  }, onDatabase),
});

export const chats = Command.make("chats").pipe(
  withHelp({
    description: "Show, erase, export and import chats, and post in them",
    examples: {
      "parley chats list": "List the newest chats",
      "parley chats export > chats.ndjson": "Back up the only chatbot's chats",
      "parley chats erase --help": "Show how to erase chats",
    },
  }),
  Command.withSubcommands([list, show, post, erase, exportChats, importChats]),
);
