/**
 * Leaves out the reasoning that a model sends as text at the beginning of an answer. A tag further on is a quotation.
 */
const names =
  "(?:\\w+:)?(?:think|thinking|thoughts?|thought_process|reasoning|reflection|scratchpad)";
/** `<think>`, `[THINK]`, `◁think▷`, `<|begin_of_thought|>` and a channel of gpt-oss or Gemma. */
const opening = new RegExp(
  `^(?:([<[◁])(${names})([>\\]▷])|<\\|begin_of_(${names})\\|>|(<\\|channel\\|>analysis<\\|message\\|>)|<\\|channel>thought)`,
  "i",
);
const mayBecomeOpening = /^(?:[<[◁][\w:|]{0,30}|<\|channel\|?>[\w<|]{0,20})$/;

const closingOf = ([, left, name, right, topic, channel]: RegExpExecArray): RegExp => {
  const tag =
    left !== undefined
      ? `${left}/${name}${right}`
      : topic !== undefined
        ? `<|end_of_${topic}|>`
        : channel !== undefined
          ? "<|channel|>final<|message|>"
          : "<channel|>";
  return new RegExp(tag.replace(/[[\]|]/g, "\\$&"), "i");
};

/** Returns a function that takes an answer's next delta, or `null` at its end, and returns the text to show. */
export const makeReasoningFilter = () => {
  let pending: string | null = "";
  let closing: RegExp | null = null;
  return (delta: string | null): string => {
    if (pending === null) return delta ?? "";
    pending += delta ?? "";
    while (true) {
      if (closing !== null) {
        const end: RegExpExecArray | null = closing.exec(pending);
        if (end === null) {
          pending = pending.slice(-40);
          return "";
        }
        pending = pending.slice(end.index + end[0].length);
        closing = null;
      }
      pending = pending.replace(/^\p{White_Space}+/u, "");
      const match = opening.exec(pending);
      if (match !== null) {
        closing = closingOf(match);
        pending = pending.slice(match[0].length);
        continue;
      }
      if (pending === "" || (delta !== null && mayBecomeOpening.test(pending))) return "";
      const text: string = pending;
      pending = null;
      return text;
    }
  };
};
