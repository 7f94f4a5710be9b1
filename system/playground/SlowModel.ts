/**
 * A language model for tests that streams scripted answers word by word, and whose moderation flags questions about
 * weapons.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { startEndpoint, startTestModel } from "../../apps/server/test/TestModel.ts";

export type SlowModel = Awaited<ReturnType<typeof startSlowModel>>;

/**
 * `script` returns the answer to a question; `undefined` makes the call fail with status 400. `pauseMillis` returns how
 * long each word takes.
 */
export const startSlowModel = async (
  script: (question: string) => string | undefined,
  pauseMillis: (question: string) => number = () => 60,
) => {
  /** The questions received so far, and those whose answers were cancelled. */
  const [questions, cancelled]: [Array<string>, Array<string>] = [[], []];
  const model = await startTestModel(async ({ end, response, say, text: question }) => {
    questions.push(question);
    const answer = script(question);
    if (answer === undefined) return response.writeHead(400).end("{}");
    response.on("close", () => {
      if (!response.writableFinished) cancelled.push(question);
    });
    let due = performance.now();
    for (const word of answer.match(/\s*\S+\s*$|\s*\S+/g) ?? []) {
      if (response.destroyed) return undefined;
      say(word);
      // Timers fire late, so several words may be sent at once to keep the pace.
      due += pauseMillis(question);
      if (due > performance.now()) await sleep(due - performance.now());
    }
    return end();
  });
  const moderation = await startEndpoint(({ body }, response) => {
    const flagged = /\bweapon/i.test(JSON.parse(body).input);
    response.end(JSON.stringify({ results: [{ flagged, categories: { violence: flagged } }] }));
  });
  return {
    settings: {
      ...model.settings,
      PARLEY_MODERATION: "endpoint",
      PARLEY_MODERATION_BASE_URL: `${moderation.url}/v1`,
      PARLEY_MODERATION_MODEL: "m",
    },
    questions,
    cancelled,
    close: () => {
      model.close();
      moderation.close();
    },
  };
};
