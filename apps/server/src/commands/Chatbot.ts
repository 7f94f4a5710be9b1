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
import { onDatabase } from "../Database.ts";
import { actor } from "./Actor.ts";
import { changeOf, chatbotFlags } from "./ChatbotFlags.ts";
import { details, jsonFlag, print, table } from "./Output.ts";
import { chatbotFlag, chatbotOf, registeredChatbotOf } from "./Subject.ts";
import { wrongUsage } from "./WrongUsage.ts";

/** For programs: the fields of the provisioning file, and the id. */
const documentOf = ({ description, id, name, settings, workspaceName }: Chatbot) => ({
  id,
  workspace: workspaceName,
  name,
  description,
  ...settings,
});

const titleOf = ({ id, name, workspaceName }: Chatbot) =>
  `chatbot ${id} "${name}" of the workspace "${workspaceName}"`;

const liveKeys = ({ keys }: RegisteredChatbot, now: number) =>
  keys.filter((key) => keyState(key, now) === "live").length;

const create = Command.make("create", { ...chatbotFlags, json: jsonFlag }, ({ json, ...flags }) =>
  Effect.gen(function* () {
    const change = yield* changeOf("create", flags);
    if (change.name === undefined) {
      return yield* wrongUsage(["chatbot", "create"], "Name the chatbot with --name.");
    }
    const { name, ...rest } = change;
    yield* Effect.gen(function* () {
      const administration = yield* Administration;
      const [only, ...others] = yield* administration.workspaces;
      const workspaceName = rest.workspaceName ?? (others.length === 0 ? only?.name : undefined);
      if (workspaceName === undefined) {
        return yield* wrongUsage(
          ["chatbot", "create"],
          "Name the workspace with --workspace; without it there must be exactly one.",
        );
      }
      const made = yield* administration.createChatbot(
        { ...rest, name, workspaceName },
        yield* actor,
      );
      yield* print(json, documentOf(made), () => `Created the ${titleOf(made)}.`);
    }).pipe(onDatabase);
  }),
).pipe(
  Command.withDescription("Make a chatbot; it needs a key before anybody can talk to it"),
  Command.withExamples([
    {
      command: "parley chatbot create --workspace Acme --name Helpdesk",
      description: "With the usual settings",
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
    const chatbots = yield* Administration.use((administration) => administration.chatbots);
    const now = yield* Clock.currentTimeMillis;
    yield* print(
      json,
      chatbots.map((one) => ({ ...documentOf(one.chatbot), liveKeys: liveKeys(one, now) })),
      () =>
        table(
          ["ID", "WORKSPACE", "NAME", "LIVE KEYS", "DESCRIPTION"],
          chatbots.map((one) => [
            one.chatbot.id,
            one.chatbot.workspaceName,
            one.chatbot.name,
            liveKeys(one, now),
            one.chatbot.description,
          ]),
        ),
    );
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
      const { chatbot } = registered;
      const { settings } = chatbot;
      const live = liveKeys(registered, yield* Clock.currentTimeMillis);
      yield* print(json, { ...documentOf(chatbot), liveKeys: live }, () =>
        details([
          ["id", chatbot.id],
          ["workspace", chatbot.workspaceName],
          ["name", chatbot.name],
          ["description", chatbot.description],
          ["hello-message", settings.helloMessage || "- (off)"],
          ["moderation-error-message", settings.moderationErrorMessage],
          ["instructions", settings.instructions ?? "- (none)"],
          ["model", settings.model ?? "- (the usual one)"],
          ["moderation", settings.moderation ?? "- (as usual)"],
          ["knowledge", settings.knowledge ?? "- (the usual documents)"],
          ["retention-days", settings.retentionDays ?? "- (for ever)"],
          ["live keys", live],
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
      if (Object.keys(settings).length + Object.keys(names).length === 0) {
        return yield* wrongUsage(["chatbot", "set"], "Say what to change.");
      }
      yield* Effect.gen(function* () {
        const before = yield* chatbotOf(wanted);
        const administration = yield* Administration;
        const changed = yield* administration.changeChatbot(before.id, change, yield* actor);
        const fields = changedFields(before, change);
        yield* print(json, documentOf(changed), () =>
          fields.length === 0
            ? `The ${titleOf(changed)} is so already.`
            : `Changed the ${titleOf(changed)}: ${fields.join(", ")}.`,
        );
      }).pipe(onDatabase);
    }),
).pipe(
  Command.withDescription(
    "Change what is named of a chatbot; servers follow within a second, or 30 without LISTEN",
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

/** Asks whoever sits at the terminal; fails unless the answer is yes. */
const mustConfirm = Effect.fnUntraced(function* (question: string) {
  const { stdin, stdinIsTerminal } = yield* Stdio.Stdio;
  if (!(yield* stdinIsTerminal)) {
    return yield* wrongUsage(["chatbot", "delete"], "Confirm it with --yes.");
  }
  yield* Console.error(`${question} Type yes:`);
  const lines = stdin.pipe(Stream.decodeText, Stream.splitLines);
  // A terminal that is still being read would keep the process.
  const answer = yield* Effect.ensuring(
    Stream.runHead(lines),
    Effect.sync(() => process.stdin.unref?.()),
  );
  if (!Option.contains(answer, "yes")) {
    return yield* new NotConfirmed({ message: "Nothing was deleted." });
  }
});

const remove = Command.make(
  "delete",
  {
    chatbot: Argument.String("chatbot").pipe(Argument.withDescription("The chatbot's id or name")),
    yes: Flag.Boolean("yes").pipe(Flag.withDefault(false), Flag.withDescription("Ask nothing")),
    json: jsonFlag,
  },
  ({ chatbot: wanted, json, yes }) =>
    Effect.gen(function* () {
      const { chatbot, keys } = yield* registeredChatbotOf(Option.some(wanted));
      const administration = yield* Administration;
      const count = (n: number, what: string) => `${n} ${what}${n === 1 ? "" : "s"}`;
      const withKeys = (chats: number) =>
        `the ${titleOf(chatbot)} with ${count(chats, "chat")} and ${count(keys.length, "key")}`;
      if (!yes) {
        const store = yield* ChatStore;
        const { total } = yield* store.listChats(chatbot.id, { ...newestChats, limit: 1 });
        yield* mustConfirm(`This deletes ${withKeys(total)}, for ever.`);
      }
      const chats = yield* administration.deleteChatbot(chatbot.id, yield* actor);
      const document = { id: chatbot.id, chats, keys: keys.length };
      yield* print(json, document, () => `Deleted ${withKeys(chats)}.`);
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("Delete a chatbot with its keys and all its chats, for ever"),
  Command.withExamples([
    { command: "parley chatbot delete Helpdesk", description: "Shows what goes, and asks" },
    { command: "parley chatbot delete 3 --yes", description: "Without a question, for scripts" },
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
