/**
 * The addresses of clients, also behind proxies.
 */
import { Option } from "effect";
import type { HttpServerRequest } from "effect/http";
import { BlockList, isIP } from "node:net";

/** The address in a text such as `192.0.2.1:443` or `[::1]`, an IPv4-mapped one as IPv4; `null` if there is none. */
const toAddress = (text: string): string | null => {
  const address = text
    .trim()
    .replace(/^\[(.*)\](:\d+)?$/, "$1")
    .replace(/^([\d.]+):\d+$/, "$1")
    .replace(/^::ffff:(?=[\d.]+$)/i, "")
    .replace(/%.*$/, "");
  return isIP(address) === 0 ? null : address;
};

const familyOf = (address: string) => (isIP(address) === 4 ? "ipv4" : "ipv6");

/** The networks of a list such as `10.0.0.0/8, ::1`; `null` if one is malformed. */
export const parseNetworks = (list: string): BlockList | null => {
  const networks = new BlockList();
  for (const network of list.split(",").filter((text) => text.trim() !== "")) {
    const [text, length, ...more] = network.trim().split("/");
    const address = toAddress(text!);
    if (address === null || more.length > 0 || !/^\d{1,3}$/.test(length ?? "0")) return null;
    const bits = isIP(address) === 4 ? 32 : 128;
    // The prefix of an IPv4-mapped network counts the bits of IPv6.
    const isMapped = bits === 32 && text!.startsWith("::");
    const prefix = length === undefined ? bits : Number(length) - (isMapped ? 96 : 0);
    if (prefix < 0 || prefix > bits) return null;
    networks.addSubnet(address, prefix, familyOf(address));
  }
  return networks;
};

/**
 * A function from a request to the address of its client: the last in `X-Forwarded-For` that is not one of the proxies.
 * A proxy vouches only for the address before its own, and a client can send any.
 */
export const clientAddressBehind =
  (proxies: BlockList) =>
  ({
    headers,
    remoteAddress,
  }: Pick<HttpServerRequest.HttpServerRequest, "remoteAddress"> & {
    readonly headers: Readonly<Record<string, string | undefined>>;
  }): string | undefined => {
    let address = toAddress(Option.getOrElse(remoteAddress, () => ""));
    const hops = (headers["x-forwarded-for"] ?? "").split(",");
    while (address !== null && proxies.check(address, familyOf(address))) {
      const hop = toAddress(hops.pop() ?? "");
      if (hop === null) break;
      address = hop;
    }
    return address ?? undefined;
  };
