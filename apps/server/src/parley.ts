#!/usr/bin/env -S node --max-semi-space-size=16
/**
 * The `parley` command of the package. A young generation of semi-spaces of at most 16 MB costs no time, and leaves
 * 170 MB in use after a burst of requests where Node's default leaves 240 MB.
 */
const [major, minor] = process.versions.node.split(".").map(Number) as [number, number];
if (major < 22 || (major === 22 && minor < 19)) {
  console.error(
    `parley: Node ${process.versions.node} is too old: the server needs 22.19 or later.`,
  );
  process.exit(1);
}
await import("./main.ts");
