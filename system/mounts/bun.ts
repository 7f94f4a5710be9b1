import { announce, handler } from "./service.ts";

// The part of Bun's types that is used here.
declare const Bun: {
  readonly serve: (options: {
    readonly hostname: string;
    readonly port: number;
    readonly idleTimeout: number;
    readonly fetch: (request: Request, server: { readonly port: number }) => Promise<Response>;
  }) => object;
};

const server = Bun.serve({ hostname: "127.0.0.1", port: 0, idleTimeout: 60, fetch: handler });

announce(server);
