import { assert, describe, it } from "@effect/vitest";
import {
  AnswerUnavailable,
  Asking,
  Chats,
  defaultSettings,
  Moderator,
  newest,
  newestChats,
  type Chatbot,
} from "@parley/core";
import { layerScripted } from "@parley/llm";
import { layerMemoryWith } from "@parley/store-memory";
import { Console, Deferred, Effect, Layer, Queue, Sink, Stdio, Stream } from "effect";
import { Digest } from "effect/crypto";
import { PassThrough } from "node:stream";
import { format } from "node:util";
import { converse } from "../../../../src/cli/commands/chat/Conversation.ts";
import { fromPipe, fromTerminal } from "../../../../src/cli/commands/chat/Questions.ts";

const chatbot: Chatbot = {
  id: 1,
  name: "Helpdesk",
  description: "",
  workspaceName: "Acme",
  settings: { ...defaultSettings, helloMessage: "Hello!" },
};

const script = ({ question }: { readonly question: string }) => {
  if (question === "fail") {
    return Effect.fail(new AnswerUnavailable({ reason: "the model is out" }));
  }
  if (question === "break off") {
    // Its reader gets the first piece meanwhile.
    const broken = Effect.andThen(
      Effect.repeat(Effect.yieldNow, { times: 20 }),
      new AnswerUnavailable({ reason: "it broke" }),
    );
    return Stream.concat(Stream.make("Half"), Stream.fromEffect(broken));
  }
  if (question === "for ever") return Stream.concat(Stream.make("Begun "), Stream.never);
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

/** Where both outputs go, and what was written so far. */
const outputs = Effect.gen(function* () {
  const wrote = yield* Queue.unbounded<string>();
  const all = { stdout: "", stderr: "", wrote };
  const stdout = () =>
    Sink.forEach((text: string | Uint8Array) => {
      all.stdout += String(text);
      return Queue.offer(wrote, String(text));
    });
  const console_ = {
    ...console,
    error: (...words: ReadonlyArray<unknown>) => {
      all.stderr += `${format(...words)}\n`;
    },
  };
  return { all, stdout, console: console_ };
});

const history = (chat: number) =>
  Chats.use((chats) =>
    Effect.map(chats.history(chatbot, chat, newest), ({ items }) =>
      items.map(({ question }) => question),
    ),
  );

describe("a conversation from a pipe", () => {
  const piped = Effect.fnUntraced(function* (chatId: number | null, text: string) {
    const { all, console, stdout } = yield* outputs;
    const stdio = Stdio.layerTest({ stdout, stdin: Stream.encodeText(Stream.make(text)) });
    const failures = yield* fromPipe.pipe(
      Effect.flatMap((questions) => converse(chatbot, chatId, questions)),
      Effect.provide(stdio),
      Effect.provideService(Console.Console, console),
    );
    return { ...all, failures };
  });

  it.effect("answers each line, and counts what fails", () =>
    Effect.gen(function* () {
      const long = "x".repeat(201);
      const { failures, stderr, stdout } = yield* piped(
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
      const next = yield* piped(1, "Three?");
      assert.strictEqual(next.stderr, 'Chat 1 of "Helpdesk", with 3 entries so far.\n');
      assert.deepStrictEqual(yield* history(1), ["Three?", "Two?", "One?", ""]);
      const missing = yield* Effect.flip(piped(99, "Three?"));
      assert.strictEqual(missing._tag, "ChatNotFound");
    }).pipe(Effect.provide(layerCore)),
  );
});

describe("a conversation at a terminal", () => {
  it.effect("goes on after Ctrl-C, stores nothing of that ask, and ends with Ctrl-D", () =>
    Effect.gen(function* () {
      const { all, console, stdout } = yield* outputs;
      const input = new PassThrough();
      const screen = new PassThrough();
      const prompted = yield* Queue.unbounded<void>();
      let shown = "";
      screen.on("data", (data) => {
        shown += data;
        if (String(data).includes("> ")) Queue.offerUnsafe(prompted, undefined);
      });
      const ended = yield* Deferred.make<number, unknown>();
      yield* fromTerminal(input, screen).pipe(
        Effect.flatMap((questions) => converse(chatbot, null, questions)),
        Effect.provide(Stdio.layerTest({ stdout })),
        Effect.provideService(Console.Console, console),
        (conversation) => Deferred.complete(ended, conversation),
        Effect.forkScoped,
      );
      yield* Queue.take(prompted);
      assert.strictEqual(yield* Queue.take(all.wrote), "Hello!\n");
      input.write("half typed\x03");
      yield* Queue.take(prompted);
      assert.include(shown, "(Ctrl-D ends)");
      input.write("for ever\r");
      assert.strictEqual(yield* Queue.take(all.wrote), "Begun ");
      input.write("\x03");
      assert.strictEqual(yield* Queue.take(all.wrote), "\n");
      yield* Queue.take(prompted);
      input.write("Still there?\r");
      assert.match(yield* Queue.take(all.wrote), /^You asked: /);
      yield* Queue.take(prompted);
      input.write("\x04");
      assert.strictEqual(yield* Deferred.await(ended), 0);
      assert.strictEqual(
        all.stderr,
        "Enter asks, Ctrl-C cancels an answer, Ctrl-D ends.\nChat 1.\n(cancelled)\n",
      );
      assert.deepStrictEqual(yield* history(1), ["Still there?", ""]);
      const chats = yield* Chats.use((chats) => chats.list(chatbot, newestChats));
      assert.strictEqual(chats.total, 1);
    }).pipe(Effect.provide(layerCore)),
  );
});
