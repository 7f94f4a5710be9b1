/**
 * Chatbots and their settings.
 */
import {
  Administration,
  defaultSettings,
  defaultChatQuery,
  type Chatbot,
  type ChatbotSettings,
} from "@parley/core";
import { ChatArchive, ChatStore } from "@parley/core/ports";
import { Effect, Option, String } from "effect";
import { Argument, Command, Flag } from "effect/cli";
import { actor, onDatabase } from "../Database.ts";
import { makeCommand, withHelp } from "../Declaration.ts";
import { CommandFailed, noChanges } from "../CommandErrors.ts";
import { chatbotFlag, chatbotOf, valuesOf, switchFlag, textFlag } from "../Flags.ts";
import { pluralize, details, print, table } from "../Output.ts";

const settingFlags = {
  helloMessage: textFlag("hello-message", "First entry of each chat that a client creates"),
  moderationErrorMessage: textFlag("moderation-error-message", "Answer to flagged questions"),
  instructions: textFlag("instructions", "Instructions for the language model"),
  model: textFlag("model", "Language model, as its provider names it"),
  moderation: Flag.Literals("moderation", ["off", "endpoint"]).pipe(
    Flag.optional,
    Flag.withDescription("How questions are moderated"),
  ),
  knowledge: textFlag("knowledge", "Subfolder of PARLEY_KNOWLEDGE_DIR to answer from"),
  notFoundMessage: textFlag(
    "not-found-message",
    "Answer if the documents do not answer a question",
  ),
  sourceUrl: textFlag(
    "source-url",
    "Address of a source, such as https://docs.example/{path}#{heading}",
  ),
  suggestedQuestions: Flag.String("suggested-question").pipe(
    Flag.atLeast(0),
    Flag.map((questions) => (questions.length > 0 ? Option.some(questions) : Option.none())),
    Flag.withDescription("Question that pages suggest; repeatable, up to six"),
  ),
  retentionDays: Flag.Int("retention-days").pipe(
    Flag.optional,
    Flag.withDescription("Erase a chat after this many days without an entry"),
  ),
} satisfies Record<keyof ChatbotSettings, unknown>;

/** Converts a chatbot to the fields of the provisioning file, plus the id. */
const documentOf = ({ description, id, name, settings, workspaceName }: Chatbot) => ({
  id,
  workspace: workspaceName,
  name,
  description,
  ...settings,
});

const titleOf = ({ id, name, workspaceName }: Chatbot) =>
  `chatbot ${id} "${name}" in workspace "${workspaceName}"`;

const create = makeCommand("create", {
  description: "Create a chatbot; clients also need a key for it",
  examples: {
    "parley chatbot create --workspace Acme --name Helpdesk": "Create one with default settings",
    'parley chatbot create --workspace Acme --name Sales --instructions "$(cat sales.md)"':
      "Read the instructions from a file",
  },
  flags: {
    workspaceName: Flag.String("workspace").pipe(Flag.withDescription("Name of the workspace")),
    name: Flag.String("name").pipe(Flag.withDescription("Name, unique within the workspace")),
    description: Flag.String("description").pipe(
      Flag.withDefault(""),
      Flag.withDescription("Description, returned by GET /details"),
    ),
    settings: settingFlags,
  },
  run: Effect.fnUntraced(function* ({ settings, ...names }) {
    const administration = yield* Administration;
    const chatbot = { ...names, settings: valuesOf(settings) };
    const newChatbot = yield* administration.createChatbot(chatbot, yield* actor);
    yield* print(documentOf(newChatbot), `Created ${titleOf(newChatbot)}.`);
  }, onDatabase),
});

const list = makeCommand("list", {
  description: "List the chatbots",
  examples: { "parley chatbot list --json": "Print all settings as JSON" },
  run: Effect.fnUntraced(function* () {
    const registeredChatbots = yield* Administration.use(
      (administration) => administration.chatbots,
    );
    const documents = registeredChatbots.map(({ chatbot }) => documentOf(chatbot));
    yield* print(documents, table(documents, ["id", "workspace", "name", "description"]));
  }, onDatabase),
});

const size = makeCommand("size", {
  description: "List what each chatbot keeps, the biggest first; large tables are estimated",
  examples: { "parley chatbot size": "Print a table of chats, entries and bytes" },
  run: Effect.fnUntraced(function* () {
    const sizes = yield* ChatArchive.use((archive) => archive.sizes);
    const sizeOf = new Map(sizes.map(({ chatbot, ...size }) => [chatbot, size]));
    const registeredChatbots = yield* Administration.use(({ chatbots }) => chatbots);
    const documents = registeredChatbots
      .flatMap(({ chatbot: { id, name, workspaceName: workspace } }) => {
        const size = sizeOf.get(id);
        return size === undefined ? [] : [{ id, workspace, name, ...size }];
      })
      .toSorted((a, b) => b.bytes - a.bytes);
    const columns = ["id", "workspace", "name", "chats", "entries", "bytes"];
    yield* print(documents, table(documents, columns));
  }, onDatabase),
});

const show = makeCommand("show", {
  description: "Show a chatbot with all its settings",
  examples: { "parley chatbot show --chatbot Helpdesk": "Show one of several chatbots" },
  flags: { chatbot: chatbotFlag },
  run: Effect.fnUntraced(function* ({ chatbot: selector }) {
    const { chatbot } = yield* chatbotOf(selector);
    const document = documentOf(chatbot);
    yield* print(document, details(Object.entries(document)));
  }, onDatabase),
});

const settingNames = Object.keys(defaultSettings) as ReadonlyArray<keyof ChatbotSettings>;

const set = makeCommand("set", {
  description: "Change a chatbot's fields; servers apply the change within a second",
  examples: {
    "parley chatbot set --hello-message 'Good day!'": "Set the only chatbot's hello message",
    "parley chatbot set --chatbot Helpdesk --unset hello-message --retention-days 30":
      "Remove the hello message, and erase chats after 30 idle days",
  },
  flags: {
    chatbot: chatbotFlag,
    names: {
      workspaceName: textFlag("workspace", "Move the chatbot to this workspace"),
      name: textFlag("name", "New name, unique within the workspace"),
      description: textFlag("description", "New description, returned by GET /details"),
    },
    settings: settingFlags,
    unset: Flag.ChoiceWithValue(
      "unset",
      settingNames.map((name) => [String.kebabCase(name), name] as const),
    ).pipe(Flag.atLeast(0), Flag.withDescription("Reset a setting to its default; repeatable")),
  },
  run: Effect.fnUntraced(function* ({ chatbot: selector, names, settings, unset }) {
    const defaults = Object.fromEntries(unset.map((name) => [name, defaultSettings[name]]));
    const fields = { ...valuesOf(names), ...valuesOf(settings), ...defaults };
    if (Object.keys(fields).length === 0) return yield* noChanges;
    const { chatbot } = yield* chatbotOf(selector);
    const administration = yield* Administration;
    const change = { ...valuesOf(names), settings: { ...valuesOf(settings), ...defaults } };
    const chatbotAfter = yield* administration.changeChatbot(chatbot.id, change, yield* actor);
    yield* print(documentOf(chatbotAfter), `Changed ${titleOf(chatbotAfter)}.`);
  }, onDatabase),
});

const remove = makeCommand("delete", {
  description: "Permanently delete a chatbot, its keys and all its chats",
  examples: {
    "parley chatbot delete Helpdesk": "Only show what would be deleted",
    "parley chatbot delete Helpdesk --yes": "Delete it",
  },
  flags: {
    chatbot: Argument.String("chatbot").pipe(Argument.withDescription("Id or name of the chatbot")),
    yes: switchFlag("yes", "Delete the chatbot instead of only showing what would be deleted"),
  },
  run: Effect.fnUntraced(function* ({ chatbot: selector, yes }) {
    const { chatbot, keys } = yield* chatbotOf(Option.some(selector));
    const withKeys = (chats: number) =>
      `${titleOf(chatbot)} with ${pluralize(chats, "chat")} and ${pluralize(keys.length, "key")}`;
    if (!yes) {
      const store = yield* ChatStore;
      const { total } = yield* store.listChats(chatbot.id, { ...defaultChatQuery, limit: 1 });
      return yield* new CommandFailed({
        message: `Nothing was deleted: --yes would delete ${withKeys(total)}.`,
        hint: "add --yes to delete the chatbot permanently.",
      });
    }
    const administration = yield* Administration;
    const chats = yield* administration.deleteChatbot(chatbot.id, yield* actor);
    const document = { id: chatbot.id, chats, keys: keys.length };
    yield* print(document, `Deleted ${withKeys(chats)}.`);
  }, onDatabase),
});

export const chatbot = Command.make("chatbot").pipe(
  withHelp({
    description: "Manage chatbots and their settings",
    examples: {
      "parley chatbot list": "List all chatbots",
      "parley chatbot set --help": "Show how to change one",
    },
  }),
  Command.withSubcommands([create, list, size, show, set, remove]),
);
