/**
 * The two HTTP interfaces of Parley, to serve and to mount, and what another listener needs to answer and log as they
 * do.
 */
export type { BasePaths } from "./contract/Endpoints.ts";
export type { GeneralMessage } from "./contract/Codes.ts";
export { toJsonResponse } from "./contract/Wire.ts";
export {
  layerNoRequestSpans,
  makeApp,
  toPath,
  toRequestId,
  type AppOptions,
  type Pages,
} from "./serve/App.ts";
export type { EventLoop } from "./serve/Admission.ts";
export { toEndpointNotFound, toGeneralBody } from "./serve/ErrorResponses.ts";
export {
  makeRequestTelemetry,
  toMethod,
  type RequestFacts,
  type RequestTelemetry,
} from "./serve/RequestTelemetry.ts";
export { toFieldName } from "./serve/ValidationErrors.ts";
export { longestLife, makeVisitorTokens, signVisitorToken } from "./serve/VisitorTokens.ts";
export type { WidgetPages } from "./serve/Widget.ts";
export { makeWebHandler, type WebHandler } from "./serve/WebHandler.ts";
