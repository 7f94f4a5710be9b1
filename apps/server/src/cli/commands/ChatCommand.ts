import {
  Asking,
  AskLimits,
  type Chatbot,
  ChatId,
  Chats,
  defaultEntryQuery,
  describeSchemaError,
  questionOf,
} from "@parley/core";
import { Console, Effect, Layer, Option, References, Schema, Stdio, Stream } from "effect";
import { Flag, GlobalFlag } from "effect/cli";
import { CommandFailed, describeError, printError } from "../CommandErrors.ts";
import { onDatabase, recordRead } from "../Database.ts";
import { makeCommand } from "../Declaration.ts";
import { chatbotFlag, chatbotOf, countFlag } from "../Flags.ts";
import { pluralize, printable, write } from "../Output.ts";
import { makePrompt, makeTypesetter } from "../Terminal.ts";

const help = "/open ID continues a chat, /history shows it. Ctrl-C stops an answer, Ctrl-D quits.";

const failed = (message: string) =>
  new CommandFailed({ message: `${message}.`, hint: "docs/troubleshooting.md explains errors." });

/** Writes the hello message and answers to standard output, and all else to standard error. Continues after failures. */
const converse = Effect.fnUntraced(function* (chatbot: Chatbot, firstChat: number | null) {
  const [asking, chats, stdio] = [yield* Asking, yield* Chats, yield* Stdio.Stdio];
  const prompt = (yield* stdio.stdinIsTerminal) ? yield* makePrompt : null;
  let chatId = firstChat === null ? null : ChatId.make(firstChat);

  const ask = Effect.fnUntraced(function* (line: string) {
    const { questionLength } = yield* AskLimits;
    const question = yield* Schema.decodeEffect(questionOf(questionLength))(line).pipe(
      Effect.mapError((error) => failed(`Not asked: ${describeSchemaError(error)}`)),
    );
    // The chat is created first: a chat that an ask creates has no hello entry.
    if (chatId === null) {
      chatId = (yield* chats.create(chatbot, { name: null })).chat.id;
      yield* Console.error(`Started chat ${chatId}.`);
    }
    const { end, push } = makeTypesetter(process.stdout.columns);
    yield* asking.stream(chatbot, { chatId, question, onDisconnect: "cancel" }).pipe(
      Stream.filter((event) => event._tag === "Delta"),
      Stream.runForEach(({ text }) => write(push(printable(text)))),
      Effect.ensuring(Effect.suspend(() => Effect.ignore(write(end())))),
    );
  });
  /** Shows the newest entries of a chat, and continues it. */
  const open = Effect.fnUntraced(function* (id: ChatId) {
    const { items, total } = yield* chats.history(chatbot, id, defaultEntryQuery);
    yield* recordRead(chatbot.id, `chat ${id}`);
    chatId = id;
    const texts = items.toReversed().map(({ answer, question }) => `> ${question}\n${answer}\n\n`);
    const count = `Chat ${id}: ${items.length} of ${pluralize(total, "entry", "entries")}`;
    yield* Console.error(printable(texts.join("") + count));
  });
  const run = Effect.fnUntraced(function* (line: string) {
    if (prompt === null || !line.startsWith("/")) return yield* ask(line);
    const [command, id = chatId] = /^\/(?:open\s+(\d+)|history)\s*$/.exec(line) ?? [];
    if (command === undefined || id === null) return yield* Console.error(help);
    yield* open(ChatId.make(Number(id), { disableChecks: true }));
  });

  if (prompt !== null) {
    const { helloMessage } = chatbot.settings;
    yield* Console.error(`You talk to ${chatbot.name} (${chatbot.workspaceName}). ${help}`);
    if (chatId !== null) yield* open(chatId);
    else if (helloMessage) yield* write(printable(`${helloMessage}\n`));
  }
  const { show, stoppable } = prompt ?? { show: Effect.void, stoppable: Effect.asVoid };
  yield* show;
  let failures = 0;
  const lines = stdio.stdin.pipe(Stream.decodeText, Stream.splitLines, Stream.rechunk(1));
  yield* Stream.runForEach(prompt?.lines ?? lines, (line) =>
    (line.trim() === "" ? Effect.void : stoppable(run(line))).pipe(
      Effect.catch((error) => {
        failures += 1;
        return printError(describeError(error));
      }),
      Effect.andThen(show),
    ),
  );
  // On a terminal, the person saw each failure and could try again.
  if (failures > 0 && prompt === null) yield* failed(`${pluralize(failures, "ask")} failed`);
});

/** Runs the core in this process. The store grants turns, so a server can answer in the same chat meanwhile. */
export const chat = makeCommand("chat", {
  description: "Talk to a chatbot with this shell's settings: one question per line",
  examples: { "parley chat --chatbot Helpdesk --chat 17": "Continue a chat" },
  flags: {
    chatbot: chatbotFlag,
    chat: countFlag("chat", Number.MAX_SAFE_INTEGER).pipe(
      Flag.optional,
      Flag.withDescription("Id of a chat to continue (default: a new chat)"),
    ),
  },
  run: Effect.fnUntraced(function* ({ chat, chatbot: selector }) {
    // Loaded here, because most commands need no language models.
    const { layerAsking } = yield* Effect.promise(() => import("../../layers/AskingLayer.ts"));
    const { layerDocuments } = yield* Effect.promise(() => import("../../layers/Documents.ts"));
    const logLevel = Option.getOrElse(yield* GlobalFlag.LogLevel, () => "None" as const);
    yield* converse((yield* chatbotOf(selector)).chatbot, Option.getOrNull(chat)).pipe(
      Effect.provide(Layer.provide(layerAsking, layerDocuments(Stream.empty))),
      // The conversation already prints each failure.
      Effect.provideService(References.MinimumLogLevel, logLevel),
    );
  }, onDatabase),
});
