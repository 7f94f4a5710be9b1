/**
 * Seeing chats, erasing them, and moving them between stores.
 */
import {
  ChatArchive,
  ChatStore,
  decodeArchive,
  encodeArchive,
  newest,
  newestChats,
  type Chat,
  type Entry,
  type Erasable,
} from "@parley/core";
import { Clock, Console, Effect, FileSystem, Option, Stdio, Stream } from "effect";
import { Argument, Command, Flag } from "effect/cli";
import { resolve } from "node:path";
import { actor, onDatabase } from "../Database.ts";
import { wrongUsage } from "../Errors.ts";
import { chatbotFlag, chatbotOf, countFlag, jsonFlag, sinceFlag } from "../Flags.ts";
import { counted, details, print, table } from "../Output.ts";

const pageFlags = {
  chatbot: chatbotFlag,
  limit: countFlag("limit", 100).pipe(
    Flag.withDefault(newest.limit),
    Flag.withDescription(`How many at most; ${newest.limit} by default`),
  ),
  page: countFlag("page").pipe(Flag.withDefault(1), Flag.withDescription("Which page of them")),
  text: Flag.Boolean("text").pipe(
    Flag.withDefault(false),
    Flag.withDescription("Show texts of users, too: names, questions and answers"),
  ),
  json: jsonFlag,
};

/** The text, or how many characters it has. */
const shown = (text: string, isShown: boolean): string =>
  isShown ? text : counted([...text].length, "character");

/** Fields of a JSON document: the texts, or the numbers of their characters. */
const textFields = (texts: Readonly<Record<string, string | null>>, isShown: boolean) =>
  Object.fromEntries(
    Object.entries(texts).map(([name, text]) =>
      isShown ? [name, text] : [`${name}Length`, text === null ? null : [...text].length],
    ),
  );

const chatDocument = ({ createTime, id, name, userRef }: Chat, text: boolean) => ({
  id,
  userRef,
  createTime,
  ...textFields({ name }, text),
});

const printChats = Effect.fnUntraced(function* (
  { chatbot: wanted, json, limit, page, text }: Command.Command.Config.Infer<typeof pageFlags>,
  filter: Partial<Pick<typeof newestChats, "search" | "userRef">>,
) {
  const chatbot = yield* chatbotOf(wanted);
  const query = { ...newestChats, limit, page, ...filter };
  const { items, total } = yield* ChatStore.use((store) => store.listChats(chatbot.id, query));
  const document = { total, chats: items.map((chat) => chatDocument(chat, text)) };
  yield* print(json, document, () => {
    const rows = table(items, {
      ID: ({ id }) => id,
      CREATED: ({ createTime }) => createTime,
      "USER REF": ({ userRef }) => userRef,
      NAME: ({ name }) => (name === null ? null : shown(name, text)),
    });
    return `${rows}\n${items.length} of ${counted(total, "chat")}`;
  });
}, onDatabase);

const list = Command.make(
  "list",
  {
    ...pageFlags,
    userRef: Flag.String("user-ref").pipe(
      Flag.optional,
      Flag.withDescription("Only chats with this userRef"),
    ),
  },
  ({ userRef, ...page }) => printChats(page, { userRef: Option.getOrNull(userRef) }),
).pipe(
  Command.withDescription("List chats, the newest first, and how many there are"),
  Command.withExamples([
    { command: "parley chats list --user-ref user-7", description: "The newest of a user" },
    { command: "parley chats list --limit 100 --page 2 --json", description: "For a program" },
  ]),
);

const search = Command.make(
  "search",
  {
    ...pageFlags,
    search: Argument.String("text").pipe(
      Argument.withDescription("A part of the chat's name; upper and lower case are the same"),
    ),
  },
  ({ search, ...page }) => printChats(page, { search }),
).pipe(
  Command.withDescription("List the chats with a text in their name, the newest first"),
  Command.withExamples([
    { command: "parley chats search invoice --text", description: "With the names" },
  ]),
);

const entryDocument = (entry: Entry, text: boolean) => {
  const { answer, createTime, flagged, id, moderation, question } = entry;
  return { id, createTime, flagged, moderation, ...textFields({ question, answer }, text) };
};

const show = Command.make(
  "show",
  {
    ...pageFlags,
    id: Argument.Int("id").pipe(Argument.withDescription("The id of the chat")),
  },
  ({ chatbot: wanted, id, json, limit, page, text }) =>
    Effect.gen(function* () {
      const chatbot = yield* chatbotOf(wanted);
      const store = yield* ChatStore;
      const query = { ...newest, limit, page };
      const { items, total } = yield* store.listEntries(chatbot.id, id, query);
      const document = { total, entries: items.map((entry) => entryDocument(entry, text)) };
      yield* print(json, document, () => {
        const rows = text
          ? items.map(({ answer, createTime, id, moderation, question }) =>
              details([
                ["entry", id],
                ["created", createTime],
                ["moderation", moderation],
                ["question", question],
                ["answer", answer],
              ]),
            )
          : [
              table(items, {
                ID: ({ id }) => id,
                CREATED: ({ createTime }) => createTime,
                MODERATION: ({ moderation }) => moderation,
                QUESTION: ({ question }) => shown(question, false),
                ANSWER: ({ answer }) => shown(answer, false),
              }),
            ];
        return [...rows, `${items.length} of ${total} entries`].join(text ? "\n\n" : "\n");
      });
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("Show the history of a chat, the newest entries first"),
  Command.withExamples([
    {
      command: "parley chats show 17",
      description: "Times, lengths and moderation of its entries",
    },
    { command: "parley chats show 17 --text", description: "With questions and answers" },
  ]),
);

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
  Command.withDescription("Erase chats with everything that belongs to them, permanently"),
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
    { command: "parley chats list", description: "The newest" },
    { command: "parley chats export --output chats.ndjson", description: "Back them up" },
    { command: "parley chats erase --help", description: "Which can be erased" },
  ]),
  Command.withSubcommands([list, show, search, erase, exporting, importing]),
);
