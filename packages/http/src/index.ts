/**
 * Parley's two HTTP interfaces, to serve or to mount in an application, and what another listener needs to respond and
 * log in the same way.
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
  type RequestTurns,
} from "./serve/App.ts";
export { FairQueue } from "./serve/FairQueue.ts";
export { toEndpointNotFound, toGeneralBody } from "./serve/ErrorResponses.ts";
export {
  makeRequestTelemetry,
  toMethod,
  type RequestFacts,
  type RequestTelemetry,
} from "./serve/RequestTelemetry.ts";
export { toFieldName } from "./serve/ValidationErrors.ts";
export { longestLife, makeVisitorTokens, signVisitorToken } from "./serve/VisitorTokens.ts";
export type { WidgetPages } from "./serve/WidgetRoutes.ts";
export { makeWebHandler, type WebHandler, type WebHandlerOptions } from "./serve/WebHandler.ts";
