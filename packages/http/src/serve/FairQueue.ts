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
          this.#moveClientBack({ apiKeyId, visitor }, line, items);
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
    this.#moveClientBack(client, line, items);
  }

  #moveClientBack({ apiKeyId, visitor }: Client, line: Line<Item>, items: Array<Item>): void {
    moveBack(line, visitor, items, items.length);
    moveBack(this.#lines, apiKeyId, line, line.size);
  }
}

/** Makes an entry the last one of its map, or deletes it if its value has no items: `size` is 0. */
const moveBack = <Key, Value>(map: Map<Key, Value>, key: Key, value: Value, size: number): void => {
  // The only entry is the last one already. V8 rebuilds a map after a few deletions.
  if (map.size === 1 && size > 0) return;
  map.delete(key);
  if (size > 0) map.set(key, value);
};
