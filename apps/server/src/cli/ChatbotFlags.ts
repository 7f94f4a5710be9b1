/**
 * The flags that describe a chatbot: named fields are set, the others stay.
 */
import { defaultSettings, type ChatbotChange, type ChatbotSettings } from "@parley/core";
import { Effect, FileSystem, Option, Record, Stdio, Stream } from "effect";
import { Flag, type Command } from "effect/cli";
import { wrongUsage } from "./Errors.ts";

const fields = Object.keys(defaultSettings) as ReadonlyArray<keyof ChatbotSettings>;

/** The flag of a field, such as `hello-message` of `helloMessage`. */
const flagOf = (field: string) => field.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

const text = (name: string, description: string) =>
  Flag.String(name).pipe(Flag.optional, Flag.withDescription(description));

export const chatbotFlags = {
  workspace: text("workspace", "Its workspace"),
  name: text("name", "Its name; workspace and name together identify it"),
  description: text("description", "Its description, which GET /details returns"),
  helloMessage: text("hello-message", "The first entry of each chat that a client creates"),
  moderationErrorMessage: text("moderation-error-message", "The answer to a flagged question"),
  instructions: text("instructions", "Instructions for the language model"),
  instructionsFile: text("instructions-file", "A file of instructions; - is standard input"),
  model: text("model", "The language model, by the name that its provider uses"),
  moderation: Flag.Literals("moderation", ["off", "words", "endpoint"]).pipe(
    Flag.optional,
    Flag.withDescription("The moderator of questions"),
  ),
  knowledge: text("knowledge", "Its folder of documents below PARLEY_KNOWLEDGE_ROOT"),
  retentionDays: Flag.Int("retention-days").pipe(
    Flag.optional,
    Flag.withDescription("The days without an entry after which a chat is erased"),
  ),
  unset: Flag.Literals("unset", fields.map(flagOf)).pipe(
    Flag.atLeast(0),
    Flag.withDescription("A setting to put back to its default; can be repeated"),
  ),
};

type Given = Command.Command.Config.Infer<typeof chatbotFlags>;

/** The change that the flags describe; its settings may be empty. */
export const changeOf = Effect.fnUntraced(function* (command: string, given: Given) {
  const wrong = (message: string) => wrongUsage(["chatbot", command], message);
  if (Option.isSome(given.instructions) && Option.isSome(given.instructionsFile)) {
    return yield* wrong("Give either --instructions or --instructions-file.");
  }
  const fromFile = yield* Effect.transposeOption(Option.map(given.instructionsFile, textOf));
  const { description, name, unset, workspace, ...settings } = given;
  const set: Partial<ChatbotSettings> = Record.getSomes({
    ...Record.filter(settings as Record<string, Option.Option<any>>, (_, field) =>
      Object.hasOwn(defaultSettings, field),
    ),
    instructions: Option.orElse(given.instructions, () => fromFile),
  });
  const reset = fields.filter((field) => unset.includes(flagOf(field)));
  const both = reset.find((field) => field in set);
  if (both !== undefined) return yield* wrong(`--${flagOf(both)} cannot be set and unset at once.`);
  const change: ChatbotChange = {
    ...Record.getSomes({ workspaceName: workspace, name, description }),
    settings: {
      ...set,
      ...Object.fromEntries(reset.map((field) => [field, defaultSettings[field]])),
    },
  };
  return change;
});

/** The text of a file, or of standard input for `-`, without the end of its last line. */
const textOf = Effect.fnUntraced(function* (path: string) {
  const files = yield* FileSystem.FileSystem;
  const { stdin } = yield* Stdio.Stdio;
  const text = yield* path === "-"
    ? Stream.mkString(Stream.decodeText(stdin))
    : files.readFileString(path);
  return text.replace(/\r?\n$/, "");
});
