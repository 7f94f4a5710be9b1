/**
 * The floor: `node:http` alone, which answers requests without checking a key or storing anything.
 *
 * Environment: PORT.
 */
import { answer, entryOf, instantAnswer, serve, streamAnswer } from "./answers.ts";

const details = {
  status: 200,
  data: {
    chatBotName: "Bench bot",
    chatBotDescription: "Answers questions while it is measured.",
    workspaceName: "Bench",
  },
};

serve(async ({ headers, method }, body, response) => {
  if (method === "GET") return [200, details];
  if (headers.accept !== "text/event-stream")
    return [201, entryOf(1, 1, body.query, instantAnswer)];
  return streamAnswer(response, answer(body.query), (whole) => entryOf(1, 1, body.query, whole));
});
