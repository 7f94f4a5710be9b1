/**
 * What people are told of an error: one line that says what is wrong, and one with what can be done.
 */
import { reasonOf } from "@parley/core";
import { withoutKeys } from "./WithoutKeys.ts";

export interface Told {
  readonly message: string;
  readonly hint: string | null;
}

const hints: Readonly<Record<string, string>> = {
  AnswerUnavailable: '"parley doctor" tries the language model and the moderation endpoint.',
  ChatbotNotFound: '"parley chatbot list" shows the chatbots.',
  ChatbotTaken: '"parley chatbot set" changes that one; with another name there can be another.',
  ChatNotFound: "without --chat a new chat begins.",
  DeclarationInvalid: "nothing was changed; docs/operations.md says what each setting may be.",
  DoctorFailed: "what was found says what to do.",
  EmbeddedFailed:
    "check PARLEY_DATA_DIR and who may write there; its postgres/data/log may tell more.",
  ImportRefused: '"parley chats import --help" says what can be imported.',
  KeyNotFound: '"parley key list" shows the keys, revoked ones too.',
  KnowledgeUnreadable: "PARLEY_KNOWLEDGE_DIR names a folder of Markdown and text files.",
  ListenFailed: "PARLEY_PORT, PARLEY_ASK_PORT and PARLEY_MANAGEMENT_PORT say where to listen.",
  NoDatabase: 'commands work with the settings of the server; "parley doctor" checks them.',
  NoSuchChatbot: '"parley chatbot list" shows the chatbots.',
  NoSuchKey: '"parley key list" shows the keys, revoked ones too.',
  NotAnswered: "what went wrong was told where the answer would have been.",
  Overloaded: "try again in a moment.",
  PlatformError: "check the path, and who may read and write there.",
  PostgresUnusable:
    'check the settings of the database and that it runs; "parley doctor" tells more.',
  ProvisionInvalid: "nothing was changed; docs/provisioning.schema.json describes the file.",
  SettingsInvalid: 'docs/settings.md explains every setting; "parley doctor" checks them.',
  StorageUnavailable: 'check that the database runs; "parley doctor" tells more.',
  WorkspaceNotFound: '"parley workspace list" shows the workspaces.',
  WorkspaceTaken: "with --merge its chatbots are moved there, and the two become one.",
};

/** Of errors that programs tell apart by what they hold, and that have no words of their own. */
const sentences: Readonly<Record<string, (error: any) => string>> = {
  AnswerUnavailable: ({ reason }) => `No answer came: ${reason}`,
  Overloaded: () => "The server is overloaded",
  PlatformError: (error) => {
    const { module, pathOrDescriptor } = error.reason;
    // The number of an open file says nothing to anybody.
    const name = module === "Stdio" ? "Standard input or output" : "A file";
    return `${typeof pathOrDescriptor === "string" ? pathOrDescriptor : name} cannot be used: ${reasonOf(error)}`;
  },
  StorageUnavailable: ({ message }) => `Database unavailable: ${message}`,
};

export const told = (error: Error): Told => {
  const tag = String((error as { readonly _tag?: unknown })._tag);
  const message = line(sentences[tag]?.(error) ?? (error.message || reasonOf(error)));
  return {
    message: /[.!?]$/.test(message) ? message : `${message}.`,
    hint: hints[tag] ?? null,
  };
};

/** On one line, with nothing of an API key but its id. */
export const line = (text: string): string => withoutKeys(text.trim().replace(/\s*\n\s*/g, " "));
