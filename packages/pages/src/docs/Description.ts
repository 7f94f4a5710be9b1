/**
 * The OpenAPI 3.1 description of the declared endpoints.
 */
import { toFieldName, toGeneralBody } from "@parley/http";
import {
  endpointsWith,
  generalCodes,
  validationCodes,
  Wire,
  type BasePaths,
  type Endpoint,
  type GeneralMessage,
} from "@parley/http/contract";
import { Schema } from "effect";

type Json = Record<string, any>;

/** Describes the interfaces that a listener serves. */
export const describeApi = (
  basePaths: BasePaths,
  serves: ReadonlyArray<keyof BasePaths>,
  questionLength: number,
) => {
  const schemas: Json = {};
  const paths: Record<string, Json> = {};
  for (const [name, endpoint] of Object.entries<Endpoint>(endpointsWith(questionLength))) {
    if (!serves.includes(endpoint.interface)) continue;
    const path = `${basePaths[endpoint.interface]}${endpoint.path.replace(/:(\w+)/g, "{$1}")}`;
    const operation = describeEndpoint(name, endpoint, schemas);
    paths[path] = { ...paths[path], [endpoint.method.toLowerCase()]: operation };
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Parley",
      version: "1",
      description: "Create chats, ask a chatbot questions in them, and read their history.",
      license: { name: "MIT", identifier: "MIT" },
    },
    tags: serves.map((name) => ({ name, description: tags[name] })),
    paths,
    components: { schemas, securitySchemes: { apiKey } },
  };
};

const tags = {
  general: "Chatbot details, chats and their history",
  answers: "Questions and answers",
};
const apiKey = {
  type: "apiKey",
  name: "x-api-key",
  in: "header",
  description:
    "An API key for the chatbot, or a visitor token, with the scope that the endpoint needs",
};
const requestId = {
  description: "The request's id in the server's log",
  required: true,
  schema: { type: "string" },
};
const ownRequestId = {
  name: "x-request-id",
  in: "header",
  required: false,
  description:
    "The id to use for the request in the server's log: 1 to 128 letters, digits, `.`, `_` or `-`; by default, the server generates one",
  schema: { type: "string" },
};
const replayHeader = {
  description:
    "`true` if this response repeats the result of an earlier request with the same `Idempotency-Key`",
  schema: { type: "string", enum: ["true"] },
};
const retryAfter = {
  description:
    "With `RATE_EXCEEDED`, `BUDGET_SPENT`, `SERVICE_OVERLOADED` or `STORAGE_UNAVAILABLE`: the number of seconds to wait before repeating the request",
  schema: { type: "integer", minimum: 1 },
};

const failures: ReadonlyArray<readonly [status: number, means: string, schema: Schema.Top]> = [
  [400, "Bad request", Wire.BadRequest],
  [401, "Unauthenticated access", Wire.Unauthenticated],
  [403, "Unauthorized access", Wire.Unauthorized],
  [404, "Path or entity not found", Wire.EndpointNotFound],
  [422, "Data validation failed", Wire.ValidationException],
  [500, "System error", Wire.SystemError],
];

/** Describes an endpoint as an operation, and adds the schemas that the operation refers to. */
const describeEndpoint = (name: string, endpoint: Endpoint, schemas: Json): Json => {
  const describe = (schema: Schema.Top, examples?: Json) => {
    const { definitions, schema: jsonSchema } = toJsonSchema(schema);
    Object.assign(schemas, definitions);
    return {
      content: { "application/json": { schema: jsonSchema, ...(examples && { examples }) } },
    };
  };
  const { body, description, method, success } = endpoint;
  const parameters = Object.entries(endpoint.parameters ?? {}).flatMap(describeParameters);
  const isPost = method === "POST";
  const responses: Json = {
    [isPost ? 201 : 200]: {
      description: "Success",
      headers: {
        "x-request-id": requestId,
        ...(isPost && { "Idempotent-Replayed": replayHeader }),
      },
      ...describe(success),
    },
  };
  for (const [status, description, schema] of failures) {
    const examples = examplesOf(name, endpoint, status);
    if (Object.keys(examples).length === 0) continue;
    const isOwn = "CHAT_DOES_NOT_EXISTS" in examples || "ASK_DOES_NOT_EXIST" in examples;
    const either = isOwn && Schema.Union([schema, Wire.NotFound]);
    responses[status] = {
      description,
      headers: {
        "x-request-id": requestId,
        ...((status === 403 || status === 500) && { "Retry-After": retryAfter }),
      },
      ...describe(either || schema, examples),
    };
  }
  return {
    tags: [endpoint.interface],
    operationId: `${endpoint.interface}.${name}`,
    summary: endpoint.summary,
    description: `${description} Requires the \`${endpoint.scope}\` scope.`,
    parameters: [...parameters, ownRequestId],
    security: [{ apiKey: [] }],
    ...(body && { requestBody: { required: true, ...describe(body) } }),
    responses,
  };
};

/** Converts a schema to JSON Schema, omitting `additionalProperties` and the minimum of unbounded integers. */
const toJsonSchema = (
  schema: Schema.Top,
): { readonly definitions: Json; readonly schema: Json } => {
  const text = JSON.stringify(Schema.toJsonSchemaDocument(schema));
  return JSON.parse(text.replaceAll("#/$defs/", "#/components/schemas/"), (name, value) => {
    if (name === "additionalProperties" || value === Number.MIN_SAFE_INTEGER) return undefined;
    // The schema of a single word is a choice of one.
    return value?.anyOf?.length === 1 ? value.anyOf[0] : value;
  });
};

/** Describes the parameters in a place, such as the query, with the schemas of their decoded values. */
const describeParameters = ([place, fields]: readonly [string, Schema.Struct.Fields]) => {
  const { definitions, schema } = toJsonSchema(Schema.toType(Schema.Struct(fields)));
  const isRequired = (name: string) => (schema["required"] ?? []).includes(name);
  return Object.entries<Json>(schema["properties"]).map(([name, value]) => {
    // A reference to a named schema is replaced by the schema itself.
    const { description, ...schema } = definitions[value["$ref"]?.split("/").at(-1)] ?? value;
    // `include` is the only array whose values are separated by commas.
    const separator = name === "include" && { explode: false };
    const required = place === "path" || isRequired(name);
    return { name, in: place, required, ...separator, description, schema };
  });
};

/** Returns an example of each failure that the endpoint reports with the status, by message. */
const examplesOf = (name: string, endpoint: Endpoint, status: number): Json => {
  const values = Object.assign(
    {},
    ...Object.values(endpoint.parameters ?? {}),
    endpoint.body?.fields,
  );
  const paths = [[], ...Object.keys(values).map((value) => [value])];
  const general = Object.entries(generalCodes)
    .filter(([message, code]) => code.status === status && occurs(message, name, endpoint))
    .map(([message, { means }]) => {
      const body = toGeneralBody(message as GeneralMessage);
      const target = message === "INVALID_PATH" && { method: endpoint.method, path: "/nowhere" };
      return [message, { summary: means, value: { ...body, ...target } }];
    });
  const validation = Object.entries(validationCodes).flatMap(([message, code]) => {
    const path = paths.find((name) => message.startsWith(`${endpoint.dto}_${toFieldName(name)}_`));
    return status !== 422 || path === undefined
      ? []
      : [[message, { value: { status, errors: [{ code, message, path }] } }]];
  });
  return Object.fromEntries([...general, ...validation]) as Json;
};

/** Messages with which only some endpoints can respond, and the names of those endpoints. */
const onlyAt: Readonly<Record<string, ReadonlyArray<string>>> = {
  ANSWER_STOPPED: ["ask"],
  ANSWER_UNAVAILABLE: ["ask"],
  ASK_DOES_NOT_EXIST: ["stopAsk"],
  BUDGET_SPENT: ["ask"],
  CHAT_DOES_NOT_EXISTS: ["ask", "history", "changeChat", "deleteChat", "changeEntry", "postEntry"],
  ENTRY_DOES_NOT_EXIST: ["changeEntry"],
  USER_REF_NOT_GRANTED: ["createChat"],
};

/** Whether the endpoint can respond with the message. */
const occurs = (message: string, name: string, { body }: Endpoint): boolean =>
  (onlyAt[message]?.includes(name) ?? true) &&
  (body !== undefined || !/^(BODY|CONTENT_TYPE)_/.test(message));
