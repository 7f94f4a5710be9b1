import { assert, it } from "@effect/vitest";
import {
  AnswerUnavailable,
  Asking,
  Chats,
  defaultSettings,
  Moderator,
  newest,
  type Chatbot,
} from "@parley/core";
import { layerScripted } from "@parley/llm";
import { layerMemoryWith } from "@parley/store-memory";
import { Console, Effect, Layer, Sink, Stdio, Stream } from "effect";
import { Digest } from "effect/crypto";
import { format } from "node:util";
import { converse } from "../../src/cli/Conversation.ts";
import { Stopped, type Prompt } from "../../src/cli/Prompt.ts";

const chatbot: Chatbot = {
  id: 1,
  name: "Helpdesk",
  description: "",
  workspaceName: "Acme",
  settings: { ...defaultSettings, helloMessage: "Hello!" },
};

let pressCtrlC = () => {};

const script = ({ question }: { readonly question: string }) => {
  if (question === "fail") {
    return Stream.fail(new AnswerUnavailable({ reason: "the model is out" }));
  }
  if (question === "break off") {
    // Its reader gets the first piece meanwhile.
    const broken = Effect.andThen(
      Effect.repeat(Effect.yieldNow, { times: 20 }),
      new AnswerUnavailable({ reason: "it broke" }),
    );
    return Stream.concat(Stream.make("Half"), Stream.fromEffect(broken));
  }
  if (question === "wait") {
    const pressed = Effect.andThen(
      Effect.repeat(Effect.yieldNow, { times: 20 }),
      Effect.andThen(
        Effect.sync(() => pressCtrlC()),
        Effect.never,
      ),
    );
    return Stream.concat(Stream.make("Soon"), Stream.fromEffect(pressed));
  }
  return [`You asked: `, `${question}\x1b[31m\r\n`];
};

const layerCore = Layer.mergeAll(Chats.layer, Asking.layer).pipe(
  Layer.provide([
    layerMemoryWith([chatbot]),
    layerScripted(script),
    Moderator.layerOff,
    Digest.layerWebCrypto,
  ]),
);

const history = (chat: number) =>
  Chats.use((chats) =>
    Effect.map(chats.history(chatbot, chat, newest), ({ items }) =>
      items.map(({ question }) => question),
    ),
  );

const conversation = Effect.fnUntraced(function* (
  chatId: number | null,
  text: string,
  prompt: Prompt | null = null,
) {
  let [stdout, stderr] = ["", ""];
  const stdio = Stdio.layerTest({
    stdin: Stream.encodeText(Stream.make(text)),
    stdout: () => Sink.forEach((text) => Effect.sync(() => void (stdout += String(text)))),
  });
  const failures = yield* converse(chatbot, chatId, prompt).pipe(
    Effect.provide(stdio),
    Effect.provideService(Console.Console, {
      ...console,
      error: (...words) => void (stderr += `${format(...words)}\n`),
    }),
  );
  return { failures, stderr, stdout };
});

it.effect("a conversation from a pipe answers each line, and counts failures", () =>
  Effect.gen(function* () {
    const long = "x".repeat(201);
    const { failures, stderr, stdout } = yield* conversation(
      null,
      `One?\n\n  \nfail\nbreak off\n${long}\na\0b\nTwo?`,
    );
    assert.strictEqual(stdout, "You asked: One?\ufffd[31m\nHalf\nYou asked: Two?\ufffd[31m\n");
    assert.strictEqual(
      stderr,
      "Chat 1.\n" +
        "parley: No answer: the model is out.\n" +
        'hint: "parley doctor" tries the language model and the moderation endpoint.\n' +
        "parley: No answer: it broke.\n" +
        'hint: "parley doctor" tries the language model and the moderation endpoint.\n' +
        "parley: The question was not asked: Expected a string with at most 200 code points.\n" +
        "hint: a question has at most 200 characters, and none of them is NUL.\n" +
        "parley: The question was not asked: holds NUL or a lone surrogate.\n" +
        "hint: a question has at most 200 characters, and none of them is NUL.\n",
    );
    assert.strictEqual(failures, 4);
    assert.deepStrictEqual(yield* history(1), ["Two?", "One?", ""]);
    const next = yield* conversation(1, "Three?");
    assert.strictEqual(next.stderr, 'Chat 1 of "Helpdesk"; entries so far: 3.\n');
    assert.deepStrictEqual(yield* history(1), ["Three?", "Two?", "One?", ""]);
    const missing = yield* Effect.flip(conversation(99, "Three?"));
    assert.strictEqual(missing._tag, "ChatNotFound");
  }).pipe(Effect.provide(layerCore)),
);

/** A terminal with these lines. */
const typed = (...lines: ReadonlyArray<string>): Prompt => ({
  show: Effect.void,
  lines: Stream.rechunk(Stream.fromIterable(lines), 1),
  stoppable: (effect) =>
    Effect.raceFirst(
      effect,
      Effect.callback<never, Stopped>((resume) => {
        pressCtrlC = () => resume(Effect.fail(new Stopped()));
      }),
    ),
});

it.effect("a conversation at a terminal has commands, and a stopped answer is not stored", () =>
  Effect.gen(function* () {
    const lines = ["One?", "wait", "/history", "/new", "/what", "/ is a path?", "/chats"];
    const { failures, stderr, stdout } = yield* conversation(
      null,
      "",
      typed(...lines, "/chat 1", "/chat 9", "Two?"),
    );
    assert.strictEqual(failures, 1);
    assert.strictEqual(
      stdout,
      "Hello!\nYou asked: One?\ufffd[31m\nSoon\nHello!\n" +
        "You asked: / is a path?\ufffd[31m\nYou asked: Two?\ufffd[31m\n",
    );
    assert.strictEqual(
      stderr.replace(/\d{4}-\S+Z/g, "TIME"),
      "Enter asks, Ctrl-C stops an answer, Ctrl-D leaves, /help shows more.\nChat 1.\nStopped.\n" +
        "time      TIME\nquestion  -\nanswer    Hello!\n\n" +
        "time      TIME\nquestion  One?\nanswer    You asked: One?\ufffd[31m\ufffd\n          \n" +
        "There is no command /what; /help shows them.\nChat 2.\n" +
        "ID  CREATED               NAME\n2   TIME  -\n1   TIME  -\n2 of 2\n" +
        'Chat 1 of "Helpdesk"; entries so far: 2.\n' +
        "parley: The chatbot has no chat 9.\nhint: without --chat a new chat begins.\n",
    );
    assert.deepStrictEqual(yield* history(1), ["Two?", "One?", ""]);
  }).pipe(Effect.provide(layerCore)),
);
