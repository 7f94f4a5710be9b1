/**
 * The three failure shapes (sections 7.2 to 7.4) and the responses that carry them.
 */
import { Schema } from "effect";
import { HttpServerResponse } from "effect/http";
import { HttpApiSchema } from "effect/http-api";
import {
  generalCodes,
  validationCodes,
  type GeneralMessage,
  type ValidationMessage,
} from "../contract/Codes.ts";

const general = (status: number, identifier: string) =>
  Schema.Struct({
    status: Schema.Literal(status),
    code: Schema.Int,
    message: Schema.String,
  })
    .annotate({ identifier })
    .pipe(HttpApiSchema.status(status));

export const BadRequest = general(400, "BadRequest");
export const Unauthenticated = general(401, "Unauthenticated");
export const Unauthorized = general(403, "Unauthorized");
export const NotFound = general(404, "NotFound");
export const SystemError = general(500, "SystemError");

export const ValidationException = Schema.Struct({
  status: Schema.Literal(422),
  errors: Schema.Array(
    Schema.Struct({
      code: Schema.Int,
      message: Schema.String,
      path: Schema.Array(Schema.String),
    }),
  ),
})
  .annotate({ identifier: "ValidationException" })
  .pipe(HttpApiSchema.status(422));

export const EndpointNotFound = Schema.Struct({
  status: Schema.Literal(404),
  code: Schema.Int,
  message: Schema.String,
  method: Schema.String,
  path: Schema.String,
})
  .annotate({ identifier: "EndpointNotFound" })
  .pipe(HttpApiSchema.status(404));

/** One value of a request that breaks a rule. */
export interface Problem {
  readonly message: ValidationMessage;
  /** Empty for the body as a whole. */
  readonly path: ReadonlyArray<string>;
}

const contentType = "application/json; charset=utf-8";

/** Any body of the spec, with the status that it names itself; what a key opens is no cache's to keep. */
export const json = <Body extends { readonly status: number }>(
  body: Body,
  headers?: Readonly<Record<string, string>>,
): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.text(JSON.stringify(body), {
    status: body.status,
    contentType,
    headers: { "cache-control": "no-store", ...headers },
  });

/** The body of a general exception. */
export const generalBody = (message: GeneralMessage) => {
  const { code, status } = generalCodes[message];
  return { status, code, message };
};

export const generalFailure = (message: GeneralMessage): HttpServerResponse.HttpServerResponse =>
  json(generalBody(message));

/** The body of a validation exception. */
export const validationBody = (problems: ReadonlyArray<Problem>) => ({
  status: 422,
  errors: problems.map(({ message, path }) => ({ code: validationCodes[message], message, path })),
});

/** `path` is the request's target as received, without its query. */
export const endpointNotFound = (
  method: string,
  path: string,
): HttpServerResponse.HttpServerResponse => json({ ...generalBody("INVALID_PATH"), method, path });
