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
import { Console, Effect, Result, Schema, Stdio, Stream } from "effect";
import { describeError, printError } from "./Errors.ts";
import { details, printable, table } from "./Output.ts";
import { Stopped, type Prompt } from "./Prompt.ts";

const help = `/new       begin a new chat
/chats     list the newest chats
/chat 17   continue the chat with this id
/history   show the newest entries of this chat
/help      show this
Ctrl-C stops an answer, of which nothing is stored. Ctrl-C at the prompt, or Ctrl-D, leaves.`;

/** A command and its argument. Other questions may begin with a slash, too. */
const commandLine = /^\/([a-z]+)(?: +([1-9]\d{0,14}))? *$/;

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
  const { stdin, stdout } = yield* Stdio.Stdio;
  const helloMessage = chatbot.settings.helloMessage || null;
  const write = (text: string) =>
    Stream.run(Stream.make(printable(text.replaceAll("\r", ""))), stdout({ endOnDone: false }));

  let chat: number | null = null;
  const open = Effect.fnUntraced(function* (id: number) {
    const { total } = yield* chats.history(chatbot, id, { ...newest, limit: 1 });
    yield* Console.error(`Chat ${id} of "${chatbot.name}"; entries so far: ${total}.`);
    chat = id;
  });
  const greet = Effect.suspend(() => {
    chat = null;
    return helloMessage === null ? Effect.void : write(`${helloMessage}\n`);
  });

  const ask = Effect.fnUntraced(function* (line: string) {
    const question = yield* Schema.decodeEffect(Question)(line);
    // As a client does, so that the chat has its hello entry.
    if (chat === null && helloMessage !== null) {
      chat = (yield* chats.create(chatbot, {})).chat.id;
      yield* Console.error(`Chat ${chat}.`);
    }
    let written = "";
    const endLine = Effect.suspend(() =>
      written === "" || written.endsWith("\n") ? Effect.void : write("\n"),
    );
    yield* asking.stream(chatbot, { chatId: chat, question, key: null, onHangUp: "cancel" }).pipe(
      Stream.runForEach(
        Effect.fnUntraced(function* (event) {
          if (event._tag === "Delta") {
            written = event.text;
            return yield* write(event.text);
          }
          if (chat === null) yield* Console.error(`Chat ${event.entry.chatId}.`);
          chat = event.entry.chatId;
        }),
      ),
      Effect.onError(() => Effect.ignore(endLine)),
    );
    yield* endLine;
  });

  const history = Effect.suspend(() =>
    chat === null
      ? Console.error("This chat is new.")
      : Effect.flatMap(chats.history(chatbot, chat, newest), ({ items, total }) =>
          Console.error(
            [
              ...(total > items.length ? [`The newest ${items.length} of ${total} entries:`] : []),
              ...items.toReversed().map(({ answer, createTime, question }) =>
                details([
                  ["time", createTime],
                  ["question", question || null],
                  ["answer", answer],
                ]),
              ),
            ].join("\n\n"),
          ),
        ),
  );
  const list = Effect.flatMap(chats.list(chatbot, newestChats), ({ items, total }) =>
    Console.error(
      `${table(items, {
        ID: ({ id }) => id,
        CREATED: ({ createTime }) => createTime,
        NAME: ({ name }) => name,
      })}\n${items.length} of ${total}`,
    ),
  );
  /** The command in a line of a terminal; `null` for a question. */
  const commandOf = (line: string) => {
    const [, name, id] = commandLine.exec(line) ?? [];
    if (prompt === null || name === undefined) return null;
    if (name === "chat" && id !== undefined) return open(Number(id));
    const commands: Readonly<Record<string, typeof list | typeof greet | typeof history>> = {
      new: greet,
      chats: list,
      history,
      help: Console.error(help),
    };
    return commands[name] ?? Console.error(`There is no command ${line}; /help shows them.`);
  };

  if (chatId !== null) yield* open(chatId);
  if (prompt !== null) {
    yield* Console.error("Enter asks, Ctrl-C stops an answer, Ctrl-D leaves, /help shows more.");
    if (chatId === null) yield* greet;
    yield* prompt.show;
  }
  let failures = 0;
  const lines =
    prompt?.lines ?? stdin.pipe(Stream.decodeText, Stream.splitLines, Stream.rechunk(1));
  const answer = Effect.fnUntraced(function* (line: string) {
    if (isBlank(line)) return;
    const asked = commandOf(line) ?? ask(line);
    const result = yield* Effect.result(prompt === null ? asked : prompt.stoppable(asked));
    if (Result.isSuccess(result)) return;
    if (result.failure instanceof Stopped) return yield* Console.error("Stopped.");
    failures += 1;
    yield* printError(
      result.failure._tag === "SchemaError"
        ? {
            message: `The question was not asked: ${describeSchemaError(result.failure)}.`,
            hint: "a question has at most 200 characters, and none of them is NUL.",
          }
        : describeError(result.failure),
    );
  });
  yield* Stream.runForEach(lines, (line) =>
    prompt === null ? answer(line) : Effect.andThen(answer(line), prompt.show),
  );
  return failures;
});
