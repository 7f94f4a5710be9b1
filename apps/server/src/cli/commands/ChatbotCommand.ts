/**
 * Chatbots and their settings.
 */
import {
  Administration,
  changedFields,
  ChatStore,
  keyState,
  newestChats,
  type Chatbot,
  type RegisteredChatbot,
} from "@parley/core";
import { Clock, Console, Data, Effect, Option, Stdio, Stream } from "effect";
import { Argument, Command, Flag } from "effect/cli";
import { changeOf, chatbotFlags } from "../ChatbotFlags.ts";
import { actor, onDatabase } from "../Database.ts";
import { wrongUsage } from "../Errors.ts";
import { chatbotFlag, chatbotOf, jsonFlag, registeredChatbotOf } from "../Flags.ts";
import { counted, details, print, printTable } from "../Output.ts";

/** The fields of the provisioning file, and the id. */
const documentOf = ({ description, id, name, settings, workspaceName }: Chatbot) => ({
  id,
  workspace: workspaceName,
  name,
  description,
  ...settings,
});

const withLiveKeys = ({ chatbot, keys }: RegisteredChatbot, now: number) => ({
  ...documentOf(chatbot),
  liveKeys: keys.filter((key) => keyState(key, now) === "live").length,
});

const titleOf = ({ id, name, workspaceName }: Chatbot) =>
  `chatbot ${id} "${name}" of the workspace "${workspaceName}"`;

const create = Command.make("create", { ...chatbotFlags, json: jsonFlag }, ({ json, ...flags }) =>
  Effect.gen(function* () {
    const wrong = (message: string) => wrongUsage(["chatbot", "create"], message);
    const { name, ...rest } = yield* changeOf("create", flags);
    if (name === undefined) return yield* wrong("Name the chatbot with --name.");
    yield* Effect.gen(function* () {
      const administration = yield* Administration;
      const [only, ...others] = yield* administration.workspaces;
      const workspaceName = rest.workspaceName ?? (others.length === 0 ? only?.name : undefined);
      if (workspaceName === undefined) {
        return yield* wrong(
          "Name the workspace with --workspace; without it there must be exactly one.",
        );
      }
      const created = yield* administration.createChatbot(
        { ...rest, name, workspaceName },
        yield* actor,
      );
      yield* print(json, documentOf(created), () => `Created the ${titleOf(created)}.`);
    }).pipe(onDatabase);
  }),
).pipe(
  Command.withDescription("Create a chatbot; it needs a key before a client can use it"),
  Command.withExamples([
    {
      command: "parley chatbot create --workspace Acme --name Helpdesk",
      description: "With the default settings",
    },
    {
      command:
        "parley chatbot create --name Sales --hello-message 'Hello!' --instructions-file sales.md",
      description: "In the only workspace, with a hello message and instructions from a file",
    },
  ]),
);

const list = Command.make("list", { json: jsonFlag }, ({ json }) =>
  Effect.gen(function* () {
    const registered = yield* Administration.use((administration) => administration.chatbots);
    const now = yield* Clock.currentTimeMillis;
    const documents = registered.map((one) => withLiveKeys(one, now));
    yield* printTable(json, documents, {
      ID: ({ id }) => id,
      WORKSPACE: ({ workspace }) => workspace,
      NAME: ({ name }) => name,
      "LIVE KEYS": ({ liveKeys }) => liveKeys,
      DESCRIPTION: ({ description }) => description,
    });
  }).pipe(onDatabase),
).pipe(
  Command.withDescription("List the chatbots"),
  Command.withExamples([
    { command: "parley chatbot list", description: "A table" },
    { command: "parley chatbot list --json", description: "With every setting, for a program" },
  ]),
);

const show = Command.make(
  "show",
  { chatbot: chatbotFlag, json: jsonFlag },
  ({ chatbot: wanted, json }) =>
    Effect.gen(function* () {
      const registered = yield* registeredChatbotOf(wanted);
      const document = withLiveKeys(registered, yield* Clock.currentTimeMillis);
      yield* print(json, document, () =>
        details([
          ["id", document.id],
          ["workspace", document.workspace],
          ["name", document.name],
          ["description", document.description],
          ["hello-message", document.helloMessage || "- (off)"],
          ["moderation-error-message", document.moderationErrorMessage],
          ["instructions", document.instructions ?? "- (none)"],
          ["model", document.model ?? "- (the server's)"],
          ["moderation", document.moderation ?? "- (the server's)"],
          ["knowledge", document.knowledge ?? "- (the server's documents)"],
          ["retention-days", document.retentionDays ?? "- (unlimited)"],
          ["live keys", document.liveKeys],
        ]),
      );
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("Show a chatbot with all its settings"),
  Command.withExamples([
    { command: "parley chatbot show", description: "The only one" },
    { command: "parley chatbot show --chatbot Helpdesk --json", description: "For a program" },
  ]),
);

const set = Command.make(
  "set",
  { chatbot: chatbotFlag, ...chatbotFlags, json: jsonFlag },
  ({ chatbot: wanted, json, ...flags }) =>
    Effect.gen(function* () {
      const change = yield* changeOf("set", flags);
      const { settings = {}, ...names } = change;
      if (Object.keys({ ...settings, ...names }).length === 0) {
        return yield* wrongUsage(["chatbot", "set"], "Name what to change.");
      }
      yield* Effect.gen(function* () {
        const before = yield* chatbotOf(wanted);
        const administration = yield* Administration;
        const changed = yield* administration.changeChatbot(before.id, change, yield* actor);
        const fields = changedFields(before, change);
        yield* print(json, documentOf(changed), () =>
          fields.length === 0
            ? `The ${titleOf(changed)} is unchanged.`
            : `Changed the ${titleOf(changed)}: ${fields.join(", ")}.`,
        );
      }).pipe(onDatabase);
    }),
).pipe(
  Command.withDescription(
    "Change the named fields of a chatbot; servers follow within a second, or 30 without LISTEN",
  ),
  Command.withExamples([
    { command: "parley chatbot set --hello-message 'Good day!'", description: "Of the only one" },
    {
      command: "parley chatbot set --chatbot Helpdesk --unset hello-message --retention-days 30",
      description: "No hello message, and chats are erased after 30 idle days",
    },
    {
      command: "parley chatbot set --chatbot 3 --instructions-file - < instructions.md",
      description: "Instructions from standard input",
    },
  ]),
);

export class NotConfirmed extends Data.TaggedError("NotConfirmed")<{ readonly message: string }> {}

/** Asks on the terminal; fails unless the answer is yes. */
const mustConfirm = Effect.fnUntraced(function* (question: string) {
  const { stdin, stdinIsTerminal } = yield* Stdio.Stdio;
  if (!(yield* stdinIsTerminal)) {
    return yield* wrongUsage(["chatbot", "delete"], "Confirm it with --yes.");
  }
  yield* Console.error(`${question} Type yes:`);
  const answer = yield* stdin.pipe(Stream.decodeText, Stream.splitLines, Stream.runHead);
  // A terminal whose reading is not over would keep the process.
  process.stdin.unref?.();
  if (!Option.contains(answer, "yes")) {
    return yield* new NotConfirmed({ message: "Nothing was deleted." });
  }
});

const remove = Command.make(
  "delete",
  {
    chatbot: Argument.String("chatbot").pipe(Argument.withDescription("The chatbot's id or name")),
    yes: Flag.Boolean("yes").pipe(
      Flag.withDefault(false),
      Flag.withDescription("Do not ask for confirmation"),
    ),
    json: jsonFlag,
  },
  ({ chatbot: wanted, json, yes }) =>
    Effect.gen(function* () {
      const { chatbot, keys } = yield* registeredChatbotOf(Option.some(wanted));
      const administration = yield* Administration;
      const withKeys = (chats: number) =>
        `the ${titleOf(chatbot)} with ${counted(chats, "chat")} and ${counted(keys.length, "key")}`;
      if (!yes) {
        const store = yield* ChatStore;
        const { total } = yield* store.listChats(chatbot.id, { ...newestChats, limit: 1 });
        yield* mustConfirm(`This permanently deletes ${withKeys(total)}.`);
      }
      const chats = yield* administration.deleteChatbot(chatbot.id, yield* actor);
      const document = { id: chatbot.id, chats, keys: keys.length };
      yield* print(json, document, () => `Deleted ${withKeys(chats)}.`);
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("Permanently delete a chatbot with its keys and all its chats"),
  Command.withExamples([
    {
      command: "parley chatbot delete Helpdesk",
      description: "Shows what is deleted, and asks for confirmation",
    },
    { command: "parley chatbot delete 3 --yes", description: "Asks nothing, for scripts" },
  ]),
);

export const chatbot = Command.make("chatbot").pipe(
  Command.withDescription("Chatbots and their settings"),
  Command.withExamples([
    { command: "parley chatbot list", description: "All of them" },
    { command: "parley chatbot set --help", description: "How to change one" },
  ]),
  Command.withSubcommands([create, list, show, set, remove]),
);
