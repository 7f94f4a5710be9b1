/**
 * Erasing chats, and moving them between stores.
 */
import * as NodeStream from "@effect/platform-node/NodeStream";
import { ChatArchive, linesOf, recordsOf, type Erasable } from "@parley/core";
import { Clock, Console, Effect, Option, PlatformError, Stdio, Stream } from "effect";
import { Command, Flag } from "effect/cli";
import { createReadStream } from "node:fs";
import { resolve } from "node:path";
import { onDatabase } from "../Database.ts";
import { actor } from "./Actor.ts";
import { jsonFlag, print } from "./Output.ts";
import { withProgress } from "./Progress.ts";
import { chatbotFlag, chatbotOf } from "./Subject.ts";
import { sinceFlag } from "./Times.ts";
import { writeWhole } from "./WholeFile.ts";
import { wrongUsage } from "./WrongUsage.ts";

const counted = (chats: number) => `${chats} ${chats === 1 ? "chat" : "chats"}`;

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
      const now = yield* Clock.currentTimeMillis;
      const [which, ...others] = [
        Option.map(id, (id): Erasable => ({ _tag: "Chat", id })),
        Option.map(userRef, (userRef): Erasable => ({ _tag: "UserRef", userRef })),
        Option.map(idleSince, (since): Erasable => ({ _tag: "IdleSince", limit: since(now) })),
      ].flatMap(Option.toArray);
      if (which === undefined || others.length > 0) {
        return yield* wrongUsage(
          ["chats", "erase"],
          "Say which chats by one of --id, --user-ref and --idle-since.",
        );
      }
      if (which._tag === "IdleSince" && which.limit.getTime() > now) {
        return yield* wrongUsage(["chats", "erase"], "The time of --idle-since is still to come.");
      }
      yield* Effect.gen(function* () {
        const chatbot = yield* chatbotOf(wanted);
        const archive = yield* ChatArchive;
        const erased = yield* archive.erase(chatbot.id, which, yield* actor);
        yield* print(json, { chatbot: chatbot.id, erased }, () => `Erased ${counted(erased)}.`);
      }).pipe(onDatabase);
    }),
).pipe(
  Command.withDescription("Erase chats with everything that belongs to them, for ever"),
  Command.withExamples([
    { command: "parley chats erase --id 17", description: "One chat" },
    { command: "parley chats erase --user-ref user-7", description: "All chats of a user" },
    {
      command: "parley chats erase --idle-since 2026-01-01",
      description: "What nobody used since then",
    },
  ]),
);

/** `-`, of which a flag makes a whole path, means standard input or output, as it is usual. */
const fileOf = (path: Option.Option<string>) =>
  Option.filter(path, (name) => name !== resolve("-"));

/** The bytes of a file. Effect's own stream seeks, and so cannot read what a shell makes of `<(…)`. */
const bytesOf = (path: string) =>
  NodeStream.fromReadable<Uint8Array, PlatformError.PlatformError>({
    evaluate: () => createReadStream(path),
    onError: (cause) =>
      PlatformError.systemError({
        _tag: "Unknown",
        module: "FileSystem",
        method: "read",
        pathOrDescriptor: path,
        cause,
      }),
  });

const exporting = Command.make(
  "export",
  {
    chatbot: chatbotFlag,
    output: Flag.Path("output").pipe(
      Flag.optional,
      Flag.withDescription("A file to write; standard output without it"),
    ),
  },
  ({ chatbot: wanted, output }) =>
    Effect.gen(function* () {
      const chatbot = yield* chatbotOf(wanted);
      const archive = yield* ChatArchive;
      const stdio = yield* Stdio.Stdio;
      let records = 0;
      const text = linesOf(
        Stream.tap(archive.export(chatbot.id, yield* actor), () => Effect.sync(() => records++)),
      ).pipe(
        // One write for some lines; of the longest there are, more would be no string.
        Stream.rechunk(16),
        Stream.mapArray((lines) => [lines.join("")] as const),
      );
      const written = Option.match(fileOf(output), {
        onNone: () => Stream.run(text, stdio.stdout({ endOnDone: false })),
        onSome: (path) => writeWhole(path, Stream.encodeText(text)),
      });
      yield* withProgress(written, () => `${records} chats and entries`);
      yield* Console.error(`Exported ${records} chats and entries.`);
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
      Flag.withDescription("A file to read; standard input without it"),
    ),
    json: jsonFlag,
  },
  ({ chatbot: wanted, input, json }) =>
    Effect.gen(function* () {
      const chatbot = yield* chatbotOf(wanted);
      const archive = yield* ChatArchive;
      const stdio = yield* Stdio.Stdio;
      let records = 0;
      const bytes = Option.match(fileOf(input), {
        onNone: () => stdio.stdin,
        onSome: bytesOf,
      });
      const read = recordsOf(bytes).pipe(Stream.tap(() => Effect.sync(() => records++)));
      const imported = yield* withProgress(
        archive.import(chatbot.id, read, yield* actor),
        () => `${records} chats and entries`,
      );
      yield* print(json, { chatbot: chatbot.id, imported }, () => `Imported ${counted(imported)}.`);
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
