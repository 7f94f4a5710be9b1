/** Throws unless the options are an object with no other names: a misspelt option would otherwise be ignored. */
export const refuseUnknown = (
  call: string,
  options: object,
  names: ReadonlyArray<string>,
): void => {
  const unknown = Object.keys(options).find((name) => !names.includes(name));
  if (unknown === undefined) return;
  throw new TypeError(
    `${call}: ${unknown} is unknown; ${call} has the options ${names.join(", ")}.`,
  );
};
