/**
 * The two HTTP interfaces of Parley, to serve, to mount and to call.
 */
export { makeClient, type ClientOptions } from "./client/Client.ts";
export { type BasePaths } from "./contract/Api.ts";
export { generalCodes, validationCodes, type GeneralMessage } from "./contract/Codes.ts";
export { toJsonResponse, type ResponseBody } from "./contract/Wire.ts";
export { layerRedaction, makeApp, toRequestId, type AppOptions } from "./serve/App.ts";
export { toEndpointNotFound, toGeneralBody, toGeneralResponse } from "./serve/ErrorResponses.ts";
export {
  makeRequestLog,
  toMethod,
  type RequestFacts,
  type RequestLog,
} from "./serve/RequestLog.ts";
export { toPath } from "./serve/Routes.ts";
export { makeWebHandler, type WebHandler } from "./serve/WebHandler.ts";
