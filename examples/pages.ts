import { makeWebHandler } from "@parley/http";
import { makeDocumentation } from "@parley/pages/docs";
import { makePlayground } from "@parley/pages/playground";
import { services } from "./production.ts";

export const { handler } = makeWebHandler(services, {
  pages: [makeDocumentation(), makePlayground()],
});
