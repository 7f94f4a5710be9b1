/** Returns the browser's storage of this name, or one in memory if the browser blocks it, as some do in frames. */
export const storageOf = (name: "sessionStorage" | "localStorage") => {
  try {
    return window[name];
  } catch {
    const texts = new Map<string, string>();
    return {
      getItem: (key: string) => texts.get(key) ?? null,
      setItem: (key: string, text: string) => void texts.set(key, text),
      removeItem: (key: string) => void texts.delete(key),
      clear: () => texts.clear(),
    };
  }
};
