/**
 * The settings of a server or a command, which are read once at startup from environment variables and the files that
 * they name. If a value is invalid, the process does not start, and a one-line error names the setting. The default and
 * the meaning of each setting stand here alone.
 */
import { describeSchemaError } from "@parley/core";
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
import { loadPostgres } from "./layers/Postgres.ts";
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

/**
 * Each setting's default, as it would be written in the environment (`null`: none), and its meaning; and, if the default
 * depends on other settings, what it is. The table in docs/settings.md is written from these rows.
 */
export const settingRows = {
  PARLEY_HOST: ["127.0.0.1", "address that the interfaces listen on"],
  PARLEY_PORT: [
    "3000",
    "port for both interfaces, unless `PARLEY_ASK_PORT` is set; 0: any free port",
  ],
  PARLEY_BASE_PATH: ["/api", "path of the general interface"],
  PARLEY_ASK_PATH: ["/ask", "path of the answers interface"],
  PARLEY_ASK_PORT: [null, "a separate port for the answers interface"],
  PARLEY_MANAGEMENT_PORT: ["3001", "port, or host and port, for health and metrics; 0: none"],
  PARLEY_DRAIN_DELAY: ["5 seconds", "how long the server keeps serving after a SIGTERM"],
  PARLEY_LOG_REQUESTS: ["false", "whether the server logs each request"],
  PARLEY_CORS_ORIGINS: [null, "origins whose pages may call the interfaces"],
  PARLEY_ACTOR: [null, "the person running commands, for the audit log"],
  PARLEY_TRUSTED_PROXIES: [null, "networks of proxies whose `X-Forwarded-For` is trusted"],
  PARLEY_PAGES: ["true", "whether the server has the playground, the guide and the API reference"],
  PARLEY_ON_DISCONNECT: ["finish", "`finish` or `cancel` an answer whose client disconnects"],
  PARLEY_ASK_DEADLINE: ["30 seconds", "time limit for an answer, from the start of its turn"],
  PARLEY_ASKS_AT_ONCE: [
    "10000",
    "how many asks one server may have in progress, including those waiting",
  ],
  PARLEY_QUESTION_LENGTH: ["200", "how many characters a question may have, up to 20000"],
  PARLEY_STORE: [
    null,
    "`sqlite`, `postgres` or `memory`",
    "`postgres` with `DATABASE_URL`, else `sqlite`",
  ],
  PARLEY_DATA_DIR: ["./.parley", "directory of the SQLite file"],
  DATABASE_URL: [null, "address of your own PostgreSQL, 15 or later"],
  PARLEY_DATABASE_CONNECTIONS: ["12", "connections to the database, 5 or more"],
  PARLEY_SCHEMA: ["parley", "schema for the tables"],
  PARLEY_PROVISION: [null, "a JSON file that defines chatbots and API keys"],
  PARLEY_LLM_BASE_URL: [
    null,
    "address of an OpenAI-compatible endpoint; not set: answers quote documents",
  ],
  PARLEY_LLM_MODEL: [null, "name of the language model"],
  PARLEY_LLM_API_KEY: [null, "API key for the language model's endpoint"],
  PARLEY_LLM_FALLBACK_BASE_URL: [
    null,
    "address of a second model's endpoint, used when the first fails",
  ],
  PARLEY_LLM_FALLBACK_MODEL: [null, "name of the second model"],
  PARLEY_LLM_FALLBACK_API_KEY: [null, "API key for the second model's endpoint"],
  PARLEY_LLM_CONTEXT_TOKENS: [
    "32000",
    "the models' context window in tokens, including the answer",
  ],
  PARLEY_MODERATION: ["off", "moderation of questions: `off` or `endpoint`"],
  PARLEY_MODERATION_BASE_URL: [null, "address of an OpenAI-compatible moderation endpoint"],
  PARLEY_MODERATION_MODEL: [null, "name of the moderation model"],
  PARLEY_MODERATION_API_KEY: [null, "API key for the moderation endpoint"],
  PARLEY_MODERATION_FAIL_OPEN: [
    "false",
    "whether questions pass unflagged if the moderation endpoint fails",
  ],
  PARLEY_KNOWLEDGE_DIR: [
    null,
    "folder of documents to answer from; chatbots can name its subfolders",
    "this project's documents; with a model, none",
  ],
} as const satisfies Record<string, readonly [string | null, string, string?]>;

type Name = keyof typeof settingRows;
type Kind<A> = (name: string) => Config.Config<A>;

/** Reads a setting, which is `null` if it is not set and has no default. */
const setting = <N extends Name, A>(name: N, kind: Kind<A>) =>
  Config.withDefault(kind(name), null) as Config.Config<
    (typeof settingRows)[N][0] extends null ? A | null : A
  >;

const integer =
  (minimum: number, maximum = Number.MAX_SAFE_INTEGER): Kind<number> =>
  (name) =>
    Config.schema(
      Schema.FiniteFromString.check(Schema.isInt(), Schema.isBetween({ minimum, maximum })),
      name,
    );

const port = integer(0, 65_535);

const literals =
  <const Values extends ReadonlyArray<string>>(...values: Values): Kind<Values[number]> =>
  (name) =>
    Config.Literals(values, name);

/** A text that `parse` does not turn into `null`. */
const text =
  <A>(expected: string, parse: (value: string) => A | null): Kind<A> =>
  (name) =>
    Config.map(
      Config.schema(
        Schema.String.check(Schema.makeFilter((value) => parse(value) !== null, { expected })),
        name,
      ),
      (value) => parse(value)!,
    );

const units = { ms: "millis", s: "seconds", m: "minutes", h: "hours" };

/** Parses a duration such as `0`, `5s`, `500ms` or, in Effect's notation, `5 seconds`. */
const toDuration = (text: string): Option.Option<Duration.Duration> => {
  const [, count, unit] = /^(\d+)\s*(ms|s|m|h)$/.exec(text === "0" ? "0s" : text) ?? [];
  const words = unit === undefined ? text : `${count} ${units[unit as keyof typeof units]}`;
  return Duration.fromInput(words as Duration.Input);
};

const duration = (minimum: Duration.Input) => {
  const expected = `a duration between "${minimum}" and "1 hour", such as 5 seconds or 2 minutes`;
  const range = { minimum: Duration.fromInputUnsafe(minimum), maximum: Duration.hours(1) };
  return text(expected, (value) =>
    Option.getOrNull(Option.filter(toDuration(value), Duration.between(range))),
  );
};

const basePath = text(
  "a path such as /api, with no trailing slash, and not at or below /docs, /openapi.json, /playground, /widget or /widget.js",
  (path) =>
    /^(\/(?!\.\.?(\/|$))[A-Za-z0-9._~-]+)+$/.test(path) &&
    !/^\/(docs|openapi\.json|playground|widget|widget\.js)(\/|$)/.test(path)
      ? (path as `/${string}`)
      : null,
);

/** A port on 127.0.0.1, or a host and a port, of which an IPv6 address is in brackets. */
const address = text("a port such as 3001, or a host and a port such as 0.0.0.0:3001", (value) => {
  const [, ipv6, host = ipv6 ?? "127.0.0.1", port] =
    /^(?:(?:\[([\da-f:.]+)\]|([^\s:[\]]+)):)?(\d{1,5})$/i.exec(value) ?? [];
  return port === undefined || Number(port) > 65_535 ? null : { host, port: Number(port) };
});

const origins = text("a comma-separated list of origins, such as https://app.example", (list) => {
  const all = list.split(",").map((origin) => origin.trim());
  return all.every((origin) => URL.canParse(origin) && new URL(origin).origin === origin)
    ? all
    : null;
});

const networks = text(
  "a comma-separated list of addresses and networks, such as 10.0.0.0/8, fd00::/8",
  (list) => (parseNetworks(list) === null ? null : list),
);

const person = text("a name of at most 200 printable characters", (name) =>
  /^\P{C}{1,200}$/u.test(name) ? name : null,
);

/** Reads the three settings of a model at an endpoint, which `toModel` checks. */
const model = <const Prefix extends "PARLEY_LLM" | "PARLEY_LLM_FALLBACK" | "PARLEY_MODERATION">(
  prefix: Prefix,
) =>
  Config.all({
    prefix: Config.succeed(prefix),
    baseUrl: setting(`${prefix}_BASE_URL`, Config.URL),
    model: setting(`${prefix}_MODEL`, Config.String),
    apiKey: setting(`${prefix}_API_KEY`, Config.Redacted),
  });

/** Returns a model and its endpoint; `null` if neither is set. */
const toModel = Effect.fnUntraced(function* ({
  apiKey,
  baseUrl,
  model: name,
  prefix,
}: Config.Success<ReturnType<typeof model>>) {
  if (baseUrl === null || name === null) {
    if (baseUrl === null && name === null && apiKey === null) return null;
    return yield* invalid(
      `${prefix}_BASE_URL and ${prefix}_MODEL must be set together; ${prefix}_API_KEY needs both.`,
    );
  }
  const isHttp = /^https?:$/.test(baseUrl.protocol);
  if (!isHttp || baseUrl.username !== "" || baseUrl.password !== "") {
    const mend =
      isHttp || baseUrl.href.includes("@")
        ? `and must not contain a user name or password: set ${prefix}_API_KEY instead.`
        : `as in http://${baseUrl.href}`;
    return yield* invalid(`${prefix}_BASE_URL must begin with http:// or https://, ${mend}`);
  }
  return {
    /** What the settings of this model begin with. */
    prefix,
    options: { baseUrl: baseUrl.href, model: name, apiKey: apiKey ?? undefined },
    /** The host of the endpoint, which identifies the provider in usage and metrics. */
    provider: baseUrl.host,
  };
});

/** An OpenAI-compatible endpoint and one of its models. */
export type ModelSettings = NonNullable<Effect.Success<ReturnType<typeof toModel>>>;

const config = Config.all({
  host: setting("PARLEY_HOST", Config.String),
  port: setting("PARLEY_PORT", port),
  basePaths: Config.all({
    general: setting("PARLEY_BASE_PATH", basePath),
    answers: setting("PARLEY_ASK_PATH", basePath),
  }),
  /** The port of the answers interface; `null` if the interface shares `port`. */
  askPort: setting("PARLEY_ASK_PORT", port),
  management: setting("PARLEY_MANAGEMENT_PORT", address),
  logRequests: setting("PARLEY_LOG_REQUESTS", Config.Boolean),
  corsOrigins: Config.map(setting("PARLEY_CORS_ORIGINS", origins), (list) => list ?? []),
  trustedProxies: Config.map(setting("PARLEY_TRUSTED_PROXIES", networks), (list) => list ?? ""),
  pages: setting("PARLEY_PAGES", Config.Boolean),
  onDisconnect: setting("PARLEY_ON_DISCONNECT", literals("finish", "cancel")),
  drainDelay: setting("PARLEY_DRAIN_DELAY", duration("0 seconds")),
  /** The limits that replace some of the core's default `AskLimits`. */
  asks: Config.all({
    deadline: setting("PARLEY_ASK_DEADLINE", duration("1 second")),
    asks: setting("PARLEY_ASKS_AT_ONCE", integer(1)),
    questionLength: setting("PARLEY_QUESTION_LENGTH", integer(200, 20_000)),
  }),
  store: setting("PARLEY_STORE", literals("sqlite", "postgres", "memory")),
  dataDir: setting("PARLEY_DATA_DIR", Config.String),
  databaseUrl: setting("DATABASE_URL", Config.Redacted),
  connections: setting("PARLEY_DATABASE_CONNECTIONS", integer(5)),
  schema: setting("PARLEY_SCHEMA", Config.String),
  actor: setting("PARLEY_ACTOR", person),
  provision: setting("PARLEY_PROVISION", Config.String),
  llm: model("PARLEY_LLM"),
  fallback: model("PARLEY_LLM_FALLBACK"),
  contextTokens: setting("PARLEY_LLM_CONTEXT_TOKENS", integer(1000)),
  moderation: Config.all({
    /** The moderation of chatbots whose own settings do not specify any. */
    fallback: setting("PARLEY_MODERATION", literals("off", "endpoint")),
    endpoint: model("PARLEY_MODERATION"),
    /** Whether questions pass moderation if the endpoint fails. */
    failOpen: setting("PARLEY_MODERATION_FAIL_OPEN", Config.Boolean),
  }),
  /** If it is `null`, answers quote this project's documentation or, with a language model, use no documents. */
  knowledgeDir: setting("PARLEY_KNOWLEDGE_DIR", Config.String),
});

/** The passwords in our documents and samples. */
const placeholders = new Set(["choose-one", "password", "secret"]);
const passwordOf = (url: Redacted.Redacted) => {
  const { password, searchParams } = new URL(Redacted.value(url));
  return searchParams.get("password") ?? decodeURIComponent(password);
};

const read = Effect.gen(function* () {
  const values = yield* config;
  const { basePaths, databaseUrl, management } = values;
  const [llm, fallback] = [yield* toModel(values.llm), yield* toModel(values.fallback)];
  const endpoint = yield* toModel(values.moderation.endpoint);
  const settings = {
    ...values,
    store: values.store ?? (databaseUrl === null ? ("sqlite" as const) : ("postgres" as const)),
    /** The address for health and metrics; `null` if they are off. */
    management: management.port === 0 ? null : management,
    /** The language models, in the order in which they are tried; if empty, answers quote the documents. */
    llms: [llm, fallback].filter((model) => model !== null),
    moderation: { ...values.moderation, endpoint },
  };
  const { moderation, store } = settings;
  const transport = databaseUrl && (yield* loadPostgres).transportOf(databaseUrl);
  const [general, answers] = [`${basePaths.general}/`, `${basePaths.answers}/`];
  const mistakes = [
    (general.startsWith(answers) || answers.startsWith(general)) &&
      `PARLEY_BASE_PATH "${basePaths.general}" and PARLEY_ASK_PATH "${basePaths.answers}" must not be equal or nested.`,
    store === "postgres" &&
      databaseUrl === null &&
      "PARLEY_STORE is postgres, but DATABASE_URL is not set. Example: postgres://user:password@host:5432/database.",
    typeof transport === "string" && `DATABASE_URL ${transport}.`,
    store === "postgres" &&
      typeof transport === "object" &&
      transport !== null &&
      placeholders.has(passwordOf(transport.url)) &&
      "DATABASE_URL has a placeholder of the samples as its password, which anyone can read there: choose a password, and set it with alter role.",
    [values.port, values.askPort, management.port].some(
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
  const defaults = new Map(
    Object.entries(settingRows).map(([name, [value]]) => [name, value ?? undefined]),
  );
  const provider = ConfigProvider.make(([name = ""]) =>
    readVariable(variables, String(name)).pipe(
      Effect.map((value = defaults.get(String(name))) =>
        value === undefined ? value : ConfigProvider.makeValue(value),
      ),
      Effect.mapError(({ message }) => new ConfigProvider.SourceError({ message })),
    ),
  );
  return read.pipe(
    Effect.provideService(ConfigProvider.ConfigProvider, provider),
    Effect.catchTag("ConfigError", ({ cause }) =>
      invalid(cause._tag === "SourceError" ? cause.message : `${describeSchemaError(cause)}.`),
    ),
    Effect.map((settings) => {
      const models = [...settings.llms, settings.moderation.endpoint ?? []].flat();
      const warnings = [
        ...ignoredVariables(environment, defaults),
        ...ignoredTelemetry(environment),
        ...models.flatMap(({ options }) => unusedProxy(environment, options.baseUrl)),
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
