/**
 * The commands, as their help and the documentation show them.
 */
import type { Command } from "effect/cli";
import { describe, expect, it } from "vitest";
import { command } from "../../apps/server/src/cli/Cli.ts";
import { read, sectionOf } from "./Fences.ts";

interface Node {
  readonly path: string;
  readonly command: Command.Command.Any;
  readonly isGroup: boolean;
}

const nodesOf = (command: Command.Command.Any, above: string): ReadonlyArray<Node> => {
  const path = `${above} ${command.name}`.trim();
  const below = command.subcommands.flatMap(({ commands }) => commands);
  return [
    { path, command, isGroup: below.length > 0 },
    ...below.flatMap((subcommand) => nodesOf(subcommand, path)),
  ];
};

const nodes = nodesOf(command, "");
const paths = nodes.filter(({ isGroup }) => !isGroup).map(({ path }) => path.slice(7));

describe("docs/operations.md", () => {
  const table = sectionOf(read("docs/operations.md"), "## Commands");
  const rows = [...table.matchAll(/^\| (`.*?) \|/gm)].map((match) => match[1]!);
  const documented = rows.flatMap((row) =>
    [...row.matchAll(/`([^`]+)`/g)]
      .map((match) => match[1]!)
      .filter((text) => !text.startsWith("-")),
  );

  it.each(paths)("docs/operations.md lists parley %s in its table", (path) => {
    expect(documented.some((text) => `${text} `.startsWith(`${path} `))).toBe(true);
  });

  it.each(documented)("the command %s in docs/operations.md exists", (text) => {
    expect(paths.some((path) => `${text} `.startsWith(`${path} `))).toBe(true);
  });
});

describe("--help", () => {
  it.each(nodes)("$path --help has examples of the command", ({ command, path }) => {
    expect(command.examples.length).toBeGreaterThan(0);
    for (const example of command.examples) {
      expect(example.command).toMatch(new RegExp(`\\b${path}(?![\\w-])`));
    }
  });
});
