/**
 * The program.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime";
import * as NodeServices from "@effect/platform-node/NodeServices";
import { Effect, Logger } from "effect";
import { isServer } from "./CommandOf.ts";
import { parley } from "./commands/Parley.ts";
import { reported } from "./Report.ts";
import { teardown } from "./Teardown.ts";

parley.pipe(
  reported,
  Effect.provideService(Logger.LogToStderr, !isServer),
  Effect.provide(NodeServices.layer),
  NodeRuntime.runMain({
    disableErrorReporting: true,
    teardown: teardown(isServer),
  }),
);
