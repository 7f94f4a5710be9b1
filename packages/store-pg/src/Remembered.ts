/**
 * Values that are remembered for owners, at most so many in all. For one too many the owner who has most (of several the
 * one idle for longest) forgets what it used least recently.
 */
export interface Remembered<in out Owner, in out Value> {
  readonly get: (owner: Owner, key: string) => Value | undefined;
  readonly set: (owner: Owner, key: string, value: Value) => void;
  readonly delete: (owner: Owner, key: string) => void;
}

export const makeRemembered = <Owner, Value>(most: number): Remembered<Owner, Value> => {
  // What was wanted least recently comes first in each.
  const owners = new Map<Owner, Map<string, Value>>();
  let all = 0;

  const take = (owner: Owner, key: string) => {
    const values = owners.get(owner);
    const value = values?.get(key);
    if (values?.delete(key) === true) all--;
    if (values?.size === 0) owners.delete(owner);
    return value;
  };

  const put = (owner: Owner, key: string, value: Value) => {
    const values = owners.get(owner) ?? new Map();
    owners.delete(owner);
    owners.set(owner, values.set(key, value));
    all++;
  };

  const forgetOne = () => {
    let [largest] = owners;
    for (const one of owners) if (one[1].size > largest![1].size) largest = one;
    const [owner, values] = largest!;
    const [key] = values.keys();
    take(owner, key!);
  };

  return {
    get: (owner, key) => {
      const value = take(owner, key);
      if (value !== undefined) put(owner, key, value);
      return value;
    },
    set: (owner, key, value) => {
      take(owner, key);
      put(owner, key, value);
      if (all > most) forgetOne();
    },
    delete: take,
  };
};
