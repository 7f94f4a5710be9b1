/**
 * Shows chats, erases them, and moves them between stores.
 */
import {
  ChatId,
  Administration,
  decodeArchive,
  encodeArchive,
  defaultEntryQuery,
  defaultChatQuery,
} from "@parley/core";
import { ChatArchive, ChatStore, type Erasable } from "@parley/core/ports";
import { Console, Effect, Option, Stdio, Stream } from "effect";
import { Argument, Command, Flag } from "effect/cli";
import { actor, onDatabase, recordRead } from "../Database.ts";
import { makeCommand, withHelp } from "../Declaration.ts";
import { CommandFailed } from "../CommandErrors.ts";
import {
  chatbotFlag,
  chatbotOf,
  chatbotsIn,
  countFlag,
  sinceFlag,
  switchFlag,
  textFlag,
} from "../Flags.ts";
import { pluralize, details, print, table, write } from "../Output.ts";

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
  text: switchFlag("text", "Also show users' texts: names, questions and answers"),
};

/** Returns the texts if they may be shown, and only their lengths otherwise. */
const textFields = (texts: Readonly<Record<string, string | null>>, isShown: boolean) =>
  isShown
    ? texts
    : Object.fromEntries(
        Object.entries(texts).map(([name, text]) => [
          `${name}Length`,
          text === null ? null : [...text].length,
        ]),
      );

const personOf = (userRef: Option.Option<string>) =>
  Administration.use(({ person }) => Effect.transposeOption(Option.map(userRef, person)));

const list = makeCommand("list", {
  description: "List chats, newest first, with the total count",
  examples: {
    "parley chats list --user-ref user-7": "List a user's newest chats",
    "parley chats list --search invoice --text": "Find chats by name, and show the names",
    "parley chats list --limit 100 --page 2 --json": "Print the second page as JSON",
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
    "parley chats show 17": "Show each entry's time, text lengths and moderation",
    "parley chats show 17 --text": "Also show questions and answers",
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
    });
    const entries = items.map(({ answer, chatId: _, metadata: __, question, ...entry }) => ({
      ...entry,
      ...textFields({ question, answer }, text),
    }));
    const rows = entries.map((entry) => details(Object.entries(entry)));
    const footer = `${rows.length} of ${pluralize(total, "entry", "entries")}`;
    yield* print({ total, entries }, [...rows, footer].join("\n\n"));
  }, onDatabase),
});

const erase = makeCommand("erase", {
  description: "Permanently erase chats, including their entries and usage",
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
    if (erasable === undefined || others.length > 0 || !isClear) {
      return yield* new CommandFailed({
        message:
          "Give exactly one of --id, --user-ref and --idle-since; --workspace requires --user-ref and cannot be combined with --chatbot.",
        hint: '"parley chats erase --help" explains the command, with examples.',
        exitCode: 2,
      });
    }
    const archive = yield* ChatArchive;
    const chatbots = isWide ? yield* chatbotsIn(workspace.value) : [yield* chatbotOf(selector)];
    const by = yield* actor;
    const erasures = yield* Effect.forEach(chatbots, ({ chatbot: { id: chatbot } }) =>
      Effect.map(archive.erase(chatbot, erasable, by), (erased) => ({ chatbot, erased })),
    );
    const chats = erasures.reduce((sum, { erased }) => sum + erased, 0);
    yield* print(isWide ? erasures : erasures[0], `Erased ${pluralize(chats, "chat")}.`);
  }, onDatabase),
});

const exportChats = makeCommand("export", {
  description: "Export a chatbot's chats and entries as newline-delimited JSON",
  examples: {
    "parley chats export > chats.ndjson": "Export to a file",
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
    description: "Show, erase, export and import chats",
    examples: {
      "parley chats list": "List the newest chats",
      "parley chats export > chats.ndjson": "Back up the only chatbot's chats",
      "parley chats erase --help": "Show how to erase chats",
    },
  }),
  Command.withSubcommands([list, show, erase, exportChats, importChats]),
);
