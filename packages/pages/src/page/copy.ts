/**
 * Copies a string to the clipboard. `navigator.clipboard` exists only on pages served over TLS or from this machine,
 * and the page around a frame may forbid its use.
 */
export const copy = async (text: string): Promise<void> => {
  try {
    return await navigator.clipboard.writeText(text);
  } catch {
    const focus = document.activeElement as HTMLElement | null;
    const field = document.createElement("textarea");
    field.value = text;
    // The rest of the document is inert while a dialog is open.
    (document.querySelector("dialog[open]") ?? document.body).append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    focus?.focus();
  }
};
