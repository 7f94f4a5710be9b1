/**
 * Declares both interfaces for Effect's HttpApi: for clients, not for serving.
 */
import type { Schema } from "effect";
import { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api";
import {
  defaultBasePaths,
  type EndpointName,
  endpoints,
  endpointsWith,
} from "../contract/Endpoints.ts";

type FieldsIn<E, Place extends string> = E extends {
  readonly parameters: { readonly [P in Place]: infer Fields extends Schema.Struct.Fields };
}
  ? Schema.Struct<Fields>
  : never;

type Declared<
  Name extends EndpointName,
  E extends (typeof endpoints)[Name],
> = HttpApiEndpoint.HttpApiEndpoint<
  Name,
  E["method"],
  E["path"],
  FieldsIn<E, "path">,
  FieldsIn<E, "query">,
  E extends { readonly body: { readonly Encoded: infer Body } } ? Schema.Codec<Body> : never,
  FieldsIn<E, "header">,
  E["success"]
>;

/** Declares the interfaces at these paths, of a server whose questions may have this many characters. */
export const parleyApi = (paths = defaultBasePaths, questionLength = 200) => {
  const all = endpointsWith(questionLength);
  const declare = <Name extends EndpointName>(name: Name) => {
    const { body, method, parameters = {}, path, success } = all[name];
    const { header: headers, path: params, query } = parameters;
    const status = HttpApiSchema.status(method === "POST" ? 201 : 200);
    const options = { headers, params, query, payload: body, success: success.pipe(status) };
    const declared = HttpApiEndpoint.make(method)(
      name,
      (path || "/") as `/${string}`,
      options as {},
    );
    return declared as unknown as Declared<Name, (typeof endpoints)[Name]>;
  };
  const general = HttpApiGroup.make("general", { topLevel: true }).add(
    declare("details"),
    declare("createChat"),
    declare("listChats"),
    declare("history"),
    declare("changeChat"),
    declare("deleteChat"),
    declare("changeEntry"),
    declare("postEntry"),
  );
  const answers = HttpApiGroup.make("answers", { topLevel: true }).add(
    declare("ask"),
    declare("stopAsk"),
  );
  return (
    HttpApi.make("parley")
      .add(general.prefix(paths.general), answers.prefix(paths.answers))
      // The server checks the values, and its errors name all that are wrong.
      .annotate(HttpApi.ParseOptions, { disableChecks: true })
  );
};
