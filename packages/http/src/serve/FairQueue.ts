import type { Client } from "@parley/core/ports";

type Line<Item> = Map<string | null | undefined, Array<Item>>;

/** A queue that serves the keys in turn, and each key's visitors in turn, however many items each of them has in it. */
export class FairQueue<Item> {
  /** The key at the front is served next, and in its line the visitor at the front. None of them has no items. */
  readonly #lines = new Map<Client["apiKeyId"], Line<Item>>();

  /** The number of keys with items in the queue. */
  get keys(): number {
    return this.#lines.size;
  }

  push({ apiKeyId, visitor }: Client, item: Item): void {
    const line: Line<Item> = this.#lines.get(apiKeyId) ?? new Map();
    const items = line.get(visitor) ?? [];
    items.push(item);
    this.#lines.set(apiKeyId, line.set(visitor, items));
  }

  /** Takes the next item of a client that is ready. Returns `undefined` if there is none. */
  shift(isReady: (client: Client) => boolean = () => true): Item | undefined {
    for (const [apiKeyId, line] of this.#lines)
      for (const [visitor, items] of line)
        if (isReady({ apiKeyId, visitor })) {
          const item = items.shift();
          this.#moveBack({ apiKeyId, visitor }, line, items);
          return item;
        }
    return undefined;
  }

  /** Removes an item, if it is in the queue. Its client is then the last to be served. */
  remove(client: Client, item: Item): void {
    const line = this.#lines.get(client.apiKeyId);
    const items = line?.get(client.visitor) ?? [];
    const index = items.indexOf(item);
    if (line === undefined || index < 0) return;
    items.splice(index, 1);
    this.#moveBack(client, line, items);
  }

  #moveBack({ apiKeyId, visitor }: Client, line: Line<Item>, items: Array<Item>): void {
    moveBack(line, visitor, items, items.length);
    moveBack(this.#lines, apiKeyId, line, line.size);
  }
}

/** Makes an entry the last one of its map, or deletes it if it is empty. */
const moveBack = <Key, Value>(map: Map<Key, Value>, key: Key, value: Value, size: number): void => {
  // A map that only ever loses and gains the same entry would be rebuilt again and again.
  if (map.size === 1 && size > 0) return;
  map.delete(key);
  if (size > 0) map.set(key, value);
};
