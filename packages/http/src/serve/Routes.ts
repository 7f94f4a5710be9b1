/**
 * Which endpoint a request's method and path mean. Every other combination, HEAD and OPTIONS
 * included, is no endpoint at all.
 */
import { makeApi, type BasePaths } from "../contract/Api.ts";

/** The path in a request's target, as received; a target may also be a whole address. */
export const pathOf = (target: string): string => {
  const query = target.indexOf("?");
  const path = query === -1 ? target : target.slice(0, query);
  return path.startsWith("/") ? path : path.replace(/^https?:\/\/[^/]*/i, "") || "/";
};

export interface Route {
  /** The endpoint's identifier in the declaration. */
  readonly endpoint: string;
  /** The path's parameter, as received. */
  readonly parameter: string;
}

/** Finds the endpoint of a request; `undefined` for none. */
export const makeRoutes = (paths: BasePaths) => {
  const exact = new Map<string, string>();
  const withParameter: Array<{
    readonly method: string;
    readonly before: string;
    readonly after: string;
    readonly endpoint: string;
  }> = [];
  for (const group of Object.values(makeApi(paths).groups)) {
    for (const { identifier: endpoint, method, path } of Object.values(group.endpoints)) {
      const [before, after] = path.split(/:[^/]+/);
      if (after === undefined) exact.set(`${method} ${path}`, endpoint);
      else withParameter.push({ method, before: before!, after, endpoint });
    }
  }
  // The answers interface has one address with two spellings.
  exact.set(`POST ${paths.answers}/`, exact.get(`POST ${paths.answers}`)!);

  return (method: string, path: string): Route | undefined => {
    const endpoint = exact.get(`${method} ${path}`);
    if (endpoint !== undefined) return { endpoint, parameter: "" };
    for (const { after, before, endpoint, method: wanted } of withParameter) {
      if (method !== wanted || !path.startsWith(before) || !path.endsWith(after)) continue;
      const parameter = path.slice(before.length, path.length - after.length);
      if (parameter !== "" && !parameter.includes("/")) return { endpoint, parameter };
    }
    return undefined;
  };
};

/** Whether the path belongs to the interface at `base`, so that a key is asked for first. */
export const isBelow = (base: string, path: string): boolean =>
  path.startsWith(base) && (path.length === base.length || path[base.length] === "/");
