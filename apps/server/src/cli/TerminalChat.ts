/**
 * A conversation between a chatbot and one person or one pipe.
 */
import {
  ChatId,
  Asking,
  AskLimits,
  ChatName,
  Chats,
  isBlank,
  defaultEntryQuery,
  defaultChatQuery,
  describeSchemaError,
  questionOf,
  type Chat,
  type Chatbot,
} from "@parley/core";
import { Console, Effect, Schema, Stdio, Stream } from "effect";
import { recordRead } from "./Database.ts";
import { CommandFailed, describeError, printError } from "./CommandErrors.ts";
import { details, pluralize, printable, table, write } from "./Output.ts";
import type { Prompt } from "./TerminalPrompt.ts";
import { makeTypesetter } from "./Terminal.ts";
import { Settings } from "../Settings.ts";

const help = `/new [NAME]  start a new chat
/open ID     continue a chat
/chats       list the newest chats
/history     show the newest entries in this chat
/help        show this help
Ctrl-C cancels an answer; none of it is stored. Ctrl-C at the prompt, or Ctrl-D, quits.`;

const decode = <A>(schema: Schema.Codec<A, string>, text: string, problem: string) =>
  Effect.mapError(
    Schema.decodeEffect(schema)(text),
    (error) =>
      new CommandFailed({
        message: `${problem}: ${describeSchemaError(error)}.`,
        hint: "PARLEY_QUESTION_LENGTH limits a question, and a name has at most 255 characters; neither may contain NUL.",
      }),
  );

/** The typesetter for output that goes to a pipe or a file, which leaves the text unchanged. */
const plain: ReturnType<typeof makeTypesetter> = { push: (text) => text, end: () => "\n" };

/** Says where answers come from with the settings of this process, as a predicate of `answers`. */
const describeAnswerer = ({ settings: { knowledge, model: ownModel } }: Chatbot) =>
  Effect.map(Settings, ({ knowledgeDir, llms }) => {
    // A chatbot's own model replaces the first model in the settings.
    const models = llms.map(
      ({ model, provider }, at) => `${(at === 0 && ownModel) || model} at ${provider}`,
    );
    const documents = [knowledgeDir ?? "Parley's own documentation", knowledge ?? []].flat();
    return models.length > 0 ? `come from ${models.join(", ")}` : `quote ${documents.join("/")}`;
  });

/** Creates a conversation, which is in one chat at a time. If `firstChat` is `null`, the first chat is a new one. */
const makeConversation = Effect.fnUntraced(function* (chatbot: Chatbot, firstChat: ChatId | null) {
  const asking = yield* Asking;
  const { questionLength } = yield* AskLimits;
  const chats = yield* Chats;
  let chat = firstChat;
  /** The name of the next chat to be created. */
  let name: typeof ChatName.Type | null = null;

  const ask = Effect.fnUntraced(function* (line: string) {
    const question = yield* decode(questionOf(questionLength), line, "The question was not asked");
    // The chat is created first: a chat that an ask creates has no hello entry.
    if (chat === null) {
      chat = (yield* chats.create(chatbot, { name })).chat.id;
      yield* Console.error(`Started chat ${chat}.`);
    }
    const { columns, isTTY } = process.stdout;
    const { end, push } = isTTY ? makeTypesetter(columns || 80) : plain;
    yield* asking.stream(chatbot, { chatId: chat, question, onDisconnect: "cancel" }).pipe(
      Stream.runForEach((event) =>
        event._tag === "Delta" ? write(push(printable(event.text))) : Effect.void,
      ),
      Effect.ensuring(Effect.suspend(() => Effect.ignore(write(end())))),
    );
  });

  /** Counts the entries of a chat. Fails with `ChatNotFound` if the chat does not exist. */
  const count = (id: ChatId) =>
    Effect.map(
      chats.history(chatbot, id, { ...defaultEntryQuery, limit: 1 }),
      ({ total }) => total,
    );

  const startChat = Effect.fnUntraced(function* (title = "") {
    name = title === "" ? null : yield* decode(ChatName, title, "The chat was not created");
    chat = null;
    const { helloMessage } = chatbot.settings;
    if (helloMessage) yield* write(printable(`${helloMessage}\n`));
  });
  const openChat = Effect.fnUntraced(function* (id: string) {
    const chatId = ChatId.make(Number(id), { disableChecks: true });
    const total = yield* count(chatId);
    chat = chatId;
    yield* Console.error(
      `Chat ${id} has ${pluralize(total, "entry", "entries")}. /history shows the newest.`,
    );
  });
  const history = Effect.gen(function* () {
    if (chat === null) return yield* Console.error("This new chat has no history yet.");
    yield* recordRead(chatbot.id, `chat ${chat}`);
    const { items, total } = yield* chats.history(chatbot, chat, defaultEntryQuery);
    const entries = items.toReversed().map(({ answer, createTime, question }) =>
      details([
        ["time", createTime],
        ["question", question],
        ["answer", answer],
      ]),
    );
    yield* Console.error([...entries, `Newest entries: ${items.length} of ${total}.`].join("\n\n"));
  });
  /** Returns the chat, with its first question in place of a missing name. */
  const withTitle = Effect.fnUntraced(function* (chat: Chat) {
    if (chat.name !== null) return chat;
    const query = {
      ...defaultEntryQuery,
      limit: 2,
      orderBy: [{ field: "id", descending: false }],
    } as const;
    const { items } = yield* chats.history(chatbot, chat.id, query);
    return { ...chat, name: items.find(({ question }) => question !== "")?.question ?? null };
  });
  const list = Effect.gen(function* () {
    yield* recordRead(chatbot.id, "chat names");
    const { items, total } = yield* chats.list(chatbot, defaultChatQuery);
    const titledChats = yield* Effect.forEach(items, withTitle);
    const rows = table(titledChats, ["id", "createTime", "name"]);
    yield* Console.error(`${rows}\n${items.length} of ${pluralize(total, "chat")}`);
  });

  return { ask, count, startChat, openChat, history, list };
});

/**
 * Asks each line that is not a command as a question. Writes hello messages and streamed answers to standard output,
 * and everything else to standard error. Prints why a line fails, then continues. Returns the number of failed lines.
 *
 * @param chatId the chat to continue; `null` for a new one, which begins with the first question
 * @param prompt the terminal, on which lines may be commands; `null` to ask every line of standard input
 */
export const converse = Effect.fnUntraced(function* (
  chatbot: Chatbot,
  chatId: ChatId | null,
  prompt: Prompt | null,
) {
  const { stdin } = yield* Stdio.Stdio;
  const conversation = yield* makeConversation(chatbot, chatId);

  const runLine = Effect.fnUntraced(function* (line: string) {
    if (prompt === null || !line.startsWith("/")) return yield* conversation.ask(line);
    const [, command, argument = ""] = /^(\/\w*)\s*(.*?)\s*$/.exec(line) ?? [];
    if (command === "/new") return yield* conversation.startChat(argument);
    if (command === "/open" && /^\d+$/.test(argument))
      return yield* conversation.openChat(argument);
    if (command === "/chats") return yield* conversation.list;
    if (command === "/history") return yield* conversation.history;
    return yield* Console.error(help);
  });

  if (chatId !== null) yield* conversation.count(chatId);
  if (prompt !== null) {
    yield* Console.error(
      `You are talking to ${chatbot.name} (${chatbot.workspaceName}). With this shell's settings, answers ${yield* describeAnswerer(chatbot)}; a running server may have different settings.
Enter sends a question, Ctrl-C cancels an answer, Ctrl-D quits, /help shows more.`,
    );
    if (chatId === null) yield* conversation.startChat();
    yield* prompt.show;
  }
  const lines =
    prompt?.lines ?? stdin.pipe(Stream.decodeText, Stream.splitLines, Stream.rechunk(1));
  let failures = 0;
  const answerLine = Effect.fnUntraced(
    function* (line: string) {
      if (isBlank(line)) return;
      yield* prompt === null ? runLine(line) : prompt.stoppable(runLine(line));
    },
    Effect.catchTag("Stopped", () => Console.error("Stopped.")),
    Effect.catch((error) => {
      failures += 1;
      return printError(describeError(error));
    }),
  );
  yield* Stream.runForEach(lines, (line) =>
    Effect.andThen(answerLine(line), prompt?.show ?? Effect.void),
  );
  return failures;
});
