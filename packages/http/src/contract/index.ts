/**
 * `@parley/http/contract`: the declaration of both interfaces, for packages that describe them.
 */
export { generalCodes, validationCodes, type GeneralMessage } from "./Codes.ts";
export { endpoints, endpointsWith, type BasePaths, type Endpoint } from "./Endpoints.ts";
export * as Wire from "./Wire.ts";
