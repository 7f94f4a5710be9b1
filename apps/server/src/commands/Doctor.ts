import { Data, Effect } from "effect";
import { Command } from "effect/cli";
import type { Finding } from "../doctor/Doctor.ts";
import { line } from "../Told.ts";
import { jsonFlag, print, printable } from "./Output.ts";

export class DoctorFailed extends Data.TaggedError("DoctorFailed")<{ readonly message: string }> {}

/** Loaded only now: the other commands need no language models. */
const examine = Effect.flatMap(
  Effect.promise(() => import("../doctor/Doctor.ts")),
  (module) => module.examine,
);

const textOf = ({ check, hint, message, status }: Finding): string => {
  const first = `${status.padEnd(8)} ${check.padEnd(10)}  ${printable(line(message))}`;
  return hint === null ? first : `${first}\n${" ".repeat(21)}${printable(line(hint))}`;
};

export const doctor = Command.make("doctor", { json: jsonFlag }, ({ json }) =>
  Effect.gen(function* () {
    const findings = yield* examine;
    yield* print(json, findings, () => findings.map(textOf).join("\n"));
    const failed = findings.filter(({ status }) => status === "failed").length;
    if (failed === 0) return;
    return yield* new DoctorFailed({
      message: failed === 1 ? "One check failed." : `${failed} checks failed.`,
    });
  }),
).pipe(
  Command.withDescription("Check settings, database, documents and models; say what to do"),
  Command.withExamples([
    { command: "parley doctor", description: "Before the first start, or when something is wrong" },
    { command: "parley doctor --json", description: "For a program" },
  ]),
);
