/**
 * Prints what Redocly finds in the API description of standard input, a line each.
 */
import { createConfig, lintFromString } from "@redocly/openapi-core";
import { text } from "node:stream/consumers";

const config = await createConfig({ extends: ["recommended"] });
const problems = await lintFromString({ source: await text(process.stdin), config });
for (const { location, message, ruleId, severity } of problems) {
  console.log(severity, ruleId, message, location[0]?.pointer);
}
