/**
 * Publishes the packages of this checkout, which it changes: it fills in what only the place of publishing knows, namely
 * `repository.url`, `homepage`, `bugs` and the links that leave a package's README. On GitHub, npm signs where the
 * packages come from.
 */
import { execFileSync } from "node:child_process";
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";

const names = ["GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_REF_NAME"];
const missing = names.filter((name) => !process.env[name]);
if (missing.length > 0) {
  console.error(
    `error: ${missing.join(", ")} must be set, or the packages' links would lead nowhere`,
  );
  process.exit(1);
}
const [server, repository, tag] = names.map((name) => process.env[name]);
const site = `${server}/${repository}`;

const root = join(import.meta.dirname, "..");
const run = (file, args) => execFileSync(file, args, { cwd: root, stdio: "inherit" });

for (const file of globSync("{packages,apps}/*/package.json", { cwd: root })) {
  const folder = dirname(file);
  const change = (name, edit) => {
    const path = join(root, folder, name);
    writeFileSync(path, edit(readFileSync(path, "utf8")));
  };
  change("package.json", (text) => {
    const { repository, ...manifest } = JSON.parse(text);
    return JSON.stringify({
      ...manifest,
      repository: { ...repository, url: `git+${site}.git` },
      homepage: `${site}/tree/${tag}/${folder}#readme`,
      bugs: `${site}/issues`,
    });
  });
  change("README.md", (text) =>
    text.replaceAll(
      /(?<=\]\()\.\.?\/[^)#\s]*/g,
      (path) => `${site}/blob/${tag}/${posix.join(folder, path)}`,
    ),
  );
}

run("npx", ["--yes", "pnpm@12", "run", "tarballs"]);
const provenance = process.env["GITHUB_ACTIONS"] === "true" ? ["--provenance"] : [];
for (const tarball of globSync("dist/*.tgz", { cwd: root }))
  run("npm", ["publish", ...provenance, "--access", "public", `./${tarball}`]);
