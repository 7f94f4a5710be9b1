/**
 * `parley doctor` checks settings, database, documents and models. It changes nothing.
 */
import { ChatbotRegistry, defaultSettings, Moderator, type Chatbot } from "@parley/core";
import { inspectPostgres, layerPostgres } from "@parley/store-pg";
import { Data, Effect, Path, Result } from "effect";
import { Command } from "effect/cli";
import { readSettings, Settings, type ModelSettings } from "../../Settings.ts";
import { databaseExists, databaseOptions } from "../Database.ts";
import { describeError, toLine } from "../Errors.ts";
import { jsonFlag } from "../Flags.ts";
import { print, printable } from "../Output.ts";

interface Finding {
  readonly check: "settings" | "database" | "documents" | "model" | "moderation";
  readonly status: "ok" | "warning" | "failed";
  readonly message: string;
  readonly hint: string | null;
}

const finding =
  (status: Finding["status"]) =>
  (check: Finding["check"], message: string, hint: string | null = null): Finding => ({
    check,
    status,
    message,
    hint,
  });
const ok = finding("ok");
/** It works, but hardly as the operator intends. */
const warning = finding("warning");
const failed = finding("failed");

/** The findings, and the chatbots if they can be read. */
const checkDatabase = Effect.gen(function* () {
  const none: ReadonlyArray<Chatbot> = [];
  if ((yield* Settings).store === "memory") {
    const message = "PARLEY_STORE is memory: everything is forgotten when the server ends.";
    return [[warning("database", message, "Leave it unset, or set DATABASE_URL.")], none] as const;
  }
  if (!(yield* databaseExists)) {
    return [[ok("database", "There is none yet; the first start makes it.")], none] as const;
  }
  const options = yield* databaseOptions;
  const { current, encoding, readOnly, refusal, version } = yield* inspectPostgres(options);
  const findings = [ok("database", `PostgreSQL ${version} with ${encoding} answers.`)];
  const hint = "docs/operations.md explains what the roles of the database need.";
  if (readOnly) {
    const message = "It takes no writes: it is a standby, or transactions only read by default.";
    findings.push(warning("database", message, "Let DATABASE_URL lead to the primary."));
  }
  if (refusal !== null) findings.push(failed("database", refusal, hint));
  else if (!current) {
    const message = "The schema is not up to date; a start brings it there.";
    findings.push(warning("database", message, '"parley migrate --dry-run" prints the SQL.'));
  }
  if (refusal !== null || !current) return [findings, none] as const;
  const registered = yield* ChatbotRegistry.use(({ list }) => list).pipe(
    Effect.provide(layerPostgres(options)),
  );
  return [findings, registered.map(({ chatbot }) => chatbot)] as const;
}).pipe(
  Effect.scoped,
  Effect.catch((error) =>
    Effect.map(Settings, ({ store }) => {
      const hint =
        store === "embedded"
          ? "Check PARLEY_DATA_DIR and its permissions; its postgres/data/log may say more."
          : "Check that PostgreSQL runs, and DATABASE_URL: postgres://user:password@host:5432/database.";
      return [[failed("database", describeError(error).message, hint)], []] as const;
    }),
  ),
);

/** The default documents, and the folder of each chatbot that names one. */
const checkDocuments = Effect.fnUntraced(function* (chatbots: ReadonlyArray<Chatbot>) {
  const { knowledgeDir, knowledgeRoot } = yield* Settings;
  const { readKnowledge } = yield* models;
  const path = yield* Path.Path;
  const named = [...new Set(chatbots.flatMap(({ settings }) => settings.knowledge ?? []))];
  if (knowledgeRoot === null && named.length > 0) {
    const message = `Chatbots have the documents "${named.join('", "')}", but PARLEY_KNOWLEDGE_ROOT is not set.`;
    const hint = 'Set it, or run "parley chatbot set --unset knowledge" for them.';
    return [failed("documents", message, hint)];
  }
  const folders = named.map((name) => path.join(knowledgeRoot!, name));
  if (knowledgeDir !== null) folders.unshift(knowledgeDir);
  return yield* Effect.forEach(folders, (folder) =>
    readKnowledge(folder).pipe(
      Effect.map(({ topics }) =>
        topics.length === 0
          ? warning("documents", `${folder} has none.`, "Documents end with .md or .txt.")
          : ok("documents", `${folder} has ${topics.length}.`),
      ),
      Effect.catch((error) => {
        const hint = "Correct the setting, or let this user read there.";
        return Effect.succeed(failed("documents", describeError(error).message, hint));
      }),
    ),
  );
});

/** The other commands need no language models. */
const models = Effect.promise(() => import("@parley/llm"));

/** Makes the shortest call to each model of the server, each that a chatbot names, and the moderation endpoint. */
const checkModels = Effect.fnUntraced(function* (chatbots: ReadonlyArray<Chatbot>) {
  const { llms, moderation } = yield* Settings;
  const { layerModerationEndpoint, openAiCompatible, tryModel } = yield* models;
  const checkCall = (
    check: Finding["check"],
    { model, names, provider }: ModelSettings,
    call: Effect.Effect<unknown, string>,
  ) =>
    Effect.match(call, {
      onSuccess: () => ok(check, `${model} at ${provider} answers.`),
      onFailure: (reason) =>
        // The endpoint limits the calls of the account, which passes.
        (reason.includes("HTTP 429") ? warning : failed)(
          check,
          `${model} at ${provider}: ${reason}.`,
          `Check ${names.baseUrl}, which often ends with /v1, ${names.model} and ${names.apiKey}.`,
        ),
    });
  const [first] = llms;
  const named = new Set(chatbots.flatMap(({ settings }) => settings.model ?? []));
  if (first !== undefined) named.delete(first.model);
  const all = [...llms, ...[...named].flatMap((model) => (first ? [{ ...first, model }] : []))];
  const findings = yield* Effect.forEach(
    all,
    (settings) => {
      const call = Effect.flatMap(openAiCompatible(settings), tryModel);
      return checkCall(
        "model",
        settings,
        Effect.mapError(call, ({ detail }) => detail),
      );
    },
    { concurrency: 4 },
  );
  if (first === undefined && named.size === 0) {
    findings.push(ok("model", "None is set: answers are quoted from documents."));
  } else if (first === undefined) {
    const message = `Chatbots name the models "${[...named].join('", "')}", but no endpoint is set.`;
    findings.push(warning("model", message, "Set PARLEY_LLM_BASE_URL."));
  }
  if (moderation.endpoint !== null) {
    const chatbot = { id: 0, name: "", description: "", workspaceName: "" };
    const call = Moderator.use(({ check }) =>
      check({ ...chatbot, settings: defaultSettings }, "ping"),
    ).pipe(
      Effect.provide(layerModerationEndpoint(moderation.endpoint)),
      Effect.mapError(({ reason }) => reason),
    );
    findings.push(yield* checkCall("moderation", moderation.endpoint, call));
  } else if (chatbots.some(({ settings }) => settings.moderation === "endpoint")) {
    const message = "Chatbots are set to be moderated by the endpoint, but no endpoint is set.";
    findings.push(failed("moderation", message, "Set PARLEY_MODERATION_BASE_URL."));
  }
  return findings;
});

/** With invalid settings nothing else is checked. */
const examine = Effect.gen(function* () {
  const read = yield* Effect.result(readSettings(process.env));
  const hint = "docs/settings.md explains every setting.";
  if (Result.isFailure(read)) return [failed("settings", read.failure.message, hint)];
  const { settings, warnings } = read.success;
  const about =
    warnings.length === 0
      ? [ok("settings", "All settings can be read.")]
      : warnings.map((message) => warning("settings", message, hint));
  const rest = yield* Effect.gen(function* () {
    const [database, chatbots] = yield* checkDatabase;
    return [...database, ...(yield* checkDocuments(chatbots)), ...(yield* checkModels(chatbots))];
  }).pipe(Effect.provideService(Settings, settings));
  return [...about, ...rest];
});

export class DoctorFailed extends Data.TaggedError("DoctorFailed")<{ readonly message: string }> {}

const textOf = ({ check, hint, message, status }: Finding): string => {
  const first = `${status.padEnd(8)} ${check.padEnd(10)}  ${printable(toLine(message))}`;
  return hint === null ? first : `${first}\n${" ".repeat(21)}${printable(toLine(hint))}`;
};

export const doctor = Command.make("doctor", { json: jsonFlag }, ({ json }) =>
  Effect.gen(function* () {
    const findings = yield* examine;
    yield* print(json, findings, () => findings.map(textOf).join("\n"));
    const failed = findings.filter(({ status }) => status === "failed").length;
    if (failed === 0) return;
    return yield* new DoctorFailed({
      message: failed === 1 ? "One check failed." : `${failed} checks failed.`,
    });
  }),
).pipe(
  Command.withDescription("Check settings, database, documents and models, with hints"),
  Command.withExamples([
    { command: "parley doctor", description: "Before the first start, or when something is wrong" },
    { command: "parley doctor --json", description: "For a program" },
  ]),
);
