/**
 * What the environment decides, read once at the start. A bad value stops the start with one line
 * that names it.
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
  Schema,
  Redacted,
} from "effect";

export class SettingsInvalid extends Data.TaggedError("SettingsInvalid")<{
  readonly message: string;
}> {}

type BasePath = `/${string}`;

export interface LlmSettings {
  readonly baseUrl: string;
  readonly apiKey: Redacted.Redacted | undefined;
  readonly model: string;
  /** Its name in usage and metrics: the host of its address. */
  readonly provider: string;
  /** What the settings are called that say so. */
  readonly names: EndpointNames;
}

interface EndpointNames {
  readonly baseUrl: string;
  readonly model: string;
  readonly apiKey: string;
}

export interface ModerationSettings {
  /** Who judges the questions of chatbots whose settings name nobody. */
  readonly usual: "off" | "words" | "endpoint";
  readonly endpoint: LlmSettings | null;
  /** Whether a question passes that the endpoint could not judge. */
  readonly failOpen: boolean;
}

export interface SettingsShape {
  readonly host: string;
  readonly port: number;
  readonly basePaths: { readonly general: BasePath; readonly answers: BasePath };
  /** A port of its own for the answers interface. */
  readonly askPort: number | null;
  /** Where health and metrics are; `null`: nowhere. */
  readonly managementPort: number | null;
  readonly corsOrigins: ReadonlyArray<string>;
  /** What a client's hang-up does to its ask. */
  readonly onDisconnect: "finish" | "cancel";
  readonly asks: {
    /** From the start of its turn to the last piece of its answer. */
    readonly deadline: Duration.Duration;
    /** How long one waits for its turn. */
    readonly patience: Duration.Duration;
    /** How many wait in one chat. */
    readonly waiting: number;
    readonly atOnce: number;
  };
  readonly store: "embedded" | "postgres" | "memory";
  readonly dataDir: string;
  readonly databaseUrl: Redacted.Redacted | null;
  /** Whether row-level security keeps the tenants apart, too. */
  readonly rowSecurity: boolean;
  /** Whether the server hears of what others do by LISTEN. */
  readonly listen: boolean;
  /** Whether its connections keep the plans of statements. */
  readonly prepare: boolean;
  /** How many connections it holds. */
  readonly connections: number;
  /** Where in the database the tables are. */
  readonly schema: string;
  /** A file of chatbots and keys to apply at the start. */
  readonly provision: string | null;
  /** Where answers come from, in the order in which they are tried; none: the documents alone. */
  readonly llms: ReadonlyArray<LlmSettings>;
  /** The models' window in tokens; `null`: the default. */
  readonly contextTokens: number | null;
  readonly moderation: ModerationSettings;
  /** `null`: this project's own documentation, or none with a language model. */
  readonly knowledgeDir: string | null;
  /** Where the folders of documents are that chatbots' settings name. */
  readonly knowledgeRoot: string | null;
}

/** A port; 0 for any free one, or for none, as the setting says. */
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

/** A time such as `30 seconds`, of a second to an hour. */
const time = Effect.fnUntraced(function* (name: string, fallback: Duration.Input) {
  const text = yield* Config.option(Config.String(name));
  if (Option.isNone(text)) return Duration.fromInputUnsafe(fallback);
  const found = Duration.fromInput(text.value as Duration.Input);
  if (
    Option.isNone(found) ||
    !Duration.between(found.value, { minimum: Duration.seconds(1), maximum: Duration.hours(1) })
  ) {
    return yield* new SettingsInvalid({
      message: `${name} must be a time from "1 second" to "1 hour", such as "45 seconds", not "${text.value}".`,
    });
  }
  return found.value;
});

/** An OpenAI-compatible endpoint and one of its models; `null` when it is not set. */
const modelAt = Effect.fnUntraced(function* (names: EndpointNames) {
  const baseUrl = yield* Config.option(Config.URL(names.baseUrl));
  const model = yield* Config.option(Config.NonEmptyString(names.model));
  const apiKey = yield* Config.option(Config.Redacted(names.apiKey));
  if (Option.isSome(baseUrl) !== Option.isSome(model)) {
    return yield* new SettingsInvalid({
      message: `${names.baseUrl} and ${names.model} must be set together.`,
    });
  }
  if (Option.isNone(baseUrl) || Option.isNone(model)) {
    if (Option.isNone(apiKey)) return null;
    return yield* new SettingsInvalid({
      message: `${names.apiKey} is set, but ${names.baseUrl} and ${names.model} are not.`,
    });
  }
  const { password, protocol, username } = baseUrl.value;
  if (!/^https?:$/.test(protocol)) {
    return yield* new SettingsInvalid({
      message: `${names.baseUrl} must begin with http:// or https://.`,
    });
  }
  if (username !== "" || password !== "") {
    return yield* new SettingsInvalid({
      message: `${names.baseUrl} must hold no user and no password: set ${names.apiKey} instead.`,
    });
  }
  return {
    baseUrl: baseUrl.value.href.replace(/\/$/, ""),
    model: model.value,
    apiKey: Option.getOrUndefined(apiKey),
    provider: baseUrl.value.host,
    names,
  };
});

const basePath = (name: string, fallback: BasePath) =>
  Config.String(name).pipe(
    Config.withDefault(fallback),
    Config.map((path) => ({ name, path })),
  );

const read = Effect.gen(function* () {
  const host = yield* Config.String("PARLEY_HOST").pipe(Config.withDefault("127.0.0.1"));
  const mainPort = yield* port("PARLEY_PORT").pipe(Config.withDefault(3000));
  const general = yield* basePath("PARLEY_BASE_PATH", "/api");
  const answers = yield* basePath("PARLEY_ASK_PATH", "/ask");
  const askPort = yield* Config.option(port("PARLEY_ASK_PORT"));
  const managementPort = yield* port("PARLEY_MANAGEMENT_PORT").pipe(Config.withDefault(3001));
  const corsOrigins = yield* Config.String("PARLEY_CORS_ORIGINS").pipe(Config.withDefault(""));
  const origins = corsOrigins
    .split(",")
    .map((origin) => origin.trim())
    .filter((origin) => origin !== "");
  const onDisconnect = yield* Config.Literals(["finish", "cancel"], "PARLEY_ON_DISCONNECT").pipe(
    Config.withDefault("finish"),
  );
  const asks = {
    deadline: yield* time("PARLEY_ASK_DEADLINE", "30 seconds"),
    patience: yield* time("PARLEY_ASK_PATIENCE", "60 seconds"),
    waiting: yield* wholeNumber("PARLEY_ASK_WAITING", 0).pipe(Config.withDefault(256)),
    atOnce: yield* wholeNumber("PARLEY_ASKS_AT_ONCE", 1).pipe(Config.withDefault(10_000)),
  };
  const dataDir = yield* Config.String("PARLEY_DATA_DIR").pipe(Config.withDefault("./.parley"));
  const databaseUrl = yield* Config.option(Config.Redacted("DATABASE_URL"));
  const rowSecurity = yield* Config.Boolean("PARLEY_ROW_SECURITY").pipe(Config.withDefault(false));
  const listen = yield* Config.Boolean("PARLEY_LISTEN").pipe(Config.withDefault(true));
  const prepare = yield* Config.Boolean("PARLEY_PREPARE").pipe(Config.withDefault(true));
  const connections = yield* wholeNumber("PARLEY_DATABASE_CONNECTIONS", 6).pipe(
    Config.withDefault(12),
  );
  const schema = yield* Config.NonEmptyString("PARLEY_SCHEMA").pipe(Config.withDefault("parley"));
  const store = yield* Config.Literals(["embedded", "postgres", "memory"], "PARLEY_STORE").pipe(
    Config.withDefault(Option.isSome(databaseUrl) ? "postgres" : "embedded"),
  );
  const provision = yield* Config.option(Config.String("PARLEY_PROVISION"));
  const llm = yield* modelAt({
    baseUrl: "PARLEY_LLM_BASE_URL",
    model: "PARLEY_LLM_MODEL",
    apiKey: "PARLEY_LLM_API_KEY",
  });
  const fallbacks = yield* Effect.forEach(
    Array.from({ length: 9 }, (_, n) => n + 1),
    (n) => {
      const nth = (name: string) => (n === 1 ? name : name.replace("FALLBACK", `FALLBACK_${n}`));
      return modelAt({
        baseUrl: nth("PARLEY_LLM_FALLBACK_BASE_URL"),
        model: nth("PARLEY_LLM_FALLBACK_MODEL"),
        apiKey: nth("PARLEY_LLM_FALLBACK_API_KEY"),
      });
    },
  );
  const contextTokens = yield* Config.option(wholeNumber("PARLEY_LLM_CONTEXT_TOKENS", 1000));
  const moderation = yield* Config.Literals(["off", "words", "endpoint"], "PARLEY_MODERATION").pipe(
    Config.withDefault("off"),
  );
  const judge = yield* modelAt({
    baseUrl: "PARLEY_MODERATION_BASE_URL",
    model: "PARLEY_MODERATION_MODEL",
    apiKey: "PARLEY_MODERATION_API_KEY",
  });
  const failOpen = yield* Config.Boolean("PARLEY_MODERATION_FAIL_OPEN").pipe(
    Config.withDefault(false),
  );
  const knowledgeDir = yield* Config.option(Config.String("PARLEY_KNOWLEDGE_DIR"));
  const knowledgeRoot = yield* Config.option(Config.String("PARLEY_KNOWLEDGE_ROOT"));

  for (const { name, path } of [general, answers]) {
    if (!/^(\/(?!\.\.?(\/|$))[A-Za-z0-9._~-]+)+$/.test(path)) {
      return yield* new SettingsInvalid({
        message: `${name} must be a path such as /api, without a slash at its end, not "${path}".`,
      });
    }
    if (path === "/docs" || path === "/openapi.json") {
      return yield* new SettingsInvalid({
        message: `${name} must not be ${path}: the documentation is there.`,
      });
    }
  }
  for (const origin of origins) {
    if (!URL.canParse(origin) || new URL(origin).origin !== origin) {
      return yield* new SettingsInvalid({
        message: `PARLEY_CORS_ORIGINS must list origins such as https://app.example, not "${origin}".`,
      });
    }
  }
  if (
    `${general.path}/`.startsWith(`${answers.path}/`) ||
    `${answers.path}/`.startsWith(`${general.path}/`)
  ) {
    return yield* new SettingsInvalid({
      message: `PARLEY_BASE_PATH "${general.path}" and PARLEY_ASK_PATH "${answers.path}" must not be equal or nested.`,
    });
  }
  if (store === "postgres" && Option.isNone(databaseUrl)) {
    return yield* new SettingsInvalid({
      message: "PARLEY_STORE is postgres, but DATABASE_URL is not set.",
    });
  }
  // Some clients know it, ours would pass over it, and connect without TLS.
  if (Option.isSome(databaseUrl) && /[?&]ssl=/i.test(Redacted.value(databaseUrl.value))) {
    return yield* new SettingsInvalid({
      message:
        "DATABASE_URL says ssl=, which is not known: write sslmode=require, or sslmode=disable.",
    });
  }
  if (rowSecurity && store !== "postgres") {
    return yield* new SettingsInvalid({
      message: `PARLEY_ROW_SECURITY is on, but PARLEY_STORE is ${store}: it needs a database of your own (DATABASE_URL).`,
    });
  }
  if (llm === null && fallbacks.some((fallback) => fallback !== null)) {
    return yield* new SettingsInvalid({
      message:
        "PARLEY_LLM_FALLBACK_BASE_URL or another of its kind is set, but PARLEY_LLM_BASE_URL is not.",
    });
  }
  if (moderation === "endpoint" && judge === null) {
    return yield* new SettingsInvalid({
      message: "PARLEY_MODERATION is endpoint, but PARLEY_MODERATION_BASE_URL is not set.",
    });
  }
  return {
    host,
    port: mainPort,
    basePaths: { general: general.path as BasePath, answers: answers.path as BasePath },
    askPort: Option.getOrNull(askPort),
    managementPort: managementPort === 0 ? null : managementPort,
    corsOrigins: origins,
    onDisconnect,
    asks,
    store,
    dataDir,
    databaseUrl: Option.getOrNull(databaseUrl),
    rowSecurity,
    listen,
    prepare,
    connections,
    schema,
    provision: Option.getOrNull(provision),
    llms: [llm, ...fallbacks].filter((one) => one !== null),
    contextTokens: Option.getOrNull(contextTokens),
    moderation: { usual: moderation, endpoint: judge, failOpen },
    knowledgeDir: Option.getOrNull(knowledgeDir),
    knowledgeRoot: Option.getOrNull(knowledgeRoot),
  } satisfies SettingsShape;
});

export type Variables = Readonly<Record<string, string | undefined>>;

/** What the variables decide, and a warning for each that looks like a setting and is none. */
export const settingsOf = (
  variables: Variables,
): Effect.Effect<
  { readonly settings: SettingsShape; readonly warnings: ReadonlyArray<string> },
  SettingsInvalid
> => {
  // A variable that is set to white space alone is not set.
  const set = Object.entries(variables).flatMap(([name, value]) => {
    const trimmed = value?.trim() ?? "";
    return trimmed === "" ? [] : [[name, trimmed] as const];
  });
  const known = new Set<string>();
  const provider = ConfigProvider.fromEnvRecord(Object.fromEntries(set)).pipe(
    ConfigProvider.mapInput((path) => {
      known.add(path.join("_"));
      return path;
    }),
  );
  return read.pipe(
    Effect.provideService(ConfigProvider.ConfigProvider, provider),
    Effect.catchTag("ConfigError", (error) =>
      Effect.fail(new SettingsInvalid({ message: lineOf(error.message) })),
    ),
    Effect.map((settings) => ({
      settings,
      warnings: set
        .filter(([name]) => name.startsWith("PARLEY_") && !known.has(name))
        .map(([name]) => unknownSetting(name, [...known])),
    })),
  );
};

const unknownSetting = (name: string, known: ReadonlyArray<string>): string => {
  const bare = (text: string) => text.replace(/^PARLEY_/, "");
  const distances = known.map((one) => [editDistance(bare(one), bare(name)), one] as const);
  const [distance, nearest] = distances.toSorted(([a], [b]) => a - b)[0]!;
  return `${name} is no setting.${distance <= 3 ? ` Is ${nearest} meant?` : ""}`;
};

/** How many letters must be changed, added or left out to make one text of the other. */
const editDistance = (a: string, b: string): number => {
  let row = Array.from({ length: b.length + 1 }, (_, n) => n);
  for (let i = 0; i < a.length; i++) {
    const next = [i + 1];
    for (let j = 0; j < b.length; j++) {
      next.push(Math.min(row[j]! + (a[i] === b[j] ? 0 : 1), row[j + 1]! + 1, next[j]! + 1));
    }
    row = next;
  }
  return row.at(-1)!;
};

export class Settings extends Context.Service<Settings, SettingsShape>()(
  "@parley/server/Settings",
) {
  static readonly layer = Layer.effect(
    Settings,
    Effect.suspend(() => Effect.map(settingsOf(process.env), ({ settings }) => settings)),
  );
}

/** Warns of what looks like a setting in the environment and is none. */
export const warnOfUnknown = Effect.suspend(() => settingsOf(process.env)).pipe(
  Effect.flatMap(({ warnings }) =>
    Effect.forEach(warnings, (warning) => Effect.logWarning(warning), { discard: true }),
  ),
);

/** A configuration error on one line that begins with the setting's name. */
const lineOf = (message: string): string => {
  const line = message.replace(/\s*\n\s*/g, " ");
  const parts = /^SchemaError\((.*?) *at \["([^"]+)"\]\)$/.exec(line);
  return parts === null ? line : `${parts[2]}: ${parts[1]}.`;
};
