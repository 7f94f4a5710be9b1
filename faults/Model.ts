/**
 * A language model with OpenAI's chat completions API. It numbers its answers, so that no two are alike, and keeps
 * every prompt.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { startTestModel } from "../apps/server/test/TestModel.ts";

export interface Message {
  readonly role: string;
  readonly text: string;
}

export interface Call {
  /** The user's last message. */
  readonly question: string;
  /** The messages before the question, without instructions. */
  readonly earlier: ReadonlyArray<Message>;
  readonly answer: string;
  /** When the call arrived, by `performance.now()`. */
  readonly at: number;
  /** Whether the answer is still being sent, to a caller that is still there. */
  isOpen: boolean;
}

export interface Model {
  /** Settings that make a server use the model. */
  readonly settings: Readonly<Record<string, string>>;
  /** Every call so far, in order of arrival. */
  readonly calls: ReadonlyArray<Call>;
  readonly close: () => void;
}

interface WireMessage {
  readonly role: string;
  readonly content: string | ReadonlyArray<{ readonly text?: string }>;
}

const textOf = ({ content }: WireMessage): string =>
  typeof content === "string" ? content : content.map(({ text = "" }) => text).join("");

const chance = (share: number) => Math.random() < share;

export const startModel = async (): Promise<Model> => {
  const calls: Array<Call> = [];
  const { close, settings } = await startTestModel(async ({ end, prompt, response, say }) => {
    const at = performance.now();
    const { messages } = JSON.parse(prompt) as { readonly messages: ReadonlyArray<WireMessage> };
    const conversation = messages
      .filter(({ role }) => role !== "system")
      .map((message) => ({ role: message.role, text: textOf(message) }));
    const question = conversation.pop()!.text;
    const n = calls.length + 1;
    const call: Call = {
      question,
      earlier: conversation,
      answer: `Answer ${n} 😀: the question was "${question}"`,
      at,
      isOpen: true,
    };
    calls.push(call);
    response.once("close", () => (call.isOpen = false));
    // Half of the answers are sent at once, so that some turns end while others begin. Some of the rest take long
    // enough to overlap with a fault.
    const pause = chance(0.5) ? 0 : chance(0.2) ? 500 : 20 * Math.random();
    // The emoji has two code units, which may end up in different pieces.
    for (const piece of call.answer.match(/[^]{1,10}/g)!) {
      say(piece);
      if (pause > 0) await sleep(pause);
    }
    end({ prompt_tokens: 1000 + n, completion_tokens: n, total_tokens: 1000 + 2 * n });
  });
  return { settings, calls, close };
};
