import { announce, handler } from "./service.ts";

// The part of Deno's types that is used here.
declare const Deno: {
  readonly serve: (
    options: {
      readonly hostname: string;
      readonly port: number;
      readonly onListen: (address: unknown) => void;
    },
    handler: (request: Request, info: { readonly remoteAddr: object }) => Promise<Response>,
  ) => unknown;
};

Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: announce }, handler);
