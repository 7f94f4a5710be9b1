/** Copies a text. Pages without TLS have no `navigator.clipboard`, except those from this machine. */
export const copy = async (text: string): Promise<void> => {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  // The rest of the document is inert while a dialog is open.
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
};
