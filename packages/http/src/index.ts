/**
 * The two HTTP interfaces of Parley, to serve or to mount.
 */
export { makeApi, defaultBasePaths, type BasePaths } from "./Api.ts";
export { makeApp, requestIdOf, type AppOptions } from "./App.ts";
export { makeClient, type ClientOptions } from "./Client.ts";
export { generalCodes, validationCodes, type GeneralMessage } from "./Codes.ts";
export { endpointNotFound, generalBody, generalFailure, json } from "./Failures.ts";
export { layerRedaction } from "./Redaction.ts";
export { pathOf } from "./Routes.ts";
export { makeWebHandler, type WebHandler } from "./WebHandler.ts";
