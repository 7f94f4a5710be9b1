/**
 * A conversation of one person, or one pipe, with a chatbot.
 */
import {
  Asking,
  Chats,
  isBlank,
  newest,
  newestChats,
  describeSchemaError,
  Question,
  type Chatbot,
} from "@parley/core";
import { Console, Effect, Schema, Stdio, Stream } from "effect";
import { recordRead } from "./Database.ts";
import { CommandFailed, describeError, printError } from "./Errors.ts";
import { details, printable, table, write } from "./Output.ts";
import type { Prompt } from "./Prompt.ts";

const help = `/new       begin a new chat
/chats     list the newest chats
/history   show the newest entries of this chat
/help      show this
Ctrl-C stops an answer, of which nothing is stored. Ctrl-C at the prompt, or Ctrl-D, leaves.`;

/**
 * Asks each line, and writes the answers to standard output as they arrive; everything else goes to standard error.
 * Prints why an ask fails, and goes on with the next line. Returns how many asks failed.
 *
 * @param chatId the chat to continue; `null` for a new one, which begins with the first question
 * @param prompt the terminal, whose lines may be commands; `null`: the lines of standard input are questions
 */
export const converse = Effect.fnUntraced(function* (
  chatbot: Chatbot,
  chatId: number | null,
  prompt: Prompt | null = null,
) {
  const asking = yield* Asking;
  const chats = yield* Chats;
  const { stdin } = yield* Stdio.Stdio;
  let chat = chatId;

  const ask = Effect.fnUntraced(function* (line: string) {
    const question = yield* Effect.mapError(
      Schema.decodeEffect(Question)(line),
      (error) =>
        new CommandFailed({
          message: `The question was not asked: ${describeSchemaError(error)}.`,
          hint: "a question has at most 200 characters, and none of them is NUL.",
        }),
    );
    // As a client does, so that the chat has its hello entry.
    if (chat === null) {
      chat = (yield* chats.create(chatbot, {})).chat.id;
      yield* Console.error(`Chat ${chat}.`);
    }
    yield* asking.stream(chatbot, { chatId: chat, question, onDisconnect: "cancel" }).pipe(
      Stream.runForEach((event) =>
        event._tag === "Delta" ? write(printable(event.text)) : Effect.void,
      ),
      Effect.ensuring(Effect.ignore(write("\n"))),
    );
  });

  const begin = Effect.suspend(() => {
    chat = null;
    const { helloMessage } = chatbot.settings;
    return helloMessage ? write(printable(`${helloMessage}\n`)) : Effect.void;
  });
  const history = Effect.gen(function* () {
    if (chat === null) return yield* Console.error("This chat is new.");
    yield* recordRead(chatbot.id, `chat ${chat}`);
    const { items, total } = yield* chats.history(chatbot, chat, newest);
    const entries = items.toReversed().map(({ answer, createTime, question }) =>
      details([
        ["time", createTime],
        ["question", question],
        ["answer", answer],
      ]),
    );
    yield* Console.error([...entries, `The newest ${items.length} of ${total}.`].join("\n\n"));
  });
  const list = Effect.gen(function* () {
    yield* recordRead(chatbot.id, "names of chats");
    const { items, total } = yield* chats.list(chatbot, newestChats);
    const rows = table(items, ["id", "createTime", "name"]);
    yield* Console.error(`${rows}\n${items.length} of ${total}`);
  });
  const answer = Effect.fnUntraced(function* (line: string) {
    if (prompt === null || !line.startsWith("/")) return yield* ask(line);
    const commands = { "/new": begin, "/chats": list, "/history": history };
    yield* commands[line.trim() as keyof typeof commands] ?? Console.error(help);
  });

  if (chatId !== null) yield* chats.history(chatbot, chatId, { ...newest, limit: 1 });
  if (prompt !== null) {
    yield* Console.error("Enter asks, Ctrl-C stops an answer, Ctrl-D leaves, /help shows more.");
    if (chatId === null) yield* begin;
    yield* prompt.show;
  }
  const lines =
    prompt?.lines ?? stdin.pipe(Stream.decodeText, Stream.splitLines, Stream.rechunk(1));
  let failures = 0;
  const answerLine = Effect.fnUntraced(
    function* (line: string) {
      if (isBlank(line)) return;
      yield* prompt === null ? answer(line) : prompt.stoppable(answer(line));
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
