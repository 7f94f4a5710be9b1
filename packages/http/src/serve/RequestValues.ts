/**
 * Decodes the values in requests: bodies, the headers `Idempotency-Key` and `On-Disconnect`, and queries.
 */
import type { OrderBy } from "@parley/core";
import { ByteSize, Effect, Result, Schema } from "effect";
import { HttpIncomingMessage, type HttpServerRequest } from "effect/http";
import { endpoints } from "../contract/Endpoints.ts";
import { askBodyOf } from "../contract/Values.ts";
import { RequestRefused } from "./ErrorResponses.ts";
import { toProblems, ValidationFailed, type Problem } from "./ValidationErrors.ts";

/** The size that every body may have, and that of a posted entry: 10,000 characters and 16 KiB of metadata, escaped. */
const bodyBytes = 64 * 1024;
const postBytes = 160 * 1024;

const bodyUsed =
  "A parser such as express.json() or koa-bodyparser, or a call to request.json(), read the body before Parley " +
  "received the request. Mount Parley before the parser, or keep the parsed body in request.body (in Koa, " +
  "ctx.req.body); call request.clone().json() instead of request.json(). In Fastify, pass its request and reply to " +
  "the handler, not request.raw and reply.raw.";

const refuse = (reason: RequestRefused["reason"]) => Effect.fail(new RequestRefused({ reason }));

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Reads and parses a request's body, which is JSON in UTF-8. */
const readJson = (
  request: HttpServerRequest.HttpServerRequest,
  maxBodyBytes: number,
): Effect.Effect<unknown, RequestRefused> => {
  const { headers } = request;
  // Checked first, so that a body that is too large is not read at all, whatever its type.
  if (Number(headers["content-length"] ?? 0) > maxBodyBytes) return refuse("BODY_TOO_LARGE");
  if (!/^application\/json[ \t]*(;|$)/i.test(headers["content-type"] ?? "")) {
    return refuse("CONTENT_TYPE_NOT_JSON");
  }
  // Only a web request has `bodyUsed`. The client is not at fault, so the status must not be 400.
  if ((request.source as Partial<Request>).bodyUsed === true)
    return Effect.die(new Error(bodyUsed));
  // A request keeps the body that is read from it, and an ask may wait long. So the body is read from a copy, unless an
  // embedding application has already read it.
  const isRead =
    (request.source as { readonly readableDidRead?: boolean }).readableDidRead === true;
  return (isRead ? request : request.modify({})).arrayBuffer.pipe(
    Effect.mapError(({ reason }) => {
      const isTooLarge = reason._tag === "RequestParseError" && reason.reason === "BodyTooLarge";
      return new RequestRefused({ reason: isTooLarge ? "BODY_TOO_LARGE" : "BODY_INCOMPLETE" });
    }),
    Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.fromInputUnsafe(maxBodyBytes)),
    Effect.flatMap((bytes) =>
      Effect.try({
        try: (): unknown => JSON.parse(utf8.decode(bytes)),
        catch: () => new RequestRefused({ reason: "BODY_NOT_JSON" }),
      }),
    ),
  );
};

/** Creates a decoder that fails with the problems of all values, including `problems` that the schema cannot find. */
const makeDecoder = <A>(schema: Schema.Codec<A, unknown>) => {
  const decode = Schema.decodeUnknownResult(schema, { errors: "all", reportInput: true });
  return (values: object, problems: ReadonlyArray<Problem> = []) => {
    const result = decode(values);
    const all = Result.isFailure(result)
      ? [...problems, ...toProblems(result.failure.issue)]
      : problems;
    return Result.isSuccess(result) && all.length === 0
      ? Effect.succeed(result.success)
      : Effect.fail(new ValidationFailed({ problems: all }));
  };
};

/** Parses the query in a request target. For an array, it accepts `name[]` and `name[0]` as alternatives to `name`. */
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
    // Text that is not percent-encoded UTF-8 becomes NUL, which every schema rejects.
    return "\0";
  }
};

/** Reads the parameters with these names, of which only `orderBy` and `desc` may occur more than once. */
const readQuery = (parameters: URLSearchParams, names: ReadonlyArray<string>) => {
  const problems: Array<Problem> = [];
  const input: Record<string, unknown> = {};
  for (const name of names) {
    const values = parameters.getAll(name);
    if (values.length === 0) continue;
    if (name === "orderBy" || name === "desc") input[name] = values;
    else if (values.length === 1) input[name] = values[0];
    else problems.push([[name], "REPEATED"]);
  }
  return { input, problems };
};

/** Creates a decoder for the header, query and body of an endpoint. */
const makeBodyDecoder = <
  Body extends Schema.Top,
  Header extends Schema.Struct.Fields = {},
  Query extends Schema.Struct.Fields = {},
>(
  {
    body,
    parameters: { header, query },
  }: {
    readonly parameters: { readonly header?: Header; readonly query?: Query };
    readonly body: Body;
  },
  maxBodyBytes: number,
) => {
  type Values = Schema.Struct.Type<Header & Query & { readonly body: Body }>;
  const schema: Schema.Top = Schema.Struct({ ...header, ...query, body });
  const decode = makeDecoder(schema as Schema.Codec<Values, unknown>);
  return (request: HttpServerRequest.HttpServerRequest) => {
    const { "idempotency-key": key, "on-disconnect": onDisconnect } = request.headers;
    const { input, problems } = readQuery(parseQuery(request.url), Object.keys(query ?? {}));
    const values = {
      ...(key !== undefined && { "Idempotency-Key": key }),
      ...(onDisconnect !== undefined && { "On-Disconnect": onDisconnect.toLowerCase() }),
      ...input,
    };
    return Effect.flatMap(readJson(request, maxBodyBytes), (body) =>
      decode({ ...values, body }, problems),
    );
  };
};

/** Creates a decoder for the query in a request target. Absent parameters are absent from its result. */
const makeQueryDecoder = <Field extends string, Values>(
  schema: Schema.Codec<Values & Sorting<Field>, unknown> & { readonly fields: object },
) => {
  const decode = makeDecoder(schema);
  const names = Object.keys(schema.fields);
  return (target: string) => {
    const parameters = parseQuery(target);
    const { input, problems } = readQuery(parameters, names);
    const [directions, fields] = [parameters.getAll("desc"), parameters.getAll("orderBy")];
    if (directions.length > 0 && directions.length !== (fields.length || 1)) {
      problems.push([["desc"], "NOT_ONE_PER_FIELD"]);
    }
    return Effect.map(decode(input, problems), (query) => {
      const { desc, orderBy = desc && ["id" as Field], ...values } = query;
      const [first, ...rest] = (orderBy ?? []).map((field, index): OrderBy<CoreName<Field>> => ({
        field: ((coreNames as Record<string, string>)[field] ?? field) as CoreName<Field>,
        descending: desc?.[index] === true,
      }));
      return { ...values, ...(first && { orderBy: [first, ...rest] as const }) };
    });
  };
};

/** The core's names for the fields that have a different name on the wire. */
const coreNames = {
  _createTime: "createTime",
  _lastEntryTime: "lastEntryTime",
  chat_id: "chatId",
} as const;
type CoreName<Field> = Field extends keyof typeof coreNames ? (typeof coreNames)[Field] : Field;

interface Sorting<Field extends string> {
  readonly orderBy?: ReadonlyArray<Field>;
  readonly desc?: ReadonlyArray<boolean>;
}

const { ask, changeChat, changeEntry, createChat, history, listChats, postEntry, stopAsk } =
  endpoints;

/** Creates the decoders of bodies, for questions of at most this many characters. */
export const makeBodyDecoders = (questionLength: number) => {
  // Each character of a question may be two escapes of six bytes.
  const maxBytes = Math.max(bodyBytes, 12 * questionLength + 1024);
  return {
    ask: makeBodyDecoder({ ...ask, body: askBodyOf(questionLength) }, maxBytes),
    createChat: makeBodyDecoder(createChat, maxBytes),
    changeChat: makeBodyDecoder(changeChat, maxBytes),
    changeEntry: makeBodyDecoder(changeEntry, maxBytes),
    postEntry: makeBodyDecoder(postEntry, postBytes),
  };
};

const decodeStopValues = makeDecoder(
  Schema.Struct({ ...stopAsk.parameters.header, ...stopAsk.parameters.query }),
);

/** Decodes the header and the query of a request that stops an ask. */
export const decodeStop = ({ headers, url }: HttpServerRequest.HttpServerRequest) => {
  const key = headers["idempotency-key"];
  const { input, problems } = readQuery(parseQuery(url), Object.keys(stopAsk.parameters.query));
  return decodeStopValues(
    { ...(key !== undefined && { "Idempotency-Key": key }), ...input },
    problems,
  );
};

export const decodeChatsQuery = makeQueryDecoder(Schema.Struct(listChats.parameters.query));
export const decodeHistoryQuery = makeQueryDecoder(Schema.Struct(history.parameters.query));
