import { parleyApi } from "@parley/http/client";
import { OpenApi } from "effect/http-api";
import { expect, it } from "vitest";
import { describeApi } from "../../src/docs/Description.ts";

type Json = Record<string, any>;

/** What both descriptions say about each operation. Only the server's has texts, examples and its own parameters. */
const operationsOf = ({ components, paths }: Json) => {
  const plain = (schema: unknown): unknown =>
    JSON.parse(JSON.stringify(schema ?? null), (name, value) => {
      const isOmitted = /^(additionalProperties|description|examples)$/.test(name);
      if (isOmitted || value === Number.MIN_SAFE_INTEGER) return undefined;
      if (typeof value?.["$ref"] === "string")
        return plain(components.schemas[value["$ref"].split("/").at(-1)!]);
      return value?.anyOf?.length === 1 ? value.anyOf[0] : value;
    });
  return Object.entries<Json>(paths).flatMap(([path, operations]) =>
    Object.entries<Json>(operations).map(([method, operation]) => {
      const status = method === "post" ? 201 : 200;
      return {
        operation: `${method} ${path.replace(/\/$/, "")}`,
        parameters: operation["parameters"]
          .map(({ in: place, name, required }: Json) => [place, name, required])
          .filter(([, name]: [string, string]) => name !== "x-request-id")
          .toSorted(),
        body: plain(operation["requestBody"]?.content["application/json"].schema),
        success: plain(operation["responses"][status].content["application/json"].schema),
      };
    }),
  );
};

it("the declaration for Effect's HttpApi and the served API description declare the same", () => {
  const paths = { general: "/general", answers: "/answers" } as const;
  const declared = operationsOf(OpenApi.fromApi(parleyApi(paths, 300)));
  const served = operationsOf(describeApi(paths, ["general", "answers"], 300));
  expect(declared).toHaveLength(10);
  expect(declared).toEqual(served);
});
