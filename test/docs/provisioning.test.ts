import { Ajv2020 } from "ajv/dist/2020.js";
import { Schema } from "effect";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ProvisionFile } from "../../apps/server/src/provision/ProvisionFile.ts";
import { fencesOf, read, root, sectionOf } from "./Fences.ts";
import { makeKeys } from "../keys.ts";

const path = "docs/provisioning.schema.json";

/** The provisioning file's JSON Schema, with references inlined. */
const provisionSchema = () => {
  const { definitions, schema } = Schema.toJsonSchemaDocument(ProvisionFile, {
    onExcessProperty: "error",
  });
  const whole = (_: string, value: unknown): unknown => {
    const reference = (value as { readonly $ref?: unknown } | null)?.$ref;
    return typeof reference === "string" ? definitions[reference.split("/").at(-1)!] : value;
  };
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    ...JSON.parse(JSON.stringify(schema, whole)),
  };
};

if (process.env["UPDATE_DOCS"] === "1") {
  writeFileSync(join(root, path), `${JSON.stringify(provisionSchema(), null, 2)}\n`);
}

const [key] = await makeKeys(1);

it(`${path} matches the schema that the server uses (UPDATE_DOCS=1 writes it)`, () => {
  expect(JSON.parse(read(path))).toEqual(provisionSchema());
});

describe("the published schema", () => {
  const validate = new Ajv2020({ allErrors: true }).compile(JSON.parse(read(path)));
  const example = () => {
    const section = sectionOf(read("docs/operations.md"), "## The provisioning file");
    return JSON.parse(fencesOf(section).find(({ info }) => info === "json")!.text);
  };
  const chatbot = { workspace: "W", name: "N" };

  it("the published schema accepts the documented example, and every field of a chatbot", () => {
    validate(example());
    expect(validate.errors).toBe(null);
    validate({
      chatbots: [
        {
          ...chatbot,
          description: "",
          helloMessage: null,
          moderationErrorMessage: "No.",
          instructions: "Be brief.",
          model: "large",
          moderation: "endpoint",
          knowledge: "manuals",
          retentionDays: 30,
          keys: [{ key, scopes: ["read", "ask"], name: "n", expiresAt: "2030-01-01" }],
        },
      ],
    });
    expect(validate.errors).toBe(null);
  });

  it.each([
    {},
    { chatbots: [], chatbot: [] },
    { chatbots: [{ name: "N" }] },
    { chatbots: [{ ...chatbot, name: " " }] },
    { chatbots: [{ ...chatbot, moderationErrorMessage: "" }] },
    { chatbots: [{ ...chatbot, name: "n".repeat(256) }] },
    { chatbots: [{ ...chatbot, hello: "Hi" }] },
    { chatbots: [{ ...chatbot, moderation: "sometimes" }] },
    { chatbots: [{ ...chatbot, knowledge: "../elsewhere" }] },
    { chatbots: [{ ...chatbot, retentionDays: 0 }] },
    { chatbots: [{ ...chatbot, keys: [{ key: "${KEY}", scopes: ["admin"] }] }] },
    { chatbots: [{ ...chatbot, keys: [{ key: "secret", scopes: ["read"] }] }] },
  ])("the published schema rejects %j", (file) => {
    expect(validate(file)).toBe(false);
  });

  it("the published schema describes every field", () => {
    const undescribed: Array<string> = [];
    const look = (schema: any, at: string) => {
      for (const [name, field] of Object.entries<any>(schema.properties ?? {})) {
        if (typeof field.description !== "string") undescribed.push(`${at}${name}`);
        look(field.items ?? {}, `${at}${name}.`);
      }
    };
    look(JSON.parse(read(path)), "");
    expect(undescribed).toEqual([]);
  });
});
