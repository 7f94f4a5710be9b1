/**
 * The settings of a server, read from the environment once, at the start. An invalid value stops the start with one
 * line that names the setting.
 */
import {
  Config,
  ConfigProvider,
  Context,
  Data,
  Duration,
  Effect,
  Layer,
  Option,
  Redacted,
  Schema,
} from "effect";

export class SettingsInvalid extends Data.TaggedError("SettingsInvalid")<{
  readonly message: string;
}> {}

const invalid = (message: string) => Effect.fail(new SettingsInvalid({ message }));

/** An OpenAI-compatible endpoint and one of its models. */
export interface ModelSettings {
  readonly baseUrl: string;
  readonly apiKey: Redacted.Redacted | undefined;
  readonly model: string;
  /** The host of the endpoint: its name in usage and metrics. */
  readonly provider: string;
  /** The settings that these values are from. */
  readonly names: ModelSettingNames;
}

interface ModelSettingNames {
  readonly baseUrl: string;
  readonly model: string;
  readonly apiKey: string;
}

const port = (name: string) =>
  Config.schema(
    Schema.FiniteFromString.check(Schema.isInt(), Schema.isBetween({ minimum: 0, maximum: 65535 })),
    name,
  );

const wholeNumber = (name: string, minimum: number) =>
  Config.schema(
    Schema.FiniteFromString.check(Schema.isInt(), Schema.isGreaterThanOrEqualTo(minimum)),
    name,
  );

/** A duration such as `30 seconds`, up to an hour. */
const duration = Effect.fnUntraced(function* (
  name: string,
  fallback: Duration.Input,
  minimum: Duration.Input = "1 second",
) {
  const text = yield* Config.String(name).pipe(Config.withDefault(null));
  const [least, most] = [Duration.fromInputUnsafe(minimum), Duration.hours(1)];
  const found = Duration.fromInput((text ?? fallback) as Duration.Input);
  if (Option.isSome(found) && Duration.between(found.value, { minimum: least, maximum: most })) {
    return found.value;
  }
  return yield* invalid(
    `${name} must be a time between "${minimum}" and "1 hour", such as "45 seconds", not "${text}".`,
  );
});

/** A model and its endpoint; `null` when they are not set. */
const modelOf = Effect.fnUntraced(function* (names: ModelSettingNames) {
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
  if (!/^https?:$/.test(baseUrl.protocol)) {
    return yield* invalid(`${names.baseUrl} must begin with http:// or https://.`);
  }
  if (baseUrl.username !== "" || baseUrl.password !== "") {
    return yield* invalid(
      `${names.baseUrl} must not contain a user or a password: set ${names.apiKey} instead.`,
    );
  }
  const settings: ModelSettings = {
    baseUrl: baseUrl.href.replace(/\/$/, ""),
    model,
    apiKey,
    provider: baseUrl.host,
    names,
  };
  return settings;
});

const basePath = (name: string, fallback: `/${string}`) =>
  Effect.gen(function* () {
    const path = yield* Config.String(name).pipe(Config.withDefault(fallback));
    if (!/^(\/(?!\.\.?(\/|$))[A-Za-z0-9._~-]+)+$/.test(path)) {
      return yield* invalid(
        `${name} must be a path such as /api, without a slash at its end, not "${path}".`,
      );
    }
    if (path === "/docs" || path === "/openapi.json" || path === "/playground") {
      return yield* invalid(`${name} must not be ${path}: a page of the server is there.`);
    }
    return path as `/${string}`;
  });

const origins = Effect.gen(function* () {
  const text = yield* Config.String("PARLEY_CORS_ORIGINS").pipe(Config.withDefault(""));
  const all = text
    .split(",")
    .map((origin) => origin.trim())
    .filter((origin) => origin !== "");
  const wrong = all.find((origin) => !URL.canParse(origin) || new URL(origin).origin !== origin);
  if (wrong === undefined) return all;
  return yield* invalid(
    `PARLEY_CORS_ORIGINS must list origins such as https://app.example, not "${wrong}".`,
  );
});

const read = Effect.gen(function* () {
  const llm = yield* modelOf({
    baseUrl: "PARLEY_LLM_BASE_URL",
    model: "PARLEY_LLM_MODEL",
    apiKey: "PARLEY_LLM_API_KEY",
  });
  const fallback = yield* modelOf({
    baseUrl: "PARLEY_LLM_FALLBACK_BASE_URL",
    model: "PARLEY_LLM_FALLBACK_MODEL",
    apiKey: "PARLEY_LLM_FALLBACK_API_KEY",
  });
  const settings = {
    host: yield* Config.String("PARLEY_HOST").pipe(Config.withDefault("127.0.0.1")),
    port: yield* port("PARLEY_PORT").pipe(Config.withDefault(3000)),
    basePaths: {
      general: yield* basePath("PARLEY_BASE_PATH", "/api"),
      answers: yield* basePath("PARLEY_ASK_PATH", "/ask"),
    },
    /** The port of the answers interface; `null`: it shares `port`. */
    askPort: yield* port("PARLEY_ASK_PORT").pipe(Config.withDefault(null)),
    /** The port of health and metrics; 0: there are none. */
    managementPort: yield* port("PARLEY_MANAGEMENT_PORT").pipe(Config.withDefault(3001)),
    /** The form of log lines; `null`: JSON, but text on a terminal. */
    logFormat: yield* Config.Literals(["json", "text"], "PARLEY_LOG_FORMAT").pipe(
      Config.withDefault(null),
    ),
    /** Whether each request leaves a log line. */
    logRequests: yield* Config.Boolean("PARLEY_LOG_REQUESTS").pipe(Config.withDefault(false)),
    corsOrigins: yield* origins,
    /** Whether `/docs` and `/openapi.json` are served. */
    docs: yield* Config.Boolean("PARLEY_DOCS").pipe(Config.withDefault(true)),
    /** Whether the playground is served at `/`. */
    playground: yield* Config.Boolean("PARLEY_PLAYGROUND").pipe(Config.withDefault(true)),
    onDisconnect: yield* Config.Literals(["finish", "cancel"], "PARLEY_ON_DISCONNECT").pipe(
      Config.withDefault("finish"),
    ),
    /** How long the server goes on serving after a SIGTERM. */
    drainDelay: yield* duration("PARLEY_DRAIN_DELAY", "5 seconds", "0 seconds"),
    /** Some of the core's `AskLimits`. */
    asks: {
      deadline: yield* duration("PARLEY_ASK_DEADLINE", "30 seconds"),
      queueTimeout: yield* duration("PARLEY_ASK_QUEUE_TIMEOUT", "60 seconds"),
      queueLimit: yield* wholeNumber("PARLEY_ASK_QUEUE_LIMIT", 0).pipe(Config.withDefault(256)),
      asks: yield* wholeNumber("PARLEY_ASKS_AT_ONCE", 1).pipe(Config.withDefault(10_000)),
    },
    dataDir: yield* Config.String("PARLEY_DATA_DIR").pipe(Config.withDefault("./.parley")),
    databaseUrl: yield* Config.Redacted("DATABASE_URL").pipe(Config.withDefault(null)),
    /** Connections to the database. */
    connections: yield* wholeNumber("PARLEY_DATABASE_CONNECTIONS", 6).pipe(Config.withDefault(12)),
    /** Whether row security keeps the tenants apart, too. */
    rowSecurity: yield* Config.Boolean("PARLEY_ROW_SECURITY").pipe(Config.withDefault(false)),
    /** Whether the server uses LISTEN. */
    listen: yield* Config.Boolean("PARLEY_LISTEN").pipe(Config.withDefault(true)),
    /** Whether connections prepare their statements. */
    prepare: yield* Config.Boolean("PARLEY_PREPARE").pipe(Config.withDefault(true)),
    schema: yield* Config.String("PARLEY_SCHEMA").pipe(Config.withDefault("parley")),
    /** The path of the provisioning file. */
    provision: yield* Config.String("PARLEY_PROVISION").pipe(Config.withDefault(null)),
    /** The language models, in the order in which they are tried; none: answers quote the documents. */
    llms: [llm, fallback].filter((model) => model !== null),
    /** The window of the models in tokens. */
    contextTokens: yield* wholeNumber("PARLEY_LLM_CONTEXT_TOKENS", 1000).pipe(
      Config.withDefault(32_000),
    ),
    moderation: {
      /** The moderator of chatbots whose own settings name none. */
      fallback: yield* Config.Literals(["off", "words", "endpoint"], "PARLEY_MODERATION").pipe(
        Config.withDefault("off"),
      ),
      endpoint: yield* modelOf({
        baseUrl: "PARLEY_MODERATION_BASE_URL",
        model: "PARLEY_MODERATION_MODEL",
        apiKey: "PARLEY_MODERATION_API_KEY",
      }),
      /** Whether a question passes when the endpoint fails. */
      failOpen: yield* Config.Boolean("PARLEY_MODERATION_FAIL_OPEN").pipe(
        Config.withDefault(false),
      ),
    },
    /** A folder of documents; `null`: this project's documentation, or none with a language model. */
    knowledgeDir: yield* Config.String("PARLEY_KNOWLEDGE_DIR").pipe(Config.withDefault(null)),
    /** The folder above those that chatbots' own settings name. */
    knowledgeRoot: yield* Config.String("PARLEY_KNOWLEDGE_ROOT").pipe(Config.withDefault(null)),
  };
  const { basePaths, databaseUrl, moderation, rowSecurity } = settings;
  const store = yield* Config.Literals(["embedded", "postgres", "memory"], "PARLEY_STORE").pipe(
    Config.withDefault(databaseUrl === null ? "embedded" : "postgres"),
  );
  const [general, answers] = [`${basePaths.general}/`, `${basePaths.answers}/`];
  const mistakes = [
    (general.startsWith(answers) || answers.startsWith(general)) &&
      `PARLEY_BASE_PATH "${basePaths.general}" and PARLEY_ASK_PATH "${basePaths.answers}" must not be equal or nested.`,
    store === "postgres" &&
      databaseUrl === null &&
      "PARLEY_STORE is postgres, but DATABASE_URL is not set.",
    // Other clients know the parameter. Ours would ignore it, and connect without TLS.
    databaseUrl !== null &&
      /[?&]ssl=/i.test(Redacted.value(databaseUrl)) &&
      "DATABASE_URL has an unknown parameter ssl: write sslmode=require, or sslmode=disable.",
    rowSecurity &&
      store !== "postgres" &&
      `PARLEY_ROW_SECURITY is on, but PARLEY_STORE is ${store}: it needs a database of your own (DATABASE_URL).`,
    llm === null &&
      fallback !== null &&
      "PARLEY_LLM_FALLBACK_BASE_URL is set, but PARLEY_LLM_BASE_URL is not.",
    moderation.fallback === "endpoint" &&
      moderation.endpoint === null &&
      "PARLEY_MODERATION is endpoint, but PARLEY_MODERATION_BASE_URL is not set.",
  ];
  const mistake = mistakes.find((one) => one !== false);
  return mistake === undefined ? { ...settings, store } : yield* invalid(mistake);
});

export type SettingsShape = Effect.Success<typeof read>;

/**
 * The settings in the variables of an environment, and a warning for each variable that begins with PARLEY_ and is not
 * a setting.
 */
export const readSettings = (
  variables: Readonly<Record<string, string | undefined>>,
): Effect.Effect<
  { readonly settings: SettingsShape; readonly warnings: ReadonlyArray<string> },
  SettingsInvalid
> => {
  // A variable of white space alone is not set.
  const set = Object.fromEntries(
    Object.entries(variables).flatMap(([name, value = ""]) =>
      value.trim() === "" ? [] : [[name, value.trim()] as const],
    ),
  );
  const known = new Set<string>();
  const provider = ConfigProvider.fromEnvRecord(set).pipe(
    ConfigProvider.mapInput((path) => {
      known.add(path.join("_"));
      return path;
    }),
  );
  return read.pipe(
    Effect.provideService(ConfigProvider.ConfigProvider, provider),
    Effect.catchTag("ConfigError", ({ message }) => invalid(settingFirst(message))),
    Effect.map((settings) => ({
      settings,
      warnings: Object.keys(set)
        .filter((name) => name.startsWith("PARLEY_") && !known.has(name))
        .map((name) => `${name} is not a setting; docs/settings.md lists them all.`),
    })),
  );
};

/** A configuration error on one line that begins with the name of the setting. */
const settingFirst = (message: string): string => {
  const line = message.replace(/\s*\n\s*/g, " ");
  const parts = /^SchemaError\((.*?) *at \["([^"]+)"\]\)$/.exec(line);
  return parts === null ? line : `${parts[2]}: ${parts[1]}.`;
};

export class Settings extends Context.Service<Settings, SettingsShape>()(
  "@parley/server/Settings",
) {
  /** The settings in the environment of the process. */
  static readonly layer = Layer.effect(
    Settings,
    Effect.suspend(() => Effect.map(readSettings(process.env), ({ settings }) => settings)),
  );
}
