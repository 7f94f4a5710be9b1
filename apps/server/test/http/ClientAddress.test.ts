import { assert, it } from "@effect/vitest";
import { Option } from "effect";
import { Headers } from "effect/http";
import { clientAddressBehind, parseNetworks } from "../../src/http/ClientAddress.ts";

const addressOf = (proxies: string, remote: string | undefined, forwarded?: string) =>
  clientAddressBehind(parseNetworks(proxies)!)({
    remoteAddress: Option.fromUndefinedOr(remote),
    headers: Headers.fromInput(forwarded === undefined ? {} : { "x-forwarded-for": forwarded }),
  });

for (const [proxies, remote, forwarded, address] of [
  ["", "192.0.2.1", "203.0.113.7", "192.0.2.1"],
  ["10.0.0.0/8", "10.1.2.3", "203.0.113.7", "203.0.113.7"],
  ["10.0.0.0/8", "192.0.2.1", "203.0.113.7", "192.0.2.1"],
  // The list begins with the addresses that the client itself sent.
  ["10.0.0.0/8", "10.1.2.3", "198.51.100.1, 203.0.113.7, 10.9.9.9", "203.0.113.7"],
  ["10.0.0.0/8, 203.0.113.7", "10.1.2.3", "198.51.100.1,203.0.113.7", "198.51.100.1"],
  ["10.0.0.0/8", "10.1.2.3", "10.0.0.1, 10.0.0.2", "10.0.0.1"],
  ["10.0.0.0/8", "10.1.2.3", undefined, "10.1.2.3"],
  ["10.0.0.77/8", "::ffff:10.1.2.3", "203.0.113.7:61234", "203.0.113.7"],
  ["::ffff:10.0.0.0/104", "10.1.2.3", "::ffff:203.0.113.7", "203.0.113.7"],
  ["::FFFF:10.1.2.3", "10.1.2.3", "203.0.113.7", "203.0.113.7"],
  ["10.0.0.0/8", "::ffff:a01:203", "203.0.113.7", "203.0.113.7"],
  ["fd00::/8, ::1", "fd12::3", "[2001:db8::9]:443", "2001:db8::9"],
  ["fe80::/10", "fe80::1%eth0", "2001:db8::9", "2001:db8::9"],
  ["0.0.0.0/0, ::/0", "10.1.2.3", "203.0.113.7", "203.0.113.7"],
  ["10.0.0.0/8", "10.1.2.3", "203.0.113.7, unknown", "10.1.2.3"],
  ["10.0.0.0/8", "10.1.2.3", '203.0.113.7 level=ERROR "\u001b[2J', "10.1.2.3"],
  ["10.0.0.0/8", "10.1.2.3", "", "10.1.2.3"],
  ["10.0.0.0/8", undefined, "203.0.113.7", undefined],
] as const) {
  it(`a client's address is ${address} for ${remote} and "${forwarded}" behind "${proxies}"`, () => {
    assert.strictEqual(addressOf(proxies, remote, forwarded), address);
  });
}

it("a list of proxies with an entry that is not a network is rejected", () => {
  for (const wrong of [
    "10.0.0.0/33",
    "10.0.0",
    "fd00::/129",
    "proxy.example",
    "10.0.0.0/",
    "10.0.0.0/8/8",
    "10.0.0.0/-1",
    "10.0.0.0/x",
  ]) {
    assert.isNull(parseNetworks(wrong), wrong);
  }
});
