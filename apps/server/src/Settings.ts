/**
 * The settings of a server or a command, which are read once at startup from environment variables and the files that
 * they name. If a value is invalid, the process does not start, and a one-line error names the setting.
 */
import { describeSchemaError } from "@parley/core";
import { transportOf } from "@parley/store-pg";
import {
  Config,
  ConfigProvider,
  Context,
  Duration,
  Effect,
  Layer,
  Option,
  Redacted,
  Schema,
} from "effect";
import { parseNetworks } from "./http/ClientAddress.ts";
import {
  ignoredTelemetry,
  ignoredVariables,
  isServiceLink,
  readAuthorities,
  readVariable,
  SettingsInvalid,
  unusedProxy,
  type Variables,
} from "./Variables.ts";

const invalid = (message: string) => new SettingsInvalid({ message });

/** An OpenAI-compatible endpoint and one of its models. */
export interface ModelSettings {
  readonly baseUrl: string;
  readonly apiKey: Redacted.Redacted | undefined;
  readonly model: string;
  /** The host of the endpoint, which identifies the provider in usage and metrics. */
  readonly provider: string;
  /** The names of the settings that these values come from. */
  readonly names: { readonly baseUrl: string; readonly model: string; readonly apiKey: string };
}

/** The options of a moderation endpoint. */
export const moderationModel = ({ apiKey, baseUrl, model }: ModelSettings) => ({
  apiKey,
  baseUrl,
  model,
});

const integer = (name: string, minimum: number, maximum = Number.MAX_SAFE_INTEGER) =>
  Config.schema(
    Schema.FiniteFromString.check(Schema.isInt(), Schema.isBetween({ minimum, maximum })),
    name,
  );

const port = (name: string) => integer(name, 0, 65_535);

const text = (name: string, expected: string, isValid: (value: string) => boolean) =>
  Config.schema(Schema.String.check(Schema.makeFilter(isValid, { expected })), name);

const units = { ms: "millis", s: "seconds", m: "minutes", h: "hours" };

/** Parses a duration such as `0`, `5s`, `500ms` or, in Effect's notation, `5 seconds`. */
const toDuration = (text: string): Option.Option<Duration.Duration> => {
  const [, count, unit] = /^(\d+)\s*(ms|s|m|h)$/.exec(text === "0" ? "0s" : text) ?? [];
  const words = unit === undefined ? text : `${count} ${units[unit as keyof typeof units]}`;
  return Duration.fromInput(words as Duration.Input);
};

const duration = (name: string, fallback: Duration.Input, minimum: Duration.Input = "1 second") => {
  const expected = `a duration between "${minimum}" and "1 hour", such as 5 seconds or 2 minutes`;
  const range = { minimum: Duration.fromInputUnsafe(minimum), maximum: Duration.hours(1) };
  const isBetween = (value: string) => Option.exists(toDuration(value), Duration.between(range));
  return text(name, expected, isBetween).pipe(
    Config.map((value) => Option.getOrThrow(toDuration(value))),
    Config.withDefault(Duration.fromInputUnsafe(fallback)),
  );
};

const basePath = (name: string, fallback: `/${string}`) =>
  text(
    name,
    "a path such as /api, with no trailing slash, and not at or below /docs, /openapi.json, /playground, /widget or /widget.js",
    (path) =>
      /^(\/(?!\.\.?(\/|$))[A-Za-z0-9._~-]+)+$/.test(path) &&
      !/^\/(docs|openapi\.json|playground|widget|widget\.js)(\/|$)/.test(path),
  ).pipe(
    Config.map((path) => path as `/${string}`),
    Config.withDefault(fallback),
  );

const toOrigins = (list: string) => list.split(",").map((origin) => origin.trim());

const origins = text(
  "PARLEY_CORS_ORIGINS",
  "a comma-separated list of origins, such as https://app.example",
  (list) =>
    toOrigins(list).every((origin) => URL.canParse(origin) && new URL(origin).origin === origin),
).pipe(Config.map(toOrigins), Config.withDefault([]));

const trustedProxies = text(
  "PARLEY_TRUSTED_PROXIES",
  "a comma-separated list of addresses and networks, such as 10.0.0.0/8, fd00::/8",
  (list) => parseNetworks(list) !== null,
).pipe(Config.withDefault(""));

/** Reads a model and its endpoint; `null` if neither is set. */
const readModel = Effect.fnUntraced(function* (names: ModelSettings["names"]) {
  const { apiKey, baseUrl, model } = yield* Config.all({
    baseUrl: Config.URL(names.baseUrl).pipe(Config.withDefault(null)),
    model: Config.String(names.model).pipe(Config.withDefault(null)),
    apiKey: Config.Redacted(names.apiKey).pipe(Config.withDefault(undefined)),
  });
  if (baseUrl === null || model === null) {
    if (baseUrl === null && model === null && apiKey === undefined) return null;
    return yield* invalid(
      `${names.baseUrl} and ${names.model} must be set together; ${names.apiKey} needs both.`,
    );
  }
  if (!/^https?:$/.test(baseUrl.protocol) && !baseUrl.href.includes("@")) {
    return yield* invalid(
      `${names.baseUrl} must begin with http:// or https://, as in http://${baseUrl.href}`,
    );
  }
  if (!/^https?:$/.test(baseUrl.protocol) || baseUrl.username !== "" || baseUrl.password !== "") {
    return yield* invalid(
      `${names.baseUrl} must begin with http:// or https://, and must not contain a user name or password: set ${names.apiKey} instead.`,
    );
  }
  const settings: ModelSettings = {
    baseUrl: baseUrl.href,
    model,
    apiKey,
    provider: baseUrl.host,
    names,
  };
  return settings;
});

const boolean = (name: string, fallback: boolean) =>
  Config.Boolean(name).pipe(Config.withDefault(fallback));

const optional = (name: string) => Config.String(name).pipe(Config.withDefault(null));

const config = Config.all({
  host: Config.String("PARLEY_HOST").pipe(Config.withDefault("127.0.0.1")),
  port: port("PARLEY_PORT").pipe(Config.withDefault(3000)),
  basePaths: Config.all({
    general: basePath("PARLEY_BASE_PATH", "/api"),
    answers: basePath("PARLEY_ASK_PATH", "/ask"),
  }),
  /** The port of the answers interface; `null` if the interface shares `port`. */
  askPort: port("PARLEY_ASK_PORT").pipe(Config.withDefault(null)),
  /** The port for health and metrics; 0 if they are off. */
  managementPort: port("PARLEY_MANAGEMENT_PORT").pipe(Config.withDefault(3001)),
  /** Separate from `host`, because health and metrics need no key. */
  managementHost: Config.String("PARLEY_MANAGEMENT_HOST").pipe(Config.withDefault("127.0.0.1")),
  /** The log format; `null` for text on a terminal and JSON elsewhere. */
  logFormat: Config.Literals(["json", "text"], "PARLEY_LOG_FORMAT").pipe(Config.withDefault(null)),
  logRequests: boolean("PARLEY_LOG_REQUESTS", false),
  corsOrigins: origins,
  trustedProxies,
  /** Whether the playground, the guide and the API description are served. */
  pages: boolean("PARLEY_PAGES", true),
  onDisconnect: Config.Literals(["finish", "cancel"], "PARLEY_ON_DISCONNECT").pipe(
    Config.withDefault("finish"),
  ),
  /** How long the server keeps serving after a SIGTERM. */
  drainDelay: duration("PARLEY_DRAIN_DELAY", "5 seconds", "0 seconds"),
  /** The limits that replace some of the core's default `AskLimits`. */
  asks: Config.all({
    deadline: duration("PARLEY_ASK_DEADLINE", "30 seconds"),
    asks: integer("PARLEY_ASKS_AT_ONCE", 1).pipe(Config.withDefault(10_000)),
    /** The maximum length of a question, in code points. */
    questionLength: integer("PARLEY_QUESTION_LENGTH", 200, 20_000).pipe(Config.withDefault(200)),
  }),
  store: Config.Literals(["sqlite", "postgres", "memory"], "PARLEY_STORE").pipe(
    Config.withDefault(null),
  ),
  dataDir: Config.String("PARLEY_DATA_DIR").pipe(Config.withDefault("./.parley")),
  databaseUrl: Config.Redacted("DATABASE_URL").pipe(Config.withDefault(null)),
  connections: integer("PARLEY_DATABASE_CONNECTIONS", 5).pipe(Config.withDefault(12)),
  pooler: boolean("PARLEY_POOLER", false),
  schema: Config.String("PARLEY_SCHEMA").pipe(Config.withDefault("parley")),
  /** The name that the audit log records for the person who runs a command. */
  actor: text("PARLEY_ACTOR", "a name of at most 200 printable characters", (name) =>
    /^\P{C}{1,200}$/u.test(name),
  ).pipe(Config.withDefault(null)),
  /** The path of the provisioning file. */
  provision: optional("PARLEY_PROVISION"),
  /** The context window of the models, in tokens. */
  contextTokens: integer("PARLEY_LLM_CONTEXT_TOKENS", 1000).pipe(Config.withDefault(32_000)),
  moderation: Config.all({
    /** The moderation of chatbots whose own settings do not specify any. */
    fallback: Config.Literals(["off", "words", "endpoint"], "PARLEY_MODERATION").pipe(
      Config.withDefault("off"),
    ),
    /** Whether questions pass moderation if the endpoint fails. */
    failOpen: boolean("PARLEY_MODERATION_FAIL_OPEN", false),
  }),
  /**
   * The folder of documents; a chatbot's settings can name one of its subfolders. If it is `null`, answers quote this
   * project's documentation or, with a language model, use no documents.
   */
  knowledgeDir: optional("PARLEY_KNOWLEDGE_DIR"),
});

const read = Effect.gen(function* () {
  const values = yield* config;
  const { basePaths, databaseUrl } = values;
  const llm = yield* readModel({
    baseUrl: "PARLEY_LLM_BASE_URL",
    model: "PARLEY_LLM_MODEL",
    apiKey: "PARLEY_LLM_API_KEY",
  });
  const fallback = yield* readModel({
    baseUrl: "PARLEY_LLM_FALLBACK_BASE_URL",
    model: "PARLEY_LLM_FALLBACK_MODEL",
    apiKey: "PARLEY_LLM_FALLBACK_API_KEY",
  });
  const endpoint = yield* readModel({
    baseUrl: "PARLEY_MODERATION_BASE_URL",
    model: "PARLEY_MODERATION_MODEL",
    apiKey: "PARLEY_MODERATION_API_KEY",
  });
  const settings = {
    ...values,
    store: values.store ?? (databaseUrl === null ? ("sqlite" as const) : ("postgres" as const)),
    /** The language models, in the order in which they are tried; if empty, answers quote the documents. */
    llms: [llm, fallback].filter((model) => model !== null),
    moderation: { ...values.moderation, endpoint },
  };
  const { moderation, store } = settings;
  const transport = databaseUrl && transportOf(databaseUrl);
  const [general, answers] = [`${basePaths.general}/`, `${basePaths.answers}/`];
  const mistakes = [
    (general.startsWith(answers) || answers.startsWith(general)) &&
      `PARLEY_BASE_PATH "${basePaths.general}" and PARLEY_ASK_PATH "${basePaths.answers}" must not be equal or nested.`,
    store === "postgres" &&
      databaseUrl === null &&
      "PARLEY_STORE is postgres, but DATABASE_URL is not set. Example: postgres://user:password@host:5432/database.",
    typeof transport === "string" && `DATABASE_URL ${transport}.`,
    [values.port, values.askPort, values.managementPort].some(
      (port, at, all) => port && all.indexOf(port) < at,
    ) && "PARLEY_PORT, PARLEY_ASK_PORT and PARLEY_MANAGEMENT_PORT must be different ports.",
    llm === null &&
      fallback !== null &&
      "PARLEY_LLM_FALLBACK_BASE_URL is set, but PARLEY_LLM_BASE_URL is not.",
    moderation.fallback === "endpoint" &&
      moderation.endpoint === null &&
      "PARLEY_MODERATION is endpoint, but PARLEY_MODERATION_BASE_URL is not set.",
  ];
  const mistake = mistakes.find((message) => message !== false);
  if (mistake !== undefined) return yield* invalid(mistake);
  const file = typeof transport === "object" ? transport?.authorities : undefined;
  return { ...settings, authorities: file && (yield* readAuthorities(file)) };
});

export type SettingsShape = Effect.Success<typeof read> & {
  /** Warnings about variables that have no effect. */
  readonly warnings: ReadonlyArray<string>;
};

export const readSettings = (
  environment: Variables,
): Effect.Effect<SettingsShape, SettingsInvalid> => {
  const variables = Object.fromEntries(
    Object.entries(environment).filter(([name, value]) => !isServiceLink(name, value)),
  );
  const names = new Set<string>();
  const provider = ConfigProvider.make(([name = ""]) => {
    names.add(String(name));
    return readVariable(variables, String(name)).pipe(
      Effect.map((value) => (value === undefined ? value : ConfigProvider.makeValue(value))),
      Effect.mapError(({ message }) => new ConfigProvider.SourceError({ message })),
    );
  });
  return read.pipe(
    Effect.provideService(ConfigProvider.ConfigProvider, provider),
    Effect.catchTag("ConfigError", ({ cause }) =>
      invalid(cause._tag === "SourceError" ? cause.message : `${describeSchemaError(cause)}.`),
    ),
    Effect.map((settings) => {
      const models = [...settings.llms, settings.moderation.endpoint ?? []].flat();
      const warnings = [
        ...ignoredVariables(environment, names),
        ...ignoredTelemetry(environment),
        ...models.flatMap(({ baseUrl }) => unusedProxy(environment, baseUrl)),
        ...(settings.store !== "postgres" && settings.databaseUrl !== null
          ? [`DATABASE_URL is set, but ignored: PARLEY_STORE is ${settings.store}.`]
          : []),
      ];
      return { ...settings, warnings: [...new Set(warnings)] };
    }),
  );
};

export class Settings extends Context.Service<Settings, SettingsShape>()(
  "@parley/server/Settings",
) {
  /** Reads the settings from the environment of the process. */
  static readonly layer = Layer.effect(
    Settings,
    Effect.suspend(() => readSettings(process.env)),
  );
}
