import { makeWebHandler } from "@parley/http";
import { makeDocumentation } from "@parley/pages/docs";
import { makePlayground } from "@parley/pages/playground";
import { makeWidgetPages } from "@parley/pages/widget";
import { services } from "./production.ts";

export const { handler } = makeWebHandler(services, {
  pages: [makeDocumentation(), makePlayground()],
  widget: makeWidgetPages(),
});
