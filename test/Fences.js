/**
 * The fenced blocks of this project's documentation.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
export const root = join(import.meta.dirname, "..");
export const read = (file) => readFileSync(join(root, file), "utf8");
/** The pages in the root and in docs. */
export const documents = [".", "docs"].flatMap((folder) =>
  readdirSync(join(root, folder))
    .filter((name) => name.endsWith(".md"))
    .map((name) => join(folder, name)),
);
export const fencesOf = (markdown) =>
  [...markdown.matchAll(/^(`{3,})([^`\n]*)\n([^]*?)\n\1$/gm)].map((match) => ({
    info: match[2],
    text: match[3],
  }));
/** What stands under a heading, up to the next of the same level. */
export const sectionOf = (markdown, heading) => {
  const level = /^#+ /.exec(heading)[0];
  const start = markdown.indexOf(`\n${heading}\n`);
  if (start === -1) throw new Error(`There is no section ${heading}`);
  const end = markdown.indexOf(`\n${level}`, start + 1);
  return markdown.slice(start, end === -1 ? undefined : end);
};
//# sourceMappingURL=Fences.js.map
