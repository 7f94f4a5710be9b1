/**
 * What can be said of a chatbot on the command line: what is named is set, the rest stays.
 */
import { defaultSettings, type ChatbotChange, type ChatbotSettings } from "@parley/core";
import { Effect, FileSystem, Option, Record, Stdio, Stream } from "effect";
import { Flag, type Command } from "effect/cli";
import { wrongUsage } from "./WrongUsage.ts";

/** The settings by the names of their flags. */
const settings = {
  "hello-message": "helloMessage",
  "moderation-error-message": "moderationErrorMessage",
  instructions: "instructions",
  model: "model",
  moderation: "moderation",
  knowledge: "knowledge",
  "retention-days": "retentionDays",
} as const satisfies Record<string, keyof ChatbotSettings>;
type SettingName = keyof typeof settings;
const settingNames = Object.keys(settings) as Array<SettingName>;

const text = (name: string, description: string) =>
  Flag.String(name).pipe(Flag.optional, Flag.withDescription(description));

export const chatbotFlags = {
  workspace: text("workspace", "The workspace that it is in"),
  name: text("name", "Its name; workspace and name together identify it"),
  description: text("description", "What GET /details says of it"),
  helloMessage: text("hello-message", "The first entry of each chat that is created"),
  moderationErrorMessage: text("moderation-error-message", "The answer to a flagged question"),
  instructions: text("instructions", "What a language model is told before the conversation"),
  instructionsFile: text("instructions-file", "The same from a file, or from - standard input"),
  model: text("model", "The language model, by the name that its provider knows"),
  moderation: Flag.Literals("moderation", ["off", "words", "endpoint"]).pipe(
    Flag.optional,
    Flag.withDescription("Who judges questions"),
  ),
  knowledge: text("knowledge", "Its folder of documents below PARLEY_KNOWLEDGE_ROOT"),
  retentionDays: Flag.Int("retention-days").pipe(
    Flag.optional,
    Flag.withDescription("After how many days without an entry a chat is erased"),
  ),
  unset: Flag.Literals("unset", settingNames).pipe(
    Flag.atLeast(0),
    Flag.withDescription("A setting to put back to its default; can be repeated"),
  ),
};

type Given = Command.Command.Config.Infer<typeof chatbotFlags>;

/** What the flags of the command say; its settings may name nothing. */
export const changeOf = Effect.fnUntraced(function* (command: string, given: Given) {
  const wrong = (message: string) => wrongUsage(["chatbot", command], message);
  if (Option.isSome(given.instructions) && Option.isSome(given.instructionsFile)) {
    return yield* wrong("Give either --instructions or --instructions-file.");
  }
  const fromFile = yield* Effect.transposeOption(Option.map(given.instructionsFile, textOf));
  const set: Partial<ChatbotSettings> = Record.getSomes({
    helloMessage: given.helloMessage,
    moderationErrorMessage: given.moderationErrorMessage,
    instructions: Option.orElse(given.instructions, () => fromFile),
    model: given.model,
    moderation: given.moderation,
    knowledge: given.knowledge,
    retentionDays: given.retentionDays,
  } as Record<string, Option.Option<any>>);
  const both = given.unset.find((name) => settings[name] in set);
  if (both !== undefined) return yield* wrong(`--${both} cannot be set and unset at once.`);
  const unset = given.unset.map((name) => [settings[name], defaultSettings[settings[name]]]);
  const change: ChatbotChange = {
    ...Record.getSomes({
      workspaceName: given.workspace,
      name: given.name,
      description: given.description,
    }),
    settings: { ...set, ...Object.fromEntries(unset) },
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
