/**
 * The values of the two POSTs (sections 4.2 and 4.5).
 */
import { ByteSize, Effect, Schema } from "effect";
import { HttpIncomingMessage, type HttpServerRequest } from "effect/http";
import type { GeneralMessage } from "../contract/Codes.ts";
import { AskBody, askHeaders, CreateChatBody } from "../contract/Values.ts";
import { makeDecoder, type ValidationErrors } from "./ValidationErrors.ts";

const maxBodyBytes = 64 * 1024;

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Reads and parses a request's body: at most 64 KiB of JSON in UTF-8. */
const readJson = (
  request: HttpServerRequest.HttpServerRequest,
): Effect.Effect<unknown, GeneralMessage> => {
  const { headers } = request;
  // First: a body of any type that is too large is not read at all.
  if (Number(headers["content-length"] ?? 0) > maxBodyBytes) return Effect.fail("BODY_TOO_LARGE");
  if (!/^application\/json[ \t]*(;|$)/i.test(headers["content-type"] ?? "")) {
    return Effect.fail("CONTENT_TYPE_NOT_JSON");
  }
  return request.arrayBuffer.pipe(
    Effect.mapError(({ reason }): GeneralMessage =>
      reason._tag === "RequestParseError" && reason.reason === "BodyTooLarge"
        ? "BODY_TOO_LARGE"
        : "BODY_INCOMPLETE",
    ),
    Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.fromInputUnsafe(maxBodyBytes)),
    Effect.flatMap((bytes) =>
      Effect.try({
        try: (): unknown => JSON.parse(utf8.decode(bytes)),
        catch: (): GeneralMessage => "BODY_NOT_JSON",
      }),
    ),
  );
};

export const decodeCreateChat = makeDecoder(CreateChatBody);
export const decodeAsk = makeDecoder(AskBody);
const decodeHeaders = makeDecoder(Schema.Struct(askHeaders));

/** Decodes a POST: its body's members and the headers that count as values. */
export const decodePost = <A extends object>(
  request: HttpServerRequest.HttpServerRequest,
  errors: ValidationErrors,
  decodeBody: (errors: ValidationErrors, values: object) => A | undefined,
  onDisconnect = "finish",
) =>
  Effect.flatMap(readJson(request), (body) => {
    const key = request.headers["idempotency-key"];
    const headers = decodeHeaders(errors, {
      ...(key !== undefined && { "Idempotency-Key": key }),
      "On-Disconnect": onDisconnect,
    });
    const isObject = typeof body === "object" && body !== null && !Array.isArray(body);
    if (!isObject) return Effect.fail(errors.add([], "NOT_OBJECT"));
    const values = decodeBody(errors, body);
    return headers === undefined || values === undefined
      ? Effect.fail(errors)
      : Effect.succeed({
          ...values,
          key: headers["Idempotency-Key"] ?? null,
          onHangUp: headers["On-Disconnect"] ?? "finish",
        });
  });
