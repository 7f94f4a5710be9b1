/**
 * What `parley doctor` looks at: settings, database, documents and models. It changes nothing.
 */
import { ChatbotRegistry, defaultSettings, Moderator, type Chatbot } from "@parley/core";
import { layerModerationEndpoint, openAiCompatible, readKnowledge, tryModel } from "@parley/llm";
import { inspectPostgres, layerPostgres } from "@parley/store-pg";
import { Effect, Path, Result } from "effect";
import { databaseOptions, isMade } from "../Database.ts";
import { Settings, settingsOf, type LlmSettings } from "../Settings.ts";
import { told } from "../Told.ts";

export interface Finding {
  readonly check: "settings" | "database" | "documents" | "model" | "moderation";
  readonly status: "ok" | "warning" | "failed";
  readonly message: string;
  /** What the operator can do about it. */
  readonly hint: string | null;
}

const found =
  (status: Finding["status"]) =>
  (check: Finding["check"], message: string, hint: string | null): Finding => ({
    check,
    status,
    message,
    hint,
  });
const ok = (check: Finding["check"], message: string) => found("ok")(check, message, null);
/** Something that works, but hardly as the operator meant it. */
const warning = found("warning");
const failed = found("failed");

const checkDatabase = Effect.gen(function* () {
  const { store } = yield* Settings;
  if (store === "memory") {
    const message = "PARLEY_STORE is memory: everything is forgotten when the server ends.";
    return [[warning("database", message, "Leave it unset, or set DATABASE_URL.")], []] as const;
  }
  if (!(yield* isMade)) {
    return [[ok("database", "There is none yet; the first start makes it.")], []] as const;
  }
  const options = yield* databaseOptions;
  const { current, encoding, refusal, version, writing } = yield* inspectPostgres(options);
  const findings = [ok("database", `PostgreSQL ${version} with ${encoding} answers.`)];
  const hint = "docs/operations.md explains what the roles of the database need.";
  if (writing.readOnly) {
    const message = "It takes no writes: it is a standby, or transactions only read by default.";
    findings.push(warning("database", message, "Let DATABASE_URL lead to the primary."));
  }
  if (refusal !== null) findings.push(failed("database", refusal, hint));
  else if (!current) {
    const message = "The schema is not up to date; a start brings it there.";
    findings.push(warning("database", message, '"parley migrate --dry-run" prints the SQL.'));
  } else if (writing.closed !== null) {
    const message = `The server's role may not write to "${writing.closed}" as a server does.`;
    findings.push(failed("database", message, hint));
  }
  if (refusal !== null || !current) return [findings, []] as const;
  const all = yield* ChatbotRegistry.use(({ list }) => list).pipe(
    Effect.provide(layerPostgres(options)),
  );
  return [findings, all.map(({ chatbot }) => chatbot)] as const;
}).pipe(
  Effect.scoped,
  Effect.catch((error) => {
    const { message } = told(error);
    return Effect.succeed([[failed("database", message, databaseHint(message))], []] as const);
  }),
);

const databaseHint = (message: string): string => {
  if (/ECONNREFUSED/.test(message)) return "Start PostgreSQL, or correct DATABASE_URL.";
  if (/ENOTFOUND|EAI_AGAIN/.test(message)) return "Correct the host in DATABASE_URL.";
  if (/password|authentication|no pg_hba/i.test(message)) {
    return "Correct user and password in DATABASE_URL.";
  }
  if (/database .* does not exist/.test(message)) {
    return "Make that database, or correct its name in DATABASE_URL.";
  }
  if (/Invalid URL/.test(message)) {
    return "DATABASE_URL is written postgres://user:password@host:5432/database.";
  }
  return "docs/operations.md explains what a database needs.";
};

/** The usual documents, and the folder of each chatbot that names one. */
const checkDocuments = Effect.fnUntraced(function* (chatbots: ReadonlyArray<Chatbot>) {
  const { knowledgeDir, knowledgeRoot } = yield* Settings;
  const path = yield* Path.Path;
  const named = new Set(chatbots.flatMap(({ settings }) => settings.knowledge ?? []));
  if (knowledgeRoot === null && named.size > 0) {
    const message = `Chatbots have the documents "${[...named].join('", "')}", but PARLEY_KNOWLEDGE_ROOT is not set.`;
    const hint = 'Set it, or run "parley chatbot set --unset knowledge" for them.';
    return [failed("documents", message, hint)];
  }
  const folders = [...named].map((name) => path.join(knowledgeRoot!, name));
  if (knowledgeDir !== null) folders.unshift(knowledgeDir);
  return yield* Effect.forEach(folders, (folder) =>
    readKnowledge(folder).pipe(
      Effect.map(({ documents }) =>
        documents === 0
          ? warning("documents", `${folder} holds none.`, "Documents end with .md or .txt.")
          : ok("documents", `${folder} holds ${documents}.`),
      ),
      Effect.catch((error) => {
        const hint = "Correct the setting, or let this user read there.";
        return Effect.succeed(failed("documents", told(error).message, hint));
      }),
    ),
  );
});

/** The server's models, those that chatbots name, and the judge, by the shortest calls there are. */
const checkModels = Effect.fnUntraced(function* (chatbots: ReadonlyArray<Chatbot>) {
  const { llms, moderation } = yield* Settings;
  const [first] = llms;
  const named = new Set(chatbots.flatMap(({ settings }) => settings.model ?? []));
  if (first !== undefined) named.delete(first.model);
  const asked = [...llms, ...[...named].flatMap((model) => (first ? [{ ...first, model }] : []))];
  const models = yield* Effect.forEach(asked, checkModel, { concurrency: 4 });
  if (first === undefined) {
    models.push(
      named.size === 0
        ? ok("model", "None is set: answers are quoted from documents.")
        : warning(
            "model",
            `Chatbots name the models "${[...named].join('", "')}", but no endpoint is set.`,
            "Set PARLEY_LLM_BASE_URL.",
          ),
    );
  }
  if (moderation.endpoint !== null) models.push(yield* checkJudge(moderation.endpoint));
  else if (chatbots.some(({ settings }) => settings.moderation === "endpoint")) {
    const message = "Chatbots have their questions judged by an endpoint, but none is set.";
    models.push(failed("moderation", message, "Set PARLEY_MODERATION_BASE_URL."));
  }
  return models;
});

const checkModel = (settings: LlmSettings) =>
  Effect.flatMap(openAiCompatible(settings), tryModel).pipe(
    Effect.as(ok("model", `${settings.model} at ${settings.provider} answers.`)),
    Effect.catch(({ detail }) => Effect.succeed(noAnswer("model", settings, detail))),
  );

const nobody = { id: 0, name: "", description: "", workspaceName: "", settings: defaultSettings };

const checkJudge = (settings: LlmSettings) =>
  Moderator.use((moderator) => moderator.check(nobody, "ping")).pipe(
    Effect.provide(layerModerationEndpoint(settings)),
    Effect.as(ok("moderation", `${settings.model} at ${settings.provider} answers.`)),
    Effect.catch(({ reason }) => Effect.succeed(noAnswer("moderation", settings, reason))),
  );

const noAnswer = (check: Finding["check"], { model, names, provider }: LlmSettings, why: string) =>
  (/HTTP 429/.test(why) ? warning : failed)(
    check,
    `${model} at ${provider}: ${why}.`,
    /HTTP 40[13]/.test(why)
      ? `Set ${names.apiKey} to a key that the endpoint accepts.`
      : /HTTP 429/.test(why)
        ? `The endpoint limits its calls: look after the account of ${names.apiKey}.`
        : /HTTP 4/.test(why)
          ? `Correct ${names.baseUrl}, which often ends with /v1, or ${names.model}.`
          : `See that the endpoint of ${names.baseUrl} works and can be reached from here.`,
  );

const checkAll = Effect.gen(function* () {
  const [database, chatbots] = yield* checkDatabase;
  const rest = yield* Effect.all([checkDocuments(chatbots), checkModels(chatbots)], {
    concurrency: 2,
  });
  return [...database, ...rest.flat()];
});

/** With settings that cannot be read nothing else is looked at. */
export const examine = Effect.gen(function* () {
  const read = yield* Effect.result(settingsOf(process.env));
  const hint = "docs/settings.md explains every setting.";
  if (Result.isFailure(read)) return [failed("settings", read.failure.message, hint)];
  const { settings, warnings } = read.success;
  const about =
    warnings.length === 0
      ? [ok("settings", "All settings can be read.")]
      : warnings.map((message) => warning("settings", message, hint));
  return [...about, ...(yield* Effect.provideService(checkAll, Settings, settings))];
});
