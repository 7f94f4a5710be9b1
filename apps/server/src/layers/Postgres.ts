/**
 * The PostgreSQL store. It is loaded when needed, because most commands and a server on a file start without it.
 */
import { Effect } from "effect";

export const loadPostgres = Effect.promise(() => import("@parley/store-pg"));
