/**
 * The values of requests, decoded: bodies, the headers that count as values, and the queries of lists.
 */
import type { OrderBy } from "@parley/core";
import { ByteSize, Effect, Result, Schema } from "effect";
import { HttpIncomingMessage, type HttpServerRequest } from "effect/http";
import type { GeneralMessage } from "../contract/Codes.ts";
import { endpoints } from "../contract/Endpoints.ts";
import { toProblems, ValidationErrors, type Problem } from "./ValidationErrors.ts";

const maxBodyBytes = 64 * 1024;

const bodyUsed =
  "The body was read before Parley got the request, by a parser such as express.json(), multer or koa-bodyparser, or " +
  "by request.json(). Move the line that mounts Parley above the line of the parser, or leave what was read in " +
  "request.body. In Fastify, pass its request and reply to the handler, not request.raw and reply.raw.";

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
  // Of a web request. No fault of the client's: its status must not be 400.
  if ((request.source as Partial<Request>).bodyUsed === true)
    return Effect.die(new Error(bodyUsed));
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

/** A decoder that fails with the problems of all values; `problems` are those that the schema does not know. */
const makeDecoder = <A>(schema: Schema.Codec<A, unknown>) => {
  const decode = Schema.decodeUnknownResult(schema, { errors: "all", reportInput: true });
  return (values: object, problems: ReadonlyArray<Problem> = []) => {
    const result = decode(values);
    if (Result.isFailure(result)) {
      return Effect.fail(new ValidationErrors([...problems, ...toProblems(result.failure.issue)]));
    }
    return problems.length === 0
      ? Effect.succeed(result.success)
      : Effect.fail(new ValidationErrors(problems));
  };
};

const makePostDecoder = <A>(schema: Schema.Codec<A, unknown>) => {
  const decode = makeDecoder(schema);
  return (request: HttpServerRequest.HttpServerRequest, onDisconnect = "finish") => {
    const { "idempotency-key": key, "on-disconnect": wish = onDisconnect } = request.headers;
    return Effect.flatMap(readJson(request), (body) =>
      decode({
        ...(key !== undefined && { "Idempotency-Key": key }),
        "On-Disconnect": wish.toLowerCase(),
        body,
      }),
    );
  };
};

/** The parameters in a request's target. `name[]` and `name[0]` are spellings of an array's `name`. */
const parseQuery = (target: string): URLSearchParams => {
  const parameters = new URLSearchParams();
  const [, query] = /\?(.*)$/s.exec(target) ?? [];
  for (const pair of query?.split("&") ?? []) {
    const [, name = "", value = ""] = /^([^=]*)=?(.*)$/s.exec(pair)!;
    const plain = decodeText(name).replace(/^(orderBy|desc)\[\d*\]$/, "$1");
    parameters.append(plain, decodeText(value));
  }
  return parameters;
};

const decodeText = (text: string): string => {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    // No percent-encoded UTF-8: every rule refuses NUL.
    return "\0";
  }
};

/** A decoder of the query in a request's target; an absent parameter is absent in its result. */
const makeQueryDecoder = <Field extends string, Values>(
  schema: Schema.Codec<Values & Sorting<Field>, unknown> & { readonly fields: object },
) => {
  const decode = makeDecoder(schema);
  const names = Object.keys(schema.fields);
  return (target: string) => {
    const parameters = parseQuery(target);
    const problems: Array<Problem> = [];
    const input: Record<string, unknown> = {};
    for (const name of names) {
      const values = parameters.getAll(name);
      if (values.length === 0) continue;
      if (name === "orderBy" || name === "desc") input[name] = values;
      else if (values.length === 1) input[name] = values[0];
      else problems.push([[name], "REPEATED"]);
    }
    const [directions, fields] = [parameters.getAll("desc"), parameters.getAll("orderBy")];
    if (directions.length > 0 && directions.length !== (fields.length || 1)) {
      problems.push([["desc"], "NOT_ONE_PER_FIELD"]);
    }
    return Effect.map(decode(input, problems), (decoded) => {
      const { desc, orderBy = desc && ["id" as Field], ...values } = decoded;
      const [first, ...rest] = (orderBy ?? []).map((field, at): OrderBy<CoreName<Field>> => ({
        field: (coreNames[field] ?? field) as CoreName<Field>,
        descending: desc?.[at] === true,
      }));
      return { ...values, ...(first && { orderBy: [first, ...rest] as const }) };
    });
  };
};

/** The fields whose name on the wire is not that of the core. */
const coreNames: Readonly<Record<string, string>> = {
  _createTime: "createTime",
  chat_id: "chatId",
};
type CoreName<Field> = Field extends "_createTime"
  ? "createTime"
  : Field extends "chat_id"
    ? "chatId"
    : Field;

interface Sorting<Field extends string> {
  readonly orderBy?: ReadonlyArray<Field>;
  readonly desc?: ReadonlyArray<boolean>;
}

const { ask, createChat, history, listChats } = endpoints;

export const decodeCreateChat = makePostDecoder(
  Schema.Struct({ ...createChat.parameters.header, body: createChat.body }),
);
/** The second argument is the value of an absent `On-Disconnect`. */
export const decodeAsk = makePostDecoder(
  Schema.Struct({ ...ask.parameters.header, body: ask.body }),
);
export const decodeChatsQuery = makeQueryDecoder(Schema.Struct(listChats.parameters.query));
export const decodeHistoryQuery = makeQueryDecoder(Schema.Struct(history.parameters.query));
