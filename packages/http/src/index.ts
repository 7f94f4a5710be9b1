/**
 * The two HTTP interfaces of Parley, to serve or to mount.
 */
export { makeApi, defaultBasePaths, type BasePaths } from "./Api.ts";
export { makeApp, type AppOptions } from "./App.ts";
export { generalCodes, validationCodes, type GeneralMessage } from "./Codes.ts";
export { generalBody } from "./Failures.ts";
