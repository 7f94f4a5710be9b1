import { makeClient } from "@parley/client";
import { makeChatTransport } from "@parley/client/ai-sdk";
import { layerParley } from "@parley/core";
import { openParley } from "@parley/core/promise";
import {
  documents,
  languageModel,
  layerLanguageModel,
  layerModerationEndpoint,
  openAiCompatible,
} from "@parley/llm";
import { makeApp, makeWebHandler } from "@parley/http";
import { toNodeHandler } from "@parley/http/node";
import { makeDocumentation } from "@parley/pages/docs";
import { makePlayground } from "@parley/pages/playground";
import { makeWidgetPages } from "@parley/pages/widget";
import { layerMemory, memory } from "@parley/store-memory";
import { layerPostgres, migratePostgres, postgres } from "@parley/store-pg";
import { layerSqlite, sqlite } from "@parley/store-sqlite";
import { Effect } from "effect";
import { expect, it } from "vitest";

type Call = (argument?: any) => unknown;

/** Each constructor with options, a misspelt option, and one of the options that the error has to name. */
const constructors: ReadonlyArray<readonly [string, Call, unknown: object, known: string]> = [
  ["openParley", openParley as Call, { logs: false }, "questionLength"],
  ["layerParley", layerParley as Call, { answer: () => "a" }, "answerer"],
  ["languageModel", languageModel, { baseURL: "http://localhost" }, "baseUrl"],
  [
    "layerLanguageModel",
    (options) => layerLanguageModel([] as any, options),
    { retry: 1 },
    "retries",
  ],
  ["openAiCompatible", openAiCompatible, { apikey: "k" }, "apiKey"],
  ["layerModerationEndpoint", layerModerationEndpoint, { open: true }, "failOpen"],
  ["postgres", postgres, { ur: "postgres://localhost/x" }, "maxConnections"],
  ["layerPostgres", layerPostgres, { maxConnection: 9 }, "maxConnections"],
  ["migratePostgres", migratePostgres, { scheme: "s" }, "schema"],
  ["layerSqlite", layerSqlite, { path: "x" }, "file"],
  ["makeClient", makeClient, { apikey: "k" }, "apiKey"],
  ["makeChatTransport", makeChatTransport as Call, { chatID: 7 }, "chatId"],
  ["makePlayground", makePlayground as Call, { place: [] }, "places"],
  ["makeDocumentation", makeDocumentation as Call, { place: [] }, "places"],
  ["makeWidgetPages", makeWidgetPages as Call, { questions: 1 }, "welcome"],
  [
    "makeWebHandler",
    (options) => makeWebHandler(layerMemory as never, options),
    { basePath: "/" },
    "context",
  ],
  [
    "toNodeHandler",
    (options) => toNodeHandler(async () => new Response(), options),
    { basePath: "/" },
    "context",
  ],
  ["makeApp", (options) => Effect.runSync(makeApp(options) as never), { basePath: "/" }, "context"],
  ["memory", memory as Call, { file: "x" }, "no options"],
];

it.each(constructors)(
  "%s refuses an unknown option at once, and names it and the known ones",
  async (_, construct, unknown, known) => {
    const error = await (async () => construct(unknown))().catch(
      (error: unknown) => error as Error,
    );
    // The client has no dependency, and so no error class of the core.
    expect(["ArgumentInvalid", "TypeError"]).toContain((error as Error).name);
    expect((error as Error).message).toContain(`${Object.keys(unknown)[0]} is unknown`);
    expect((error as Error).message).toContain(known);
  },
);

it("a constructor whose required argument is missing or of another type says what it expects", async () => {
  const calls: ReadonlyArray<readonly [() => unknown, RegExp]> = [
    [openParley as Call, /store is missing/],
    [() => languageModel({ model: "m" } as any), /baseUrl is missing/],
    [() => languageModel(undefined as any), /baseUrl is missing/],
    [() => documents({ folder: "docs" } as any), /the path of a folder/],
    [() => sqlite(undefined as any), /the path of a file/],
    [() => layerSqlite({ file: "" }), /the path of a file/],
    [() => postgres(undefined as any), /url is missing/],
    [() => postgres(""), /a URL such as postgres/],
    [() => postgres(5 as any), /an object with the options url/],
  ];
  for (const [call, message] of calls)
    await expect((async () => call())()).rejects.toMatchObject({
      name: "ArgumentInvalid",
      message: expect.stringMatching(message),
    });
});
