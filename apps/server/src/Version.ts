import manifest from "../package.json" with { type: "json" };

/** The version of the server, that of all packages. */
export const { version } = manifest;
