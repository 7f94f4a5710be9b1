/**
 * Reads the response to a chat completion, whatever its form: an event stream, JSON lines, or a single JSON object.
 * Only five things are read (deltas, finish reasons, usage, errors and the end). Whatever else a chunk contains, lacks
 * or writes with another type must not lose an answer.
 */
import { isRecord, parseJson } from "./Json.ts";
import { ErrorInside } from "./ModelFailure.ts";

/** What a response tells. The names are the AI SDK's, except for `usage`, and `alive` for a chunk without text. */
export type ModelPart =
  | { readonly type: "text-delta"; readonly delta: string }
  | { readonly type: "alive" }
  | { readonly type: "finish"; readonly finishReason: string }
  | { readonly type: "usage"; readonly usage: { inputTokens?: number; outputTokens?: number } }
  | { readonly type: "error"; readonly error: unknown };

/** Ends at `[DONE]`, or when the body ends. The end without a finish reason is an end only after `[DONE]` and text. */
export async function* readCompletion(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<ModelPart, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let pending = "";
  let event = "";
  let isStream = false;
  let answer = "";
  let hasFinish = false;
  /** Some servers send a blank finish reason with every chunk. The last one counts if no text follows. */
  let hasBlankFinish = false;
  /** The last object that is not a completion, which is an error if nothing else arrives. */
  let stray: unknown;

  const partsOf = (value: Record<string, any>): ReadonlyArray<ModelPart> => {
    const { choices } = value;
    const choice = [choices].flat().find(isRecord) as Record<string, any> | undefined;
    if (!hasFinish && isError(value, choice, event)) {
      return [{ type: "error", error: new ErrorInside(value, isStream) }];
    }
    const parts: Array<ModelPart> = [];
    const { completion_tokens, input_tokens, output_tokens, prompt_tokens } = value["usage"] ?? {};
    const usage = {
      ...countOf("inputTokens", prompt_tokens ?? input_tokens),
      ...countOf("outputTokens", completion_tokens ?? output_tokens),
    };
    if (Object.keys(usage).length > 0) parts.push({ type: "usage", usage });
    if (choice === undefined) {
      if (parts.length === 0) stray = value;
      return parts;
    }
    const { delta, finish_reason: word, message, text } = choice;
    const isWhole = !isRecord(delta) && (isRecord(message) || typeof text === "string");
    const source = isWhole ? (message ?? { content: text }) : delta;
    let content = textOf(source?.content) || textOf(source?.refusal);
    // Some servers repeat the whole answer in the last chunk.
    if (isWhole && content === answer) content = "";
    parts.push(content === "" ? { type: "alive" } : { type: "text-delta", delta: content });
    if (content !== "") hasBlankFinish = false;
    answer += content;
    const raw = word ? String(word).trim() : "";
    if (/^(null|none)?$/i.test(raw)) {
      if (isWhole && answer !== "" && !isStream) parts.push(finishWith("stop"));
      else if (content === "" && typeof word === "string") hasBlankFinish = true;
    } else parts.push(finishWith(raw));
    return parts;
  };
  const finishWith = (finishReason: string): ModelPart => {
    hasFinish = true;
    return { type: "finish", finishReason };
  };

  /** Returns the parts of a line, or `null` at `[DONE]`. */
  const readLine = (line: string): ReadonlyArray<ModelPart> | null => {
    if (line === "") {
      if (isStream) pending = event = "";
      return [];
    }
    const [, field, content = ""] =
      /^(?:data: *)*(data|event|id|retry|)(?:: *(.*))?$/s.exec(line) ?? [];
    if (field === "event") event = content;
    if (field !== undefined && field !== "data") return [];
    const data = field === undefined ? line : content;
    if (/^\W*DONE\W*$/.test(data)) return null;
    if (field === "data") isStream = true;
    pending += pending === "" ? data : `\n${data}`;
    // Servers that leave out the blank line between events send one object in each line.
    const value = (field === "data" ? parseJson(data) : undefined) ?? parseJson(pending);
    if (value === undefined) return [];
    pending = "";
    const object = [value].flat().find(isRecord);
    return object === undefined ? [] : partsOf(object);
  };

  while (true) {
    const { done, value } = await reader.read();
    rest += done ? `${decoder.decode()}\n` : decoder.decode(value, { stream: true });
    const lines = rest.split(/\r\n|\n|\r/);
    rest = lines.pop()!;
    let isDone = false;
    for (const line of lines) {
      const parts = readLine(line.trim());
      if ((isDone = parts === null)) break;
      yield* parts!;
    }
    if (isDone) drain(reader);
    else if (!done) continue;
    if (hasFinish) return;
    if (hasBlankFinish || (isDone && answer !== "")) yield finishWith("stop");
    else if (answer === "" && stray !== undefined) {
      yield { type: "error", error: new ErrorInside(stray, isStream) };
    }
    return;
  }
}

/** Lets the connection be used again if the server ends the response soon; otherwise closes it. */
const drain = (reader: ReadableStreamDefaultReader<Uint8Array>): void => {
  const timer = setTimeout(() => void reader.cancel().catch(() => {}), 1000);
  const read = async () => {
    while (!(await reader.read()).done);
  };
  void read()
    .catch(() => {})
    .finally(() => clearTimeout(timer));
};

const isSet = (u: unknown): boolean =>
  typeof u === "string"
    ? !/^(null|none)?$/i.test(u)
    : isRecord(u)
      ? Object.values(u).some(Boolean)
      : u === true;

const isError = (
  value: Record<string, any>,
  choice: Record<string, any> | undefined,
  event: string,
): boolean =>
  isSet(value["error"]) ||
  isSet(choice?.["error"]) ||
  (choice === undefined &&
    (event === "error" ||
      value["object"] === "error" ||
      value["type"] === "error" ||
      isSet(value["errors"])));

const countOf = (name: string, u: unknown) => {
  const count = typeof u === "string" && u.trim() !== "" ? Number(u) : u;
  return typeof count === "number" && count >= 0 && Number.isFinite(count)
    ? { [name]: Math.round(count) }
    : {};
};

/** Content is a string or, from some servers, an array of parts, of which those with reasoning are left out. */
const textOf = (content: unknown): string => {
  if (typeof content === "string") return content;
  if (typeof content === "number") return `${content}`;
  if (Array.isArray(content)) return content.map(textOf).join("");
  return isRecord(content) ? textOf(content["text"]) : "";
};
