/** This process's environment without settings, which must not reach the servers and commands that it starts. */
export const withoutSettings = (): NodeJS.ProcessEnv =>
  Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !/^(PARLEY_|OTEL_|DATABASE_URL$|NODE_OPTIONS$|VITEST|PG)/.test(name),
    ),
  );
