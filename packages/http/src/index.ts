/**
 * The two HTTP interfaces of Parley, to serve or to mount.
 */
export { makeApi, defaultBasePaths, type BasePaths } from "./contract/Api.ts";
export { makeApp, requestIdOf, type AppOptions } from "./serve/App.ts";
export { makeClient, type ClientOptions } from "./client/Client.ts";
export { generalCodes, validationCodes, type GeneralMessage } from "./contract/Codes.ts";
export { endpointNotFound, generalBody, generalFailure, json } from "./serve/ErrorResponses.ts";
export { layerRedaction } from "./serve/Redaction.ts";
export { pathOf } from "./serve/Routes.ts";
export { makeWebHandler, type WebHandler } from "./serve/WebHandler.ts";
