/** Stands in for Next.js: calls the route's handlers with its own kind of request, and with the route's parameters. */
import { serve } from "@hono/node-server";
import { DELETE, GET, PATCH, POST } from "./next-route.ts";
import { announce } from "./service.ts";

class NextRequest extends Request {
  get nextUrl(): URL {
    return new URL(this.url);
  }
}
const fetch = (request: Request) => {
  const method = { DELETE, GET, PATCH, POST }[request.method];
  const path = new URL(request.url).pathname.split("/").slice(2);
  return method === undefined
    ? new Response(null, { status: 405 })
    : method(new NextRequest(request.url, request), { params: Promise.resolve({ path }) });
};

serve({ fetch, hostname: "127.0.0.1", port: 0 }, announce);
