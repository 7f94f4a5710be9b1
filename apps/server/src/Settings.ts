/**
 * What the environment decides, read once at the start. A bad value stops the start with one line
 * that names it.
 */
import { Config, Context, Data, Effect, Layer, Option, Schema, type Redacted } from "effect";

export class SettingsInvalid extends Data.TaggedError("SettingsInvalid")<{
  readonly message: string;
}> {}

type BasePath = `/${string}`;

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
  readonly store: "embedded" | "postgres" | "memory";
  readonly dataDir: string;
  readonly databaseUrl: Redacted.Redacted | null;
  /** Where in the database the tables are. */
  readonly schema: string;
  /** A file of chatbots and keys to apply at the start. */
  readonly provision: string | null;
  /** Where answers come from; `null`: the documents alone. */
  readonly llm: {
    readonly baseUrl: string;
    readonly apiKey: Redacted.Redacted | undefined;
    readonly model: string;
  } | null;
  /** `null`: this project's own documentation. */
  readonly knowledgeDir: string | null;
}

/** A setting that is set to white space alone is not set. */
const optional = <A>(config: Config.Config<A>) => Config.option(config);

/** A port; 0 for any free one, or for none, as the setting says. */
const port = (name: string) =>
  Config.schema(
    Schema.FiniteFromString.check(Schema.isInt(), Schema.isBetween({ minimum: 0, maximum: 65535 })),
    name,
  );

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
  const askPort = yield* optional(port("PARLEY_ASK_PORT"));
  const managementPort = yield* port("PARLEY_MANAGEMENT_PORT").pipe(Config.withDefault(3001));
  const corsOrigins = yield* Config.String("PARLEY_CORS_ORIGINS").pipe(Config.withDefault(""));
  const onDisconnect = yield* Config.Literals(["finish", "cancel"], "PARLEY_ON_DISCONNECT").pipe(
    Config.withDefault("finish"),
  );
  const dataDir = yield* Config.String("PARLEY_DATA_DIR").pipe(Config.withDefault("./.parley"));
  const databaseUrl = yield* optional(Config.Redacted("DATABASE_URL"));
  const schema = yield* Config.NonEmptyString("PARLEY_SCHEMA").pipe(Config.withDefault("parley"));
  const store = yield* Config.Literals(["embedded", "postgres", "memory"], "PARLEY_STORE").pipe(
    Config.withDefault(Option.isSome(databaseUrl) ? "postgres" : "embedded"),
  );
  const provision = yield* optional(Config.String("PARLEY_PROVISION"));
  const baseUrl = yield* optional(Config.String("PARLEY_LLM_BASE_URL"));
  const apiKey = yield* optional(Config.Redacted("PARLEY_LLM_API_KEY"));
  const model = yield* optional(Config.String("PARLEY_LLM_MODEL"));
  const knowledgeDir = yield* optional(Config.String("PARLEY_KNOWLEDGE_DIR"));

  for (const { name, path } of [general, answers]) {
    if (!/^(\/[A-Za-z0-9._~-]+)+$/.test(path)) {
      return yield* new SettingsInvalid({
        message: `${name} must be a path such as /api, without a slash at its end, not "${path}".`,
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
  if (Option.isSome(baseUrl) !== Option.isSome(model)) {
    return yield* new SettingsInvalid({
      message: "PARLEY_LLM_BASE_URL and PARLEY_LLM_MODEL must be set together.",
    });
  }
  return {
    host,
    port: mainPort,
    basePaths: { general: general.path as BasePath, answers: answers.path as BasePath },
    askPort: Option.getOrNull(askPort),
    managementPort: managementPort === 0 ? null : managementPort,
    corsOrigins: corsOrigins
      .split(",")
      .map((origin) => origin.trim())
      .filter((origin) => origin !== ""),
    onDisconnect,
    store,
    dataDir,
    databaseUrl: Option.getOrNull(databaseUrl),
    schema,
    provision: Option.getOrNull(provision),
    llm:
      Option.isSome(baseUrl) && Option.isSome(model)
        ? { baseUrl: baseUrl.value, model: model.value, apiKey: Option.getOrUndefined(apiKey) }
        : null,
    knowledgeDir: Option.getOrNull(knowledgeDir),
  } satisfies SettingsShape;
});

export class Settings extends Context.Service<Settings, SettingsShape>()(
  "@parley/server/Settings",
) {
  static readonly layer = Layer.effect(
    Settings,
    read.pipe(
      Effect.catchTag("ConfigError", (error) =>
        Effect.fail(new SettingsInvalid({ message: lineOf(error.message) })),
      ),
    ),
  );
}

/** A configuration error on one line that begins with the setting's name. */
const lineOf = (message: string): string => {
  const line = message.replace(/\s*\n\s*/g, " ");
  const parts = /^SchemaError\((.*?) *at \["([^"]+)"\]\)$/.exec(line);
  return parts === null ? line : `${parts[2]}: ${parts[1]}.`;
};
