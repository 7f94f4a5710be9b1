import { type Schema, type SchemaAST } from "effect";
import { expect, it } from "vitest";
import { endpoints, validationCodes, type Endpoint } from "../../src/contract/index.ts";
import { problemOf, toMessage } from "../../src/serve/ValidationErrors.ts";

/** Returns the messages about what the schema's checks and types may find in a value. */
const messagesOf = (
  dto: string,
  path: ReadonlyArray<string>,
  ast: SchemaAST.AST,
): Array<string> => {
  const problems = (ast.checks ?? []).map((check) => problemOf(check) ?? "UNNAMED_PROBLEM");
  if (typeof ast.annotations?.["message"] === "string") problems.push(ast.annotations["message"]);
  const types = [
    ...(ast.encoding ?? []).map(({ to }) => to),
    ...(ast._tag === "Union" ? ast.types : []),
    ...(ast._tag === "Arrays" ? [...ast.elements, ...ast.rest] : []),
  ];
  const members = ast._tag === "Objects" ? ast.propertySignatures : [];
  return [
    ...problems.map((problem) => toMessage(dto, [path, problem])),
    ...types.flatMap((type) => messagesOf(dto, path, type)),
    ...members.flatMap(({ name, type }) => messagesOf(dto, [String(name)], type)),
  ];
};

it("every problem that a declared schema may find in a value has a public code", () => {
  const messages = Object.values<Endpoint>(endpoints).flatMap(({ body, dto, parameters }) => {
    const fields = Object.entries<Pick<Schema.Top, "ast">>({
      ...parameters?.header,
      ...parameters?.query,
      ...body?.fields,
    });
    if (dto === undefined) return [];
    const ofBody =
      body === undefined
        ? []
        : [
            `${dto}_BODY_NOT_OBJECT`,
            ...(body.ast.checks ?? []).map((check) =>
              toMessage(dto, [[], problemOf(check) ?? "UNNAMED_PROBLEM"]),
            ),
          ];
    return [...ofBody, ...fields.flatMap(([name, { ast }]) => messagesOf(dto, [name], ast))];
  });
  expect(messages.length).toBeGreaterThan(60);
  expect(Object.keys(validationCodes)).toEqual(expect.arrayContaining(messages));
});
