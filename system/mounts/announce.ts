/** Prints the server's address for the test. */
export const announce = (address: unknown): void => {
  console.log(`http://127.0.0.1:${(address as { readonly port: number }).port}`);
};
