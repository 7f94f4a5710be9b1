/**
 * This process's environment without settings, which must not reach the servers and commands that it starts. Their logs
 * are text, as on a terminal.
 */
export const withoutSettings = (): NodeJS.ProcessEnv => ({
  ...Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !/^(PARLEY_|OTEL_|DATABASE_URL$|NODE_OPTIONS$|VITEST|PG)/.test(name),
    ),
  ),
  PARLEY_LOG_FORMAT: "text",
});
