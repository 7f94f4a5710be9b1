/**
 * `parley doctor` checks settings, database, documents and models. It changes nothing.
 */
import { ChatbotRegistry, defaultSettings, Moderator, type Chatbot } from "@parley/core";
import { inspectPostgres } from "@parley/store-pg";
import { Data, Effect, Path, Result } from "effect";
import { Command } from "effect/cli";
import { readSettings, Settings, type ModelSettings } from "../../Settings.ts";
import { databaseExists, databaseOptions, onDatabase } from "../Database.ts";
import { describeError, toLine } from "../Errors.ts";
import { jsonFlag } from "../Flags.ts";
import { counted, print, printable } from "../Output.ts";

const hints = {
  settings: "docs/settings.md explains every setting.",
  database:
    "Check DATABASE_URL, that PostgreSQL runs, and its roles (docs/operations.md); or else PARLEY_DATA_DIR.",
  documents:
    "Check PARLEY_KNOWLEDGE_DIR, PARLEY_KNOWLEDGE_ROOT and the folders; documents end with .md or .txt.",
  model: "Set PARLEY_LLM_BASE_URL and PARLEY_LLM_MODEL.",
  moderation: "Set PARLEY_MODERATION_BASE_URL and PARLEY_MODERATION_MODEL.",
};

/** `warning`: it works, but hardly as the operator intends. */
const finding =
  (status: "ok" | "warning" | "failed") =>
  (check: keyof typeof hints, message: string, hint = hints[check]) => ({
    check,
    status,
    message,
    hint: status === "ok" ? null : hint,
  });
const [ok, warning, failed] = [finding("ok"), finding("warning"), finding("failed")];

const checkDatabase = Effect.gen(function* () {
  if ((yield* Settings).store === "memory") {
    return [warning("database", "PARLEY_STORE is memory, which ends with the server.")];
  }
  if (!(yield* databaseExists)) {
    return [ok("database", "There is none yet; the first start makes it.")];
  }
  const { current, encoding, readOnly, refusal, version } = yield* Effect.flatMap(
    databaseOptions,
    inspectPostgres,
  );
  const findings = [ok("database", `PostgreSQL ${version} with ${encoding} answers.`)];
  if (readOnly) {
    const message = "It takes no writes: it is a standby, or transactions only read by default.";
    findings.push(warning("database", message));
  }
  if (!current) {
    const message = 'The schema is not up to date; a start or "parley migrate" brings it there.';
    findings.push(warning("database", message));
  }
  if (refusal !== null) findings.push(failed("database", refusal));
  return findings;
}).pipe(
  Effect.scoped,
  Effect.catch((error) => Effect.succeed([failed("database", describeError(error).message)])),
);

/** None if the database cannot be used; {@link checkDatabase} says why. */
const readChatbots = ChatbotRegistry.use(({ list }) => list).pipe(
  onDatabase,
  Effect.map((registered) => registered.map(({ chatbot }) => chatbot)),
  Effect.orElseSucceed((): ReadonlyArray<Chatbot> => []),
);

/** The folders or models that the chatbots' own settings name. */
const namedBy = (chatbots: ReadonlyArray<Chatbot>, setting: "knowledge" | "model") => [
  ...new Set(chatbots.flatMap(({ settings }) => settings[setting] ?? [])),
];

/** The other commands need no language models. */
const llm = Effect.promise(() => import("@parley/llm"));

const checkDocuments = Effect.fnUntraced(function* (chatbots: ReadonlyArray<Chatbot>) {
  const { knowledgeDir, knowledgeRoot } = yield* Settings;
  const { readKnowledge } = yield* llm;
  const path = yield* Path.Path;
  const named = namedBy(chatbots, "knowledge");
  if (knowledgeRoot === null && named.length > 0) {
    const folders = named.join('", "');
    const message = `Chatbots have the documents "${folders}", but PARLEY_KNOWLEDGE_ROOT is not set.`;
    return [failed("documents", message)];
  }
  const folders = named.map((name) => path.join(knowledgeRoot!, name));
  return yield* Effect.forEach([knowledgeDir ?? [], folders].flat(), (folder) =>
    Effect.match(readKnowledge(folder), {
      onSuccess: ({ topics }) =>
        (topics.length === 0 ? warning : ok)("documents", `${folder} has ${topics.length}.`),
      onFailure: (error) => failed("documents", describeError(error).message),
    }),
  );
});

/** Makes a short call to each model of the server, each that a chatbot names, and the moderation endpoint. */
const checkModels = Effect.fnUntraced(function* (chatbots: ReadonlyArray<Chatbot>) {
  const { llms, moderation } = yield* Settings;
  const { layerModerationEndpoint, openAiCompatible, tryModel } = yield* llm;
  const tryCall = (
    check: "model" | "moderation",
    { model, names, provider }: ModelSettings,
    call: Effect.Effect<unknown, string>,
  ) =>
    Effect.match(call, {
      onSuccess: () => ok(check, `${model} at ${provider} answers.`),
      onFailure: (reason) =>
        // A model that refuses this call, or an account with too many, may answer a question.
        (/HTTP 4(00|29)/.test(reason) ? warning : failed)(
          check,
          `${model} at ${provider}: ${reason}.`,
          `Check ${names.baseUrl}, which often ends with /v1, ${names.model} and ${names.apiKey}.`,
        ),
    });
  const [first] = llms;
  const named = namedBy(chatbots, "model").filter((model) => model !== first?.model);
  const own = first === undefined ? [] : named.map((model) => ({ ...first, model }));
  const findings = yield* Effect.forEach(
    [...llms, ...own],
    (settings) => {
      const call = Effect.flatMap(openAiCompatible(settings), tryModel).pipe(
        Effect.mapError((error) => ("detail" in error ? error.detail : error.message)),
      );
      return tryCall("model", settings, call);
    },
    { concurrency: 4 },
  );
  if (first === undefined && named.length > 0) {
    const message = `Chatbots name the models "${named.join('", "')}", but no endpoint is set.`;
    findings.push(warning("model", message));
  }
  if (moderation.endpoint !== null) {
    const chatbot = { id: 0, name: "", description: "", workspaceName: "" };
    const call = Moderator.use(({ check }) =>
      check({ ...chatbot, settings: defaultSettings }, "ping"),
    ).pipe(
      Effect.provide(layerModerationEndpoint(moderation.endpoint)),
      Effect.mapError(({ reason }) => reason),
    );
    findings.push(yield* tryCall("moderation", moderation.endpoint, call));
  } else if (chatbots.some(({ settings }) => settings.moderation === "endpoint")) {
    const message = "Chatbots are set to be moderated by the endpoint, but no endpoint is set.";
    findings.push(failed("moderation", message));
  }
  return findings;
});

/** With invalid settings nothing else is checked. */
const examine = Effect.gen(function* () {
  const read = yield* Effect.result(readSettings(process.env));
  if (Result.isFailure(read)) return [failed("settings", read.failure.message)];
  const { settings, warnings } = read.success;
  const findings = warnings.map((message) => warning("settings", message));
  if (findings.length === 0) findings.push(ok("settings", "All settings can be read."));
  return yield* Effect.gen(function* () {
    findings.push(...(yield* checkDatabase));
    const chatbots = yield* readChatbots;
    return [...findings, ...(yield* checkDocuments(chatbots)), ...(yield* checkModels(chatbots))];
  }).pipe(Effect.provideService(Settings, settings));
});

export class DoctorFailed extends Data.TaggedError("DoctorFailed")<{ readonly message: string }> {}

const textOf = ({ check, hint, message, status }: ReturnType<typeof ok>): string => {
  const first = `${status.padEnd(8)} ${check.padEnd(10)}  ${printable(toLine(message))}`;
  return hint === null ? first : `${first}\n${" ".repeat(21)}${printable(toLine(hint))}`;
};

export const doctor = Command.make("doctor", { json: jsonFlag }, ({ json }) =>
  Effect.gen(function* () {
    const findings = yield* examine;
    yield* print(json, findings, () => findings.map(textOf).join("\n"));
    const failures = findings.filter(({ status }) => status === "failed").length;
    if (failures === 0) return;
    return yield* new DoctorFailed({ message: `${counted(failures, "check")} failed.` });
  }),
).pipe(
  Command.withDescription("Check settings, database, documents and models, with hints"),
  Command.withExamples([
    { command: "parley doctor", description: "Before the first start, or when something is wrong" },
    { command: "parley doctor --json", description: "For a program" },
  ]),
);
