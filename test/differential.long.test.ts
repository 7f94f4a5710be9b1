/**
 * The random comparison with 100,000 commands from one seed.
 */
process.env["PARLEY_RANDOM_COMMANDS"] ??= "100000";
process.env["PARLEY_RANDOM_SEED"] ??= "20261128";

await import("./differential.test.ts");
