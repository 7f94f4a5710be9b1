import { Context } from "effect";

/** The id of the API key for which a list is read, if there is one, so that a store can read long lists in turn by key. */
export const CurrentKey = Context.Reference<string | null>("@parley/core/CurrentKey", {
  defaultValue: () => null,
});

/** Who takes a place: a key, one of its visitors or, without a key, the process itself. */
export interface Client {
  readonly apiKeyId?: string | null | undefined;
  readonly visitor?: string | null | undefined;
}

/** The part of the places left by the other keys that a key may have; likewise for a visitor among those of its key. */
const share = 7 / 8;

/** Shares places among keys, and a key's places among its visitors, so that none of them can take all. */
export const makePlaces = (limit: number) => {
  const counts = new Map<string, number>();
  const countOf = (group: string) => counts.get(group) ?? 0;
  /** The groups that a client belongs to: all clients, its key, and itself as a visitor. */
  const groupsOf = ({ apiKeyId, visitor }: Client) =>
    ["", apiKeyId, visitor == null ? null : `${apiKeyId}/${visitor}`].filter(
      (group) => group != null,
    );
  const change = (groups: ReadonlyArray<string>, by: number): void => {
    for (const group of groups) counts.set(group, countOf(group) + by);
    for (const group of groups) if (countOf(group) === 0) counts.delete(group);
  };
  return {
    /** Whether the client must wait or be refused. A key may have at most `most` places. */
    isFull: (client: Client, most = Infinity): boolean => {
      let [places, taken] = [limit, countOf("")];
      for (const group of groupsOf(client).slice(1)) {
        if (taken >= places) return true;
        places = Math.min(Math.ceil(share * (places - (taken - countOf(group)))), most);
        taken = countOf(group);
      }
      return taken >= places;
    },
    /** Takes places, even if there are none left, and returns the function that frees them. */
    take: (client: Client, count = 1): (() => void) => {
      const groups = groupsOf(client);
      change(groups, count);
      return () => change(groups.splice(0), -count);
    },
  };
};
