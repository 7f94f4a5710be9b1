/**
 * The browser's storage. It may be missing, blocked, full or hold anything: none of that stops a page, whose values then
 * last as long as the page.
 */
export const storageOf = (name: "sessionStorage" | "localStorage") => {
  const texts = new Map<string, string>();
  const attempt = <A>(use: (storage: Storage) => A): A | undefined => {
    try {
      return use(globalThis[name]);
    } catch {
      return undefined;
    }
  };
  const getItem = (key: string): string | null =>
    texts.get(key) ?? attempt((storage) => storage.getItem(key)) ?? null;
  const removeItem = (key: string): void => {
    texts.delete(key);
    attempt((storage) => storage.removeItem(key));
  };
  return {
    getItem,
    removeItem,
    /** Returns whether the browser keeps the text. */
    setItem: (key: string, text: string): boolean => {
      // An older text must not come back with the next page.
      removeItem(key);
      attempt((storage) => storage.setItem(key, text));
      const isKept = attempt((storage) => storage.getItem(key)) === text;
      if (!isKept) texts.set(key, text);
      return isKept;
    },
    clear: (): void => {
      texts.clear();
      attempt((storage) => storage.clear());
    },
  };
};

/** Returns the value that was stored as JSON; `undefined` if there is none for which `isValid` holds. */
export const readValue = <A>(
  storage: ReturnType<typeof storageOf>,
  key: string,
  isValid: (value: A) => boolean,
): A | undefined => {
  try {
    const value = JSON.parse(storage.getItem(key) ?? "");
    return isValid(value) ? value : undefined;
  } catch {
    return undefined;
  }
};
