/**
 * A conversation of one person, or one pipe, with a chatbot.
 */
import { Asking, Chats, isBlank, newest, problemsOf, Question, type Chatbot } from "@parley/core";
import { Console, Effect, Option, Result, Schema, Stdio, Stream } from "effect";
import { describeError, printError } from "../../Errors.ts";
import { printable } from "../../Output.ts";
import type { Questions } from "./Questions.ts";

/**
 * Asks each line, and writes the answers to standard output as they arrive; everything else goes to standard error.
 * Prints why an ask fails, and goes on with the next line. Returns how many asks failed.
 *
 * @param chatId the chat to continue; `null` for a new one, which begins with the first question
 */
export const converse = Effect.fnUntraced(function* (
  chatbot: Chatbot,
  chatId: number | null,
  questions: Questions,
) {
  const asking = yield* Asking;
  const chats = yield* Chats;
  const helloMessage = chatbot.settings.helloMessage || null;
  const stdout = (yield* Stdio.Stdio).stdout({ endOnDone: false });
  const write = (text: string) =>
    Stream.run(Stream.make(printable(text.replaceAll("\r", ""))), stdout);

  if (chatId !== null) {
    const { total } = yield* chats.history(chatbot, chatId, { ...newest, limit: 1 });
    const entries = total === 1 ? "1 entry" : `${total} entries`;
    yield* Console.error(`Chat ${chatId} of "${chatbot.name}", with ${entries} so far.`);
  }
  if (questions.fromPerson) {
    yield* Console.error("Enter asks, Ctrl-C cancels an answer, Ctrl-D ends.");
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
    const answer = asking
      .stream(chatbot, { chatId: chat, question, key: null, onHangUp: "cancel" })
      .pipe(
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
        Effect.as(true),
      );
    const cancelled = Effect.as(questions.cancelled, false);
    const endLine = Effect.suspend(() =>
      written === "" || written.endsWith("\n") ? Effect.void : write("\n"),
    );
    const isAnswered = yield* Effect.tapError(Effect.raceFirst(answer, cancelled), () => endLine);
    yield* endLine;
    if (!isAnswered) yield* Console.error("(cancelled)");
  });

  let failures = 0;
  while (true) {
    const line = yield* questions.next;
    if (Option.isNone(line)) return failures;
    if (isBlank(line.value)) continue;
    const asked = yield* Effect.result(ask(line.value));
    if (Result.isSuccess(asked)) continue;
    failures += 1;
    yield* printError(
      asked.failure._tag === "SchemaError"
        ? {
            message: `The question was not asked: ${problemsOf(asked.failure)}.`,
            hint: "a question has at most 200 characters, and none of them is NUL.",
          }
        : describeError(asked.failure),
    );
  }
});
