/**
 * The heads of requests that Node accepts: those that the contract does not, and their targets.
 */
import type { GeneralMessage } from "@parley/http";
import type { IncomingMessage } from "node:http";

/** Why a request is refused before the application sees it; `null`: it is not. */
export const checkHead = (request: IncomingMessage): GeneralMessage | null => {
  if (isMalformed(request)) return "MALFORMED_REQUEST";
  const { connection = "", upgrade } = request.headers;
  return upgrade !== undefined && /\bupgrade\b/i.test(connection) ? "METHOD_NOT_SUPPORTED" : null;
};

/** Against RFC 9112, sections 3.2, 6.1 and 6.3. */
const isMalformed = ({ headers, httpVersion, rawHeaders, url }: IncomingMessage): boolean => {
  if (/^https?:\/\/(?:[/?#]|$)/i.test(url!)) return true;
  const coding = headers["transfer-encoding"]?.toLowerCase();
  if (coding !== undefined && (coding !== "chunked" || httpVersion === "1.0")) return true;
  const hosts = rawHeaders.filter(
    (name, at) => name.length === 4 && at % 2 === 0 && name.toLowerCase() === "host",
  );
  return httpVersion === "1.1"
    ? hosts.length !== 1 || !/^[^\s,/?#@\\]*$/.test(headers.host!)
    : hosts.length > 1;
};

const absoluteForm = /^https?:\/\/[^/?#]*/i;

/** The target of a request without its authority, if it has one. */
export const toOriginForm = (target: string): string =>
  absoluteForm.test(target) ? target.replace(absoluteForm, "").replace(/^(?!\/)/, "/") : target;
