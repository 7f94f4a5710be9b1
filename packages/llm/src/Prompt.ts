/**
 * What a language model is told: the chat so far and the question, within a budget of bytes.
 */
import type { Chatbot, Entry, StorageUnavailable } from "@parley/core";
import { Effect, Stream } from "effect";

/** One message of the conversation. A user's text never takes the role of the system. */
export interface Message {
  readonly role: "user" | "assistant";
  readonly content: string;
}

export interface Prompt {
  readonly instructions: string | null;
  /** Oldest first, the question last. */
  readonly messages: ReadonlyArray<Message>;
}

/**
 * The prompt for `question` with as many of the newest entries as fit, whole ones only.
 * Instructions and question always go in. Stops pulling `earlier` at the first entry that does
 * not fit, so that a long chat costs no more reads than a short one.
 *
 * @param contextBytes what instructions, entries and question may take together, in bytes of UTF-8
 */
export const makePrompt = (
  chatbot: Chatbot,
  earlier: Stream.Stream<Entry, StorageUnavailable>,
  question: string,
  contextBytes: number,
): Effect.Effect<Prompt, StorageUnavailable> => {
  const { instructions } = chatbot.settings;
  const fixed = bytes(instructions ?? "") + bytes(question);
  const fitting =
    fixed >= contextBytes
      ? Stream.empty
      : earlier.pipe(
          Stream.mapAccum(
            () => fixed,
            (taken, entry: Entry) => {
              const total = taken + bytes(entry.question) + bytes(entry.answer);
              return [total, [{ entry, total }]];
            },
          ),
          Stream.takeWhile(({ total }) => total <= contextBytes),
        );
  return Stream.runCollect(fitting).pipe(
    Effect.map((newestFirst) => ({
      instructions: instructions === "" ? null : instructions,
      messages: [
        ...newestFirst.reverse().flatMap(({ entry }) => messagesOf(entry)),
        { role: "user", content: question },
      ],
    })),
  );
};

/** The hello entry has no question: nobody asked for it. */
const messagesOf = (entry: Entry): ReadonlyArray<Message> => [
  ...(entry.question === "" ? [] : [{ role: "user" as const, content: entry.question }]),
  { role: "assistant", content: entry.answer },
];

const encoder = new TextEncoder();
const bytes = (text: string): number => encoder.encode(text).length;
