/**
 * Determines the addresses of clients, even behind proxies.
 */
import { Option } from "effect";
import type { HttpServerRequest } from "effect/http";
import { BlockList, isIP } from "node:net";

/** Parses an address such as `192.0.2.1:443` or `[::1]`; empty if invalid. Converts IPv4-mapped addresses to IPv4. */
const toAddress = (text: string): string => {
  const bare = text.trim().replace(/^\[(.*)\](:\d+)?$|^([\d.]+):\d+$/, "$1$3");
  const address = bare.replace(/^::ffff:(?=[\d.]+$)/i, "").replace(/%.*$/, "");
  return isIP(address) === 0 ? "" : address;
};

const familyOf = (address: string) => (isIP(address) === 4 ? "ipv4" : "ipv6");

/** Parses a list of networks such as `10.0.0.0/8, ::1`; `null` if any network is malformed. */
export const parseNetworks = (list: string): BlockList | null => {
  const networks = new BlockList();
  for (const network of list.split(",").filter((text) => text.trim() !== "")) {
    const [, text, length] = /^\s*([^/\s]+)(?:\/(\d+))?\s*$/.exec(network) ?? ["", ""];
    const address = toAddress(text!);
    const bits = isIP(address) === 4 ? 32 : 128;
    // The prefix length of an IPv4-mapped network includes the 96 bits before the IPv4 address.
    const mappingBits = bits === 32 && text!.startsWith("::") ? 96 : 0;
    const prefix = length === undefined ? bits : Number(length) - mappingBits;
    if (address === "" || prefix < 0 || prefix > bits) return null;
    networks.addSubnet(address, prefix, familyOf(address));
  }
  return networks;
};

type Message = Pick<HttpServerRequest.HttpServerRequest, "headers" | "remoteAddress">;

/**
 * How many addresses a listener caches. Checking an address in a `BlockList` costs as much as the rest of a request.
 */
const capacity = 1_000;

/**
 * Returns a function that finds the client's address for a request: the address of the connection or, if a proxy opened
 * it, the last address in `X-Forwarded-For` that is not a proxy's. A proxy vouches only
 * for the address that it appended: earlier addresses are ignored, because a client can send the header with any.
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
