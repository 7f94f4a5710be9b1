/**
 * Erasing chats, and moving them between stores.
 */
import { ChatArchive, encodeArchive, decodeArchive, type Erasable } from "@parley/core";
import { Clock, Console, Effect, FileSystem, Option, Stdio, Stream } from "effect";
import { Command, Flag } from "effect/cli";
import { resolve } from "node:path";
import { actor, onDatabase } from "../Database.ts";
import { wrongUsage } from "../Errors.ts";
import { chatbotFlag, chatbotOf, jsonFlag, sinceFlag } from "../Flags.ts";
import { counted, print } from "../Output.ts";

const erase = Command.make(
  "erase",
  {
    chatbot: chatbotFlag,
    id: Flag.Int("id").pipe(Flag.optional, Flag.withDescription("The chat with this id")),
    userRef: Flag.String("user-ref").pipe(
      Flag.optional,
      Flag.withDescription("Every chat with this userRef"),
    ),
    idleSince: sinceFlag("idle-since").pipe(
      Flag.optional,
      Flag.withDescription("Every chat with no entry since this time"),
    ),
    json: jsonFlag,
  },
  ({ chatbot: wanted, id, idleSince, json, userRef }) =>
    Effect.gen(function* () {
      const wrong = (message: string) => wrongUsage(["chats", "erase"], message);
      const now = yield* Clock.currentTimeMillis;
      const [which, ...others] = [
        Option.map(id, (id): Erasable => ({ _tag: "Chat", id })),
        Option.map(userRef, (userRef): Erasable => ({ _tag: "UserRef", userRef })),
        Option.map(idleSince, (since): Erasable => ({ _tag: "IdleSince", limit: since(now) })),
      ].flatMap(Option.toArray);
      if (which === undefined || others.length > 0) {
        return yield* wrong("Name the chats by one of --id, --user-ref and --idle-since.");
      }
      if (which._tag === "IdleSince" && which.limit.getTime() > now) {
        return yield* wrong("The time of --idle-since is in the future.");
      }
      yield* Effect.gen(function* () {
        const chatbot = yield* chatbotOf(wanted);
        const archive = yield* ChatArchive;
        const erased = yield* archive.erase(chatbot.id, which, yield* actor);
        const document = { chatbot: chatbot.id, erased };
        yield* print(json, document, () => `Erased ${counted(erased, "chat")}.`);
      }).pipe(onDatabase);
    }),
).pipe(
  Command.withDescription("Erase chats with everything that belongs to them, for ever"),
  Command.withExamples([
    { command: "parley chats erase --id 17", description: "One chat" },
    { command: "parley chats erase --user-ref user-7", description: "All chats of a user" },
    {
      command: "parley chats erase --idle-since 2026-01-01",
      description: "Chats without an entry since then",
    },
  ]),
);

/** Standard input or output for `-`, which the flag has made a whole path. */
const fileOf = (path: Option.Option<string>) =>
  Option.filter(path, (name) => name !== resolve("-"));

/** Replaces the file when all bytes are written. It may be read by its owner alone. */
export const replaceFile = Effect.fnUntraced(function* <E, R>(
  path: string,
  bytes: Stream.Stream<Uint8Array, E, R>,
) {
  const files = yield* FileSystem.FileSystem;
  const before = yield* Effect.option(files.stat(path));
  // To rename a file onto a device would replace the device.
  if (Option.exists(before, ({ type }) => type !== "File")) {
    return yield* wrongUsage(["chats", "export"], `${path} is not a file.`);
  }
  const part = `${path}.${crypto.randomUUID()}.part`;
  yield* Stream.run(bytes, files.sink(part, { flag: "wx", mode: 0o600 })).pipe(
    Effect.andThen(files.rename(part, path)),
    Effect.onError(() => Effect.ignore(files.remove(part))),
  );
});

const exporting = Command.make(
  "export",
  {
    chatbot: chatbotFlag,
    output: Flag.Path("output").pipe(
      Flag.optional,
      Flag.withDescription("A file to write; standard output by default"),
    ),
  },
  ({ chatbot: wanted, output }) =>
    Effect.gen(function* () {
      const chatbot = yield* chatbotOf(wanted);
      const archive = yield* ChatArchive;
      const stdio = yield* Stdio.Stdio;
      let records = 0;
      const text = archive.export(chatbot.id, yield* actor).pipe(
        Stream.tap(() => Effect.sync(() => records++)),
        encodeArchive,
        // One write for some lines. Many of the longest would exceed the length of a string.
        Stream.rechunk(16),
        Stream.mapArray((lines) => [lines.join("")] as const),
      );
      yield* Option.match(fileOf(output), {
        onNone: () => Stream.run(text, stdio.stdout({ endOnDone: false })),
        onSome: (path) => replaceFile(path, Stream.encodeText(text)),
      });
      yield* Console.error(`Exported ${records} records: chats and their entries.`);
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("Write every chat and entry of a chatbot as newline-delimited JSON"),
  Command.withExamples([
    { command: "parley chats export --output chats.ndjson", description: "Into a file" },
    {
      command: "parley chats export | gzip > chats.ndjson.gz",
      description: "Into another program",
    },
  ]),
);

const importing = Command.make(
  "import",
  {
    chatbot: chatbotFlag,
    input: Flag.Path("input").pipe(
      Flag.optional,
      Flag.withDescription("A file to read; standard input by default"),
    ),
    json: jsonFlag,
  },
  ({ chatbot: wanted, input, json }) =>
    Effect.gen(function* () {
      const chatbot = yield* chatbotOf(wanted);
      const archive = yield* ChatArchive;
      const { stdin } = yield* Stdio.Stdio;
      const files = yield* FileSystem.FileSystem;
      const file = Option.map(fileOf(input), (path) => decodeArchive(files.stream(path)));
      const records = Option.getOrElse(file, () => decodeArchive(stdin));
      const imported = yield* archive.import(chatbot.id, records, yield* actor);
      const document = { chatbot: chatbot.id, imported };
      yield* print(json, document, () => `Imported ${counted(imported, "chat")}.`);
    }).pipe(onDatabase),
).pipe(
  Command.withDescription(
    "Read an export into a chatbot that has no chats, with its ids and times",
  ),
  Command.withExamples([
    { command: "parley chats import --chatbot 2 --input chats.ndjson", description: "From a file" },
  ]),
);

export const chats = Command.make("chats").pipe(
  Command.withDescription("The chats of a chatbot"),
  Command.withExamples([
    { command: "parley chats export --output chats.ndjson", description: "Back them up" },
    { command: "parley chats erase --help", description: "Which can be erased" },
  ]),
  Command.withSubcommands([erase, exporting, importing]),
);
