/**
 * `parley doctor` checks the settings and everything that a server needs or uses. It changes no data.
 */
import { ChatbotId, defaultSettings, type Chatbot } from "@parley/core";
import { ChatbotRegistry, Moderator } from "@parley/core/ports";
import { Effect, Path, Redacted, Result } from "effect";
import { loadPostgres } from "../../layers/Postgres.ts";
import { plan } from "../../provision/Provision.ts";
import { readProvisionFile } from "../../provision/ProvisionFile.ts";
import { readSettings, Settings, type ModelSettings } from "../../Settings.ts";
import { databaseExists, databaseOptions, onDatabase } from "../Database.ts";
import { describeFile } from "../DatabaseFile.ts";
import { makeCommand } from "../Declaration.ts";
import { CommandFailed, describeError, toLine, withOwnCommand } from "../CommandErrors.ts";
import { pluralize, print, printable } from "../Output.ts";
import {
  checkCollectors,
  checkDirectory,
  checkListeners,
  report,
  type Finding,
} from "../StartChecks.ts";

const hints = {
  settings: "docs/settings.md explains every setting.",
  database:
    "Check PARLEY_DATA_DIR or, with PostgreSQL, DATABASE_URL and the database roles (docs/operations.md).",
  documents:
    "Check PARLEY_KNOWLEDGE_DIR and its subfolders; document names must end with .md or .txt.",
  listeners:
    "Change PARLEY_HOST or the port (PARLEY_MANAGEMENT_PORT can contain a host), or stop the program that uses the port.",
  directory: "Set PARLEY_DATA_DIR to a directory that the user running the server can write to.",
  provision: "docs/provisioning.schema.json describes the provisioning file.",
  telemetry: "Check OTEL_EXPORTER_OTLP_…ENDPOINT, and make sure that the collector is running.",
  model: "Set PARLEY_LLM_BASE_URL and PARLEY_LLM_MODEL.",
  moderation: "Set PARLEY_MODERATION_BASE_URL and PARLEY_MODERATION_MODEL.",
};

const checkDatabase = Effect.gen(function* () {
  const { dataDir, store } = yield* Settings;
  if (store === "memory") {
    const message = "PARLEY_STORE is memory: chats are lost when the server stops.";
    return report(["warning", message, "Unset PARLEY_STORE to keep chats in a file."]);
  }
  if (!(yield* databaseExists)) {
    const message = `There is no database in PARLEY_DATA_DIR ${dataDir} yet; the server creates one when it first starts.`;
    return report(["ok", message]);
  }
  if (store === "sqlite") return yield* describeFile;
  const { inspectPostgres } = yield* loadPostgres;
  const options = yield* databaseOptions;
  const { ctype, current, encoding, refusal, version, warnings } = yield* inspectPostgres(options);
  const warningsHint =
    'See ParleyDatabaseReadOnly and ParleyClockOff in docs/troubleshooting.md, or "Connections" and "Back up and restore" in docs/operations.md.';
  return report(
    ["ok", `PostgreSQL ${version} (${encoding}) is responding.`],
    /^(C|POSIX)$/.test(ctype) && [
      "warning",
      `The database's lc_ctype is ${ctype}: the search index covers only ASCII letters.`,
      'Create a database with lc_ctype C.UTF-8: see "Start on your own PostgreSQL" in docs/operations.md.',
    ],
    ...warnings.map((message): Finding => ["warning", message, warningsHint]),
    refusal === null &&
      !current && [
        "warning",
        'The database schema is out of date; starting the server or running "parley migrate" updates it.',
        'See "Upgrade" in docs/operations.md.',
      ],
    refusal !== null && ["failed", refusal],
  );
}).pipe(
  Effect.scoped,
  Effect.catch((error) => Effect.succeed(report(["failed", describeError(error).message]))),
);

/** Checks the provisioning file and the variables that it names, even if the database cannot be used. */
const checkProvisioning = Effect.gen(function* () {
  const { provision } = yield* Settings;
  if (provision === null) return [];
  yield* readProvisionFile(provision, process.env);
  const result = yield* Effect.result(onDatabase(plan(provision, process.env, "doctor", true)));
  return Result.isFailure(result) && result.failure._tag === "ProvisionInvalid"
    ? yield* result.failure
    : report(["ok", `${provision} is valid.`]);
}).pipe(
  Effect.catchTag("ProvisionInvalid", ({ message }) => Effect.succeed(report(["failed", message]))),
);

/** Reads the chatbots. There are none if the database cannot be used; {@link checkDatabase} reports why. */
const readChatbots = ChatbotRegistry.use(({ list }) => list).pipe(
  onDatabase,
  Effect.map((registeredChatbots) => registeredChatbots.map(({ chatbot }) => chatbot)),
  Effect.orElseSucceed((): ReadonlyArray<Chatbot> => []),
);

/** Returns the distinct folders or models that the chatbots' own settings name. */
const namesIn = (chatbots: ReadonlyArray<Chatbot>, setting: "knowledge" | "model") => [
  ...new Set(chatbots.flatMap(({ settings }) => settings[setting] ?? [])),
];

/** Loaded when needed, because most commands need no language models. */
const llm = Effect.promise(() => import("@parley/llm"));

const checkDocuments = Effect.fnUntraced(function* (chatbots: ReadonlyArray<Chatbot>) {
  const { knowledgeDir } = yield* Settings;
  const { readKnowledge } = yield* llm;
  const path = yield* Path.Path;
  const names = namesIn(chatbots, "knowledge");
  if (knowledgeDir === null)
    return report(
      names.length > 0 && [
        "failed",
        `Chatbots answer from subfolders (${names.join(", ")}), but PARLEY_KNOWLEDGE_DIR is not set.`,
      ],
    );
  const folders = [knowledgeDir, ...names.map((name) => path.join(knowledgeDir, name))];
  const findings = yield* Effect.forEach(folders, (folder) =>
    Effect.match(readKnowledge(folder), {
      onSuccess: ({ documents, passages }): Finding => [
        passages.length === 0 ? "warning" : "ok",
        `${folder} has ${pluralize(documents.size, "document")}.`,
      ],
      onFailure: (error): Finding => ["failed", describeError(error).message],
    }),
  );
  const others = chatbots.filter(({ settings }) => settings.knowledge === null);
  const list = others.map(({ name }) => name).join(", ");
  return report(
    ...findings,
    names.length > 0 &&
      list !== "" && [
        "warning",
        `These chatbots have no subfolder of their own and also answer from other chatbots' documents: ${list}.`,
        'Set one with "parley chatbot set --knowledge".',
      ],
  );
});

/** Sends requests with `fetch`, and keeps the beginning of each response that fails or may be misread. */
const recordResponses = () => {
  const responses: Array<{ readonly status: number; text: string }> = [];
  const send: typeof fetch = async (url, init) => {
    const response = await fetch(url, init);
    const record = { status: response.status, text: "" };
    responses.push(record);
    const reader = response.clone().body?.pipeThrough(new TextDecoderStream()).getReader();
    const read = async (): Promise<void> => {
      const { done, value } = (await reader?.read()) ?? { done: true };
      if (done || record.text.length > 4000) return reader?.cancel();
      record.text += value;
      return read();
    };
    // A response may break off, or never end.
    read().catch(() => {});
    return response;
  };
  return { responses, send };
};

/** Makes a call, and reports everything that came back if it failed: the words in the request are the doctor's own. */
const tryCall = (
  {
    options: { apiKey, model },
    prefix,
    provider,
    source = `${prefix}_MODEL`,
  }: ModelSettings & { readonly source?: string },
  call: (send: typeof fetch) => Effect.Effect<string, string>,
) => {
  const { responses, send } = recordResponses();
  return Effect.match(call(send), {
    onSuccess: (answer): Finding => ["ok", `${model} at ${provider} is responding${answer}.`],
    onFailure: (reason): Finding => {
      const texts = responses.map(({ status, text }) => `${status} ${text.trim()}`);
      const received = [...new Set(texts)]
        .map((text) => ` It sent: ${text.slice(0, 2000)}`)
        .join("");
      const key = apiKey === undefined ? "" : Redacted.value(apiKey);
      const message = `${model} at ${provider}: ${reason}.${received}`;
      // Only a warning, because the limit on calls may be over when the server starts.
      const isBusy = responses.at(-1)?.status === 429;
      return [
        isBusy ? "warning" : "failed",
        key === "" ? message : message.replaceAll(key, "[key]"),
        `Check ${prefix}_BASE_URL (which often ends with /v1), ${source} and ${prefix}_API_KEY.`,
      ];
    },
  });
};

/** Asks each model that the server's settings or a chatbot's own settings name, in the form of a real question. */
const checkModels = Effect.fnUntraced(function* (chatbots: ReadonlyArray<Chatbot>) {
  const { contextTokens, llms } = yield* Settings;
  const { openAiCompatible, tryModel } = yield* llm;
  const names = namesIn(chatbots, "model").filter((model) => model !== llms[0]?.options.model);
  if (llms[0] === undefined && names.length > 0) {
    const message = `Chatbots have their own models (${names.join(", ")}), but no model endpoint is set.`;
    return report(["warning", message]);
  }
  const ownModels = names.map((model) => ({
    ...llms[0]!,
    options: { ...llms[0]!.options, model },
    source: "the chatbots' own models",
  }));
  return yield* Effect.forEach([...llms, ...ownModels], (settings) =>
    tryCall(settings, (fetch) =>
      openAiCompatible({ ...settings.options, provider: settings.provider, fetch }).pipe(
        Effect.flatMap((model) => tryModel(model, contextTokens)),
        Effect.map(
          ({ answer, completion, finish, prompt }) =>
            `: ${JSON.stringify(answer.slice(0, 200))} (${finish}; ${prompt} + ${completion} tokens)`,
        ),
        Effect.mapError((error) => ("detail" in error ? error.detail : error.message)),
      ),
    ),
  );
});

const checkModeration = Effect.fnUntraced(function* (chatbots: ReadonlyArray<Chatbot>) {
  const { endpoint } = (yield* Settings).moderation;
  const { layerModerationEndpoint } = yield* llm;
  if (endpoint === null)
    return report(
      chatbots.some(({ settings }) => settings.moderation === "endpoint") && [
        "failed",
        "Chatbots use endpoint moderation, but no moderation endpoint is set.",
      ],
    );
  const names = { name: "", description: "", workspaceName: "" };
  const finding = tryCall(endpoint, (fetch) =>
    Moderator.use(({ check }) =>
      check({ id: ChatbotId.make(0), ...names, settings: defaultSettings }, "ping"),
    ).pipe(
      Effect.provide(layerModerationEndpoint({ ...endpoint.options, fetch })),
      Effect.mapBoth({
        onSuccess: ({ category }) => (category === "none" ? "" : `: ${category}`),
        onFailure: (error) => ("reason" in error ? error.reason : error.message),
      }),
    ),
  );
  return [yield* finding];
});

/** Runs all checks. If the settings are invalid, nothing else is checked. */
const examine = Effect.gen(function* () {
  const read = yield* Effect.result(readSettings(process.env));
  if (Result.isFailure(read)) return { settings: report(["failed", read.failure.message]) };
  const { warnings } = read.success;
  const checks = Effect.flatMap(readChatbots, (chatbots) =>
    Effect.all({
      database: checkDatabase,
      listeners: checkListeners,
      telemetry: checkCollectors(process.env),
      directory: checkDirectory(chatbots.length),
      provision: checkProvisioning,
      documents: checkDocuments(chatbots),
      model: checkModels(chatbots),
      moderation: checkModeration(chatbots),
    }),
  );
  const settings =
    warnings.length > 0
      ? warnings.map((message): Finding => ["warning", message])
      : report(["ok", "All settings are valid."]);
  return { settings, ...(yield* Effect.provideService(checks, Settings, read.success)) };
});

export const doctor = makeCommand("doctor", {
  description: "Check settings, database, documents and models, and suggest fixes",
  examples: {
    "parley doctor": "Run it before you first start the server, or when something is wrong",
  },
  run: Effect.fnUntraced(function* () {
    const findings = Object.entries(yield* examine).flatMap(([check, findings]) =>
      findings.map(([status, message, hint = hints[check as keyof typeof hints]]) => ({
        check,
        status,
        message: withOwnCommand(message),
        hint: status === "ok" ? null : withOwnCommand(hint),
      })),
    );
    const lines = findings.map(({ check, hint, message, status }) => {
      const first = `${status.padEnd(8)} ${check.padEnd(10)}  ${printable(toLine(message))}`;
      return hint === null ? first : `${first}\n${" ".repeat(21)}${hint}`;
    });
    yield* print(findings, lines.join("\n"));
    const failures = findings.filter(({ status }) => status === "failed").length;
    if (failures === 0) return;
    return yield* new CommandFailed({
      message: `${pluralize(failures, "check")} failed.`,
      hint: "the hints above say what to do.",
    });
  }),
});
