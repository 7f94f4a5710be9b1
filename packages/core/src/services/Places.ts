/**
 * Shares a number of places among keys, and a key's places among its visitors, so that no key and no visitor can take
 * all of them.
 */

import { Context } from "effect";

/** The id of the API key for which a list is read, if there is one, so that a store can read long lists in turn by key. */
export const CurrentKey = Context.Reference<string | null>("@parley/core/CurrentKey", {
  defaultValue: () => null,
});

/** Who takes a place: a key, one of its visitors or, without a key, the process itself. */
export interface Client {
  readonly apiKeyId?: string | null;
  readonly visitor?: string | null;
}

/** The part of the places left by the other keys that a key may have; likewise for a visitor among those of its key. */
const share = 7 / 8;

export interface Places {
  /** Whether the client must wait or be refused. A key may have at most `most` places. */
  readonly isFull: (client: Client, most?: number) => boolean;
  /** Takes a place, even if there is none left, and returns the function that frees it. */
  readonly take: (client: Client) => () => void;
}

export const makePlaces = (limit: number): Places => {
  const counts = new Map<string, number>();
  const countOf = (name: string) => counts.get(name) ?? 0;
  const change = (name: string, by: number): void => {
    const count = countOf(name) + by;
    if (count > 0) counts.set(name, count);
    else counts.delete(name);
  };
  /** The groups that a client belongs to, from all clients down to itself. */
  const groupsOf = ({ apiKeyId, visitor }: Client) => [
    "",
    ...(apiKeyId == null ? [] : [apiKeyId]),
    ...(apiKeyId == null || visitor == null ? [] : [`${apiKeyId}/${visitor}`]),
  ];
  return {
    isFull: (client, most = Infinity) => {
      let [places, taken] = [limit, countOf("")];
      if (taken >= places) return true;
      for (const group of groupsOf(client).slice(1)) {
        const own = countOf(group);
        places = Math.min(Math.ceil(share * (places - (taken - own))), most);
        taken = own;
        if (taken >= places) return true;
      }
      return false;
    },
    take: (client) => {
      const groups = groupsOf(client);
      for (const group of groups) change(group, 1);
      return () => {
        for (const group of groups.splice(0)) change(group, -1);
      };
    },
  };
};
