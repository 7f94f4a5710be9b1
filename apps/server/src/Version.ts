import manifest from "../package.json" with { type: "json" };

/** The version of the server, which all packages share. */
export const { version } = manifest;
