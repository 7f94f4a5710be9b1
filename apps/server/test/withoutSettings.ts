/** This process's environment: what whoever runs it has set must not reach a server or command that it starts. */
export const withoutSettings = (): NodeJS.ProcessEnv =>
  Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !/^(PARLEY_|DATABASE_URL$|NODE_OPTIONS$|VITEST|PG)/.test(name),
    ),
  );
