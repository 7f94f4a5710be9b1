/**
 * Prints the problems that Redocly finds in the API description on standard input, one per line.
 */
import { createConfig, lintFromString } from "@redocly/openapi-core";
import { text } from "node:stream/consumers";

const config = await createConfig({ extends: ["recommended"] });
const problems = await lintFromString({ source: await text(process.stdin), config });
for (const { location, message, ruleId, severity } of problems) {
  console.log(severity, ruleId, message, location[0]?.pointer);
}
