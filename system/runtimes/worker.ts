/** Runs the kit in a Durable Object, on the memory store and in the object's storage. */
import type { DurableObjectState } from "cloudflare:workers";
import { layerDurable } from "../../examples/worker/DurableRows.ts";
import { report } from "./kit.ts";

export class Kit {
  private readonly storage;
  constructor(context: DurableObjectState) {
    this.storage = context.storage;
  }

  async fetch(): Promise<Response> {
    return new Response(await report(layerDurable(this.storage)));
  }
}

export default {
  fetch: (request: Request, { OBJECTS }: { readonly OBJECTS: any }) =>
    OBJECTS.getByName("kit").fetch(request),
};
