/** Mock language models that follow a test's script. */
import { APICallError } from "ai";
import { MockLanguageModelV4 } from "ai/test";

type Call = MockLanguageModelV4["doStreamCalls"][number];
type Part =
  Awaited<ReturnType<MockLanguageModelV4["doStream"]>>["stream"] extends ReadableStream<infer A>
    ? A
    : never;

export const finish = (
  unified: "stop" | "length" | "content-filter" | "other" | "error",
): Part => ({
  type: "finish",
  usage: {
    inputTokens: { total: 11, noCache: 11, cacheRead: undefined, cacheWrite: undefined },
    outputTokens: { total: 7, text: 7, reasoning: undefined },
  },
  finishReason: { unified, raw: unified },
});

export const said = (...deltas: ReadonlyArray<string>): Array<Part> => [
  { type: "stream-start", warnings: [{ type: "other", message: "not supported" }] },
  { type: "text-start", id: "1" },
  ...deltas.map((delta): Part => ({ type: "text-delta", id: "1", delta })),
  { type: "text-end", id: "1" },
];

/** The parts of a response, with pauses, an error or silence among them; or only an error or silence. */
export type Reply = ReadonlyArray<Part | Promise<void> | Error | "silence"> | Error | "silence";

export const says = (...deltas: ReadonlyArray<string>): Reply => [
  ...said(...deltas),
  finish("stop"),
];

export const refused = Object.assign(new TypeError("fetch failed"), {
  cause: Object.assign(new Error(), { code: "ECONNREFUSED" }),
});

export const httpError = (
  statusCode: number,
  more: { readonly headers?: Record<string, string>; readonly body?: string } = {},
): Error =>
  new APICallError({
    message: "no",
    url: "http://localhost",
    requestBodyValues: {},
    statusCode,
    responseHeaders: more.headers ?? {},
    responseBody: more.body ?? "",
  });

/** A model that replies to its n-th call, counted from 0, with `reply(n)`. */
export const modelThat = (reply: (n: number, call: Call) => Reply, provider = "mock") => {
  let calls = 0;
  return new MockLanguageModelV4({
    provider,
    modelId: `${provider}-1`,
    doStream: (call) => {
      const script = reply(calls++, call);
      if (script === "silence") return new Promise(() => {});
      if (script instanceof Error) return Promise.reject(script);
      return Promise.resolve({
        stream: new ReadableStream<Part>({
          async start(controller) {
            for (const part of script) {
              if (part === "silence") return;
              if (part instanceof Error) throw part;
              if (part instanceof Promise) await part;
              else controller.enqueue(part);
            }
            controller.close();
          },
          // Never resolves, like a provider that keeps its connection open.
          cancel: () => new Promise(() => {}),
        }),
      });
    },
  });
};

/** The messages of the model's n-th call. */
export const promptOf = (model: MockLanguageModelV4, n = 0) =>
  (model.doStreamCalls[n] as Call).prompt.map(({ role, content }) => ({
    role,
    content:
      typeof content === "string"
        ? content
        : content.map((part) => (part.type === "text" ? part.text : "?")).join("|"),
  }));
