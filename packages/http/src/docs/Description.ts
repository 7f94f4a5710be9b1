/**
 * The API description, OpenAPI 3.1: the declaration, with the headers and failures of every response.
 */
import { Schema } from "effect";
import { OpenApi, type HttpApiEndpoint } from "effect/http-api";
import { makeApi, type BasePaths } from "../contract/Api.ts";
import { generalCodes, validationCodes, type GeneralMessage } from "../contract/Codes.ts";
import { toGeneralBody } from "../serve/ErrorResponses.ts";
import { toFieldName } from "../serve/ValidationErrors.ts";

type Spec = OpenApi.OpenAPISpec;
type Operation = OpenApi.OpenAPISpecOperation;

/**
 * The declaration of the interfaces that a listener serves, from which `OpenApi.fromApi` makes the whole description.
 */
export const makeDescribedApi = (basePaths: BasePaths, serves: ReadonlyArray<keyof BasePaths>) => {
  const api = makeApi(basePaths, serves);
  return api.annotate(OpenApi.Transform, (declared) => {
    const spec = withoutArtefacts(declared as Spec);
    const endpoints: ReadonlyArray<HttpApiEndpoint.Top> = Object.values(api.groups).flatMap(
      (group) => Object.values<HttpApiEndpoint.Top>(group.endpoints),
    );
    for (const endpoint of endpoints) {
      const path = endpoint.path.replace(/:(\w+)/g, "{$1}");
      const method = endpoint.method.toLowerCase() as "get" | "post";
      describeOperation(spec, endpoint, spec.paths[path]![method]!);
    }
    for (const name of Object.keys(spec.components.schemas)) {
      // Named after a check, for validation, and inlined.
      if (/^[a-z]/.test(name)) delete spec.components.schemas[name];
    }
    return { ...spec, servers: [{ url: "/" }] };
  });
};

/**
 * The declaration for the page, whose samples would have a made-up value of each parameter, such as an empty `userRef`.
 * Scalar leaves out a parameter whose example is an empty list, until the reader gives it a value.
 */
export const withShortSamples = (api: ReturnType<typeof makeDescribedApi>) =>
  api.annotate(OpenApi.Transform, () => {
    const spec = OpenApi.fromApi(api);
    const operations = Object.values(spec.paths).flatMap((path) => Object.values(path));
    for (const { parameters } of operations as ReadonlyArray<Operation>) {
      for (const parameter of parameters) {
        if (parameter.required || "default" in parameter.schema) continue;
        const examples = { default: { value: [], "x-disabled": true } };
        Object.assign(parameter, { explode: true, examples });
      }
    }
    return spec;
  });

/**
 * Without the bounds of every integer, and without a ban of further members: requests may have them, and responses of
 * later versions.
 */
const withoutArtefacts = (spec: Spec): Spec =>
  JSON.parse(JSON.stringify(spec), (name, value: unknown) =>
    (name === "additionalProperties" && value === false) ||
    (name === "minimum" && value === Number.MIN_SAFE_INTEGER)
      ? undefined
      : value,
  );

const describeOperation = (spec: Spec, endpoint: HttpApiEndpoint.Top, operation: Operation) => {
  for (const schema of [endpoint.params, endpoint.query, endpoint.headers]) {
    if (schema === undefined) continue;
    // The values, where Effect describes the strings that encode them.
    const { definitions, schema: values } = Schema.toJsonSchemaDocument(Schema.toType(schema));
    for (const [name, value] of Object.entries(values["properties"] as Record<string, any>)) {
      const parameter = operation.parameters.find((one) => one.name === name)!;
      const inlined = definitions[value.$ref?.split("/").at(-1)] ?? value;
      const { description, ...schema } = inlined as Record<string, any>;
      Object.assign(parameter, { schema }, description && { description });
    }
  }
  const isPost = endpoint.method === "POST";
  for (const [status, response] of Object.entries(operation.responses)) {
    const repeatable = isPost && Number(status) < 300 && { "Idempotent-Replayed": replayed };
    const failed = status === "500" && { "Retry-After": retryAfter };
    Object.assign(response, { headers: { "x-request-id": requestId, ...repeatable, ...failed } });
    const content = response.content?.["application/json"];
    const examples = examplesOf(spec, endpoint, operation, Number(status));
    if (content !== undefined && Object.keys(examples).length > 0)
      Object.assign(content, { examples });
  }
};

const requestId = {
  description: "The request's id in the server's log",
  required: true,
  schema: { type: "string" },
};
const replayed = {
  description: "`true`: an earlier request with the same `Idempotency-Key` made it",
  schema: { type: "string", enum: ["true"] },
};
const retryAfter = {
  description: "With `SERVICE_OVERLOADED`: seconds after which to repeat the request",
  schema: { type: "integer", minimum: 1 },
};

const dtos: Readonly<Record<string, string>> = {
  createChat: "CREATE_CHAT_DTO",
  listChats: "CHATS_DTO",
  history: "HISTORY_DTO",
  ask: "ASK_DTO",
};

/** Every failure of the endpoint with this status, by its message. */
const examplesOf = (
  spec: Spec,
  { identifier, method }: HttpApiEndpoint.Top,
  operation: Operation,
  status: number,
) => {
  const schema = operation.requestBody?.content["application/json"]?.schema as { $ref?: string };
  const body = spec.components.schemas[schema?.$ref?.split("/").at(-1) ?? ""]?.["properties"] ?? {};
  const names = [...operation.parameters.map(({ name }) => name), ...Object.keys(body)];
  const paths = [[], ...names.map((name) => [name])];

  const general = Object.entries(generalCodes)
    .filter(([message, code]) => code.status === status && occurs(message, identifier, method))
    .map(([message, { means }]) => {
      const value = toGeneralBody(message as GeneralMessage);
      const more = message === "INVALID_PATH" ? { method, path: "/nowhere" } : {};
      return [message, { summary: means, value: { ...value, ...more } }];
    });
  const validation = Object.entries(validationCodes).flatMap(([message, code]) => {
    const path = paths.find((one) =>
      message.startsWith(`${dtos[identifier]}_${toFieldName(one)}_`),
    );
    return status !== 422 || path === undefined
      ? []
      : [[message, { value: { status, errors: [{ code, message, path }] } }]];
  });
  return Object.fromEntries([...general, ...validation]) as object;
};

/** Whether the endpoint can answer with the message. */
const occurs = (message: string, endpoint: string, method: string): boolean => {
  if (message === "ANSWER_UNAVAILABLE") return endpoint === "ask";
  if (message === "CHAT_DOES_NOT_EXISTS") return endpoint === "ask" || endpoint === "history";
  return method === "POST" || !/^(BODY|CONTENT_TYPE)_/.test(message);
};
