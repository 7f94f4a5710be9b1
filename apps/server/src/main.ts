import * as NodeRuntime from "@effect/platform-node/NodeRuntime";
import * as NodeServices from "@effect/platform-node/NodeServices";
import { Effect } from "effect";
import { parley } from "./Commands.ts";
import { teardown } from "./Teardown.ts";

parley.pipe(Effect.provide(NodeServices.layer), NodeRuntime.runMain({ teardown }));
