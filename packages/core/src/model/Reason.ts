/**
 * Why something failed, in words for an operator.
 */

/** What the innermost cause says, on one line; of several failed attempts, what each says. */
export const reasonOf = (error: unknown): string => {
  let inner = error;
  while (inner instanceof Error && inner.cause instanceof Error) inner = inner.cause;
  return said(inner).replace(/\s+/g, " ");
};

const said = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error);
  // A name with several addresses, none of which can be reached, fails without a word of its own.
  if (error.message === "" && error instanceof AggregateError && error.errors.length > 0)
    return [...new Set(error.errors.map(reasonOf))].join("; ");
  return error.message || error.name;
};
