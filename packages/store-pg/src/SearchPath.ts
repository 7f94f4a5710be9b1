/**
 * A pooler may keep what its client asks for to itself. The tables would then be looked for, and made, in another
 * schema.
 */

/** SQL for the schema that a connection looks into first. */
export const searched = "(parse_ident(nullif(current_setting('search_path'), ''), false))[1]";

/** Why a connection that looks into the schema cannot serve those of another; `null` when it is the same. */
export const misled = (schema: string, wanted: string): string | null =>
  schema === wanted
    ? null
    : `a connection that asks for the schema "${wanted}" gets "${schema}": behind a connection pooler the search_path of the role must name it`;
