/**
 * Checks the Kubernetes objects in the YAML on standard input against their schemas and against their types, which
 * reject unknown fields, and prints the objects as JSON.
 */
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import { parseAllDocuments } from "yaml";

const objects = parseAllDocuments(await text(process.stdin)).map((document) => {
  if (document.errors.length > 0) throw document.errors[0];
  return document.toJS();
});
const lines: Array<string> = [];
for (const [at, object] of objects.entries()) {
  const module = `kubernetes-models/${object.apiVersion}/${object.kind}`;
  const model = (await import(module))[object.kind];
  new model(object).validate();
  lines.push(
    `import type { I${object.kind} as T${at} } from "${module}";`,
    `export const o${at}: T${at} = ${JSON.stringify(object)};`,
  );
}
const file = "objects.check.ts";
writeFileSync(file, lines.join("\n"));
try {
  const options = "--noEmit --strict --skipLibCheck --target es2022 --module nodenext".split(" ");
  execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", ...options, file]);
} catch (error) {
  throw new Error(String((error as { stdout: unknown }).stdout), { cause: error });
} finally {
  rmSync(file);
}
console.log(JSON.stringify(objects));
