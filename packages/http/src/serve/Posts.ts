/**
 * The JSON object in a request's body.
 */
import { ByteSize, Effect } from "effect";
import { HttpIncomingMessage, type HttpServerRequest } from "effect/http";
import type { GeneralMessage } from "../contract/Codes.ts";

/** Bytes that a body may have at most. */
export const maxBodyBytes = 64 * 1024;

/** The parsed body, or why there is none. */
export const readBody = (
  request: HttpServerRequest.HttpServerRequest,
): Effect.Effect<unknown, GeneralMessage> => {
  const { headers } = request;
  // The size is told before the type: a body of any type that is too large is not read at all.
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
    Effect.flatMap(parse),
  );
};

const utf8 = new TextDecoder("utf-8", { fatal: true });

const parse = (bytes: ArrayBuffer): Effect.Effect<unknown, "BODY_NOT_JSON"> => {
  try {
    return Effect.succeed(JSON.parse(utf8.decode(bytes)));
  } catch {
    return Effect.fail("BODY_NOT_JSON");
  }
};
