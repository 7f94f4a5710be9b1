#!/usr/bin/env -S node --memory-saver-mode --max-semi-space-size=4
import * as NodeRuntime from "@effect/platform-node/NodeRuntime";
import * as NodeServices from "@effect/platform-node/NodeServices";
import { Effect } from "effect";
import { parley } from "./cli/Cli.ts";
import { exitCode } from "./cli/Errors.ts";

parley.pipe(
  Effect.provide(NodeServices.layer),
  NodeRuntime.runMain({
    disableErrorReporting: true,
    teardown: (exit, onExit) => onExit(exitCode(exit)),
  }),
);
