let highlight: Promise<typeof import("./highlight.ts")> | undefined;

/** Colours the code in an element, if the colours load. Returns a function that removes them again. */
export const color = (element: Element, language: string): (() => void) => {
  if (language === "text") return () => undefined;
  highlight ??= import("./highlight.ts");
  const removal = highlight.then(({ paint }) => paint(element, language)).catch(() => undefined);
  return () => void removal.then((remove) => remove?.());
};
