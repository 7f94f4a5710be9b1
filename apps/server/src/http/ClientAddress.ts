/**
 * The addresses of clients, even behind proxies.
 */
import { Option } from "effect";
import type { HttpServerRequest } from "effect/http";
import { BlockList, isIP } from "node:net";

/** The address in a text such as `192.0.2.1:443` or `[::1]`, an IPv4-mapped one as IPv4; empty if there is none. */
const toAddress = (text: string): string => {
  const bare = text.trim().replace(/^\[(.*)\](:\d+)?$|^([\d.]+):\d+$/, "$1$3");
  const address = bare.replace(/^::ffff:(?=[\d.]+$)/i, "").replace(/%.*$/, "");
  return isIP(address) === 0 ? "" : address;
};

const familyOf = (address: string) => (isIP(address) === 4 ? "ipv4" : "ipv6");

/** The networks of a list such as `10.0.0.0/8, ::1`; `null` if one is malformed. */
export const parseNetworks = (list: string): BlockList | null => {
  const networks = new BlockList();
  for (const network of list.split(",").filter((text) => text.trim() !== "")) {
    const [, text, length] = /^\s*([^/\s]+)(?:\/(\d+))?\s*$/.exec(network) ?? ["", ""];
    const address = toAddress(text!);
    const bits = isIP(address) === 4 ? 32 : 128;
    // The prefix of an IPv4-mapped network counts the bits of IPv6.
    const mappingBits = bits === 32 && text!.startsWith("::") ? 96 : 0;
    const prefix = length === undefined ? bits : Number(length) - mappingBits;
    if (address === "" || prefix < 0 || prefix > bits) return null;
    networks.addSubnet(address, prefix, familyOf(address));
  }
  return networks;
};

type Message = Pick<HttpServerRequest.HttpServerRequest, "headers" | "remoteAddress">;

/**
 * How many addresses a listener remembers. Checking one against a `BlockList` costs as much as the rest of a request.
 */
const capacity = 1_000;

/**
 * A function from a request to the address of its client: that of the connection or, if one of the proxies opened it,
 * the last address in `X-Forwarded-For` that is not a proxy's. A proxy vouches only for the address before its own: a
 * client can send a header with any addresses.
 */
export const clientAddressBehind = (proxies: BlockList) => {
  const hops = new Map<string, { readonly address: string; readonly isProxy: boolean }>();
  const toHop = (text: string) => {
    const knownHop = hops.get(text);
    if (knownHop !== undefined) return knownHop;
    const address = toAddress(text);
    const isProxy = address !== "" && proxies.check(address, familyOf(address));
    if (hops.size === capacity) hops.clear();
    hops.set(text, { address, isProxy });
    return { address, isProxy };
  };
  return ({ headers, remoteAddress }: Message): string | undefined => {
    let { address, isProxy } = toHop(Option.getOrElse(remoteAddress, () => ""));
    if (!isProxy) return address || undefined;
    const addresses = (headers["x-forwarded-for"] ?? "").split(",");
    while (isProxy) {
      const hop = toHop(addresses.pop() ?? "");
      if (hop.address === "") break;
      ({ address, isProxy } = hop);
    }
    return address;
  };
};
