/**
 * A conversation of one person, or one pipe, with a chatbot.
 */
import {
  Asking,
  Chats,
  isBlank,
  newest,
  describeSchemaError,
  Question,
  type Chatbot,
} from "@parley/core";
import { Console, Effect, Result, Schema, Stdio, Stream } from "effect";
import { describeError, printError } from "./Errors.ts";
import { printable } from "./Output.ts";

/**
 * Asks each line of standard input, and writes the answers to standard output as they arrive; everything else goes to
 * standard error. Prints why an ask fails, and goes on with the next line. Returns how many asks failed.
 *
 * @param chatId the chat to continue; `null` for a new one, which begins with the first question
 */
export const converse = Effect.fnUntraced(function* (chatbot: Chatbot, chatId: number | null) {
  const asking = yield* Asking;
  const chats = yield* Chats;
  const { stdin, stdinIsTerminal, stdout } = yield* Stdio.Stdio;
  const isTerminal = yield* stdinIsTerminal;
  const helloMessage = chatbot.settings.helloMessage || null;
  const write = (text: string) =>
    Stream.run(Stream.make(printable(text.replaceAll("\r", ""))), stdout({ endOnDone: false }));

  if (chatId !== null) {
    const { total } = yield* chats.history(chatbot, chatId, { ...newest, limit: 1 });
    yield* Console.error(`Chat ${chatId} of "${chatbot.name}"; entries so far: ${total}.`);
  }
  if (isTerminal) {
    yield* Console.error("Enter asks, Ctrl-D ends.");
    if (chatId === null && helloMessage !== null) yield* write(`${helloMessage}\n`);
  }

  let chat = chatId;
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
      Effect.tapError(() => endLine),
    );
    yield* endLine;
  });

  let failures = 0;
  const lines = stdin.pipe(Stream.decodeText, Stream.splitLines, Stream.rechunk(1));
  yield* Stream.runForEach(
    lines,
    Effect.fnUntraced(function* (line) {
      if (isBlank(line)) return;
      const asked = yield* Effect.result(ask(line));
      if (Result.isSuccess(asked)) return;
      failures += 1;
      yield* printError(
        asked.failure._tag === "SchemaError"
          ? {
              message: `The question was not asked: ${describeSchemaError(asked.failure)}.`,
              hint: "a question has at most 200 characters, and none of them is NUL.",
            }
          : describeError(asked.failure),
      );
    }),
  );
  return failures;
});
