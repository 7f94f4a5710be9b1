/**
 * The routes of both interfaces. Every other method and path, HEAD and OPTIONS included, is no endpoint.
 */
import { makeApi, type BasePaths } from "../contract/Api.ts";

/** The path in a request's target, as received. */
export const toPath = (target: string): string => target.split("?", 1)[0]!;

/**
 * A function from a request's method and path to its endpoint's identifier, the template of the path, and its parameter
 * as received (empty where the path has none).
 */
export const makeRouter = (paths: BasePaths) => {
  const routes = Object.values(makeApi(paths).groups)
    .flatMap((group) => Object.values(group.endpoints))
    .flatMap(({ identifier: endpoint, method, path }) =>
      // The answers interface has one address with two spellings.
      (endpoint === "ask" ? [path, `${path}/`] : [path]).map((spelling: string) => {
        const segments = spelling.split("/");
        const parameterAt = segments.findIndex((segment) => segment.startsWith(":"));
        return { endpoint, template: path, method, segments, parameterAt };
      }),
    );

  return (method: string, path: string) => {
    const segments = path.split("/");
    for (const route of routes) {
      if (route.method !== method || route.segments.length !== segments.length) continue;
      const isMatch = route.segments.every((one, at) =>
        at === route.parameterAt ? segments[at] !== "" : segments[at] === one,
      );
      if (isMatch) {
        const { endpoint, parameterAt, template } = route;
        return { endpoint, template, parameter: segments[parameterAt] ?? "" };
      }
    }
    return undefined;
  };
};

/** Whether the path belongs to the interface at `base`, so that the key is checked first. */
export const isBelow = (base: string, path: string): boolean =>
  path.startsWith(base) && (path.length === base.length || path[base.length] === "/");
