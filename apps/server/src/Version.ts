/** The version of the server, that of all packages. */
export const version = "0.1.0";
