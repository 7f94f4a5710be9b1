/**
 * Random sequences of writes against two instances of a registry and against plain arrays: whoever writes, also at
 * the same time or until it is interrupted, what is there is what one after the other would have made.
 */
import { Effect, Exit, Fiber } from "effect";
import { ChatbotDirectory } from "../ChatbotDirectory.ts";
import { ChatbotRegistry, type AuditRecord, type RegisteredKey } from "../ChatbotRegistry.ts";
import { alike } from "./Alike.ts";
import { check, same, type Check } from "./Check.ts";
import { pass } from "./Fixtures.ts";
import { agrees, type ModelCheckOptions } from "./ModelChecks.ts";
import { callOf, perform, type Call } from "./RegistryCall.ts";
import { keyIds, RegistryCommand } from "./RegistryCommand.ts";
import { byId } from "./RegistryFixtures.ts";
import { write, type RegistryModel } from "./RegistryModel.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

let sequences = 0;

/** What is known of a sequence's chatbots, of which the names of workspaces, keys and actors begin alike. */
interface State {
  readonly prefix: string;
  model: RegistryModel;
  /** How many commands there were. */
  step: number;
  /** The latest time that was read, in milliseconds. */
  latest: number;
  /** What was the latest time when a key was used. */
  readonly usedAfter: Map<string, number>;
  /** When keys were made and revoked, as it was read first. */
  readonly times: Map<string, Date>;
}

/** The id of the chatbot that was made, if one was. */
const idOf = (outcome: unknown) => (outcome as { readonly id?: number } | undefined)?.id ?? 0;

/** What is there after the writes one after the other, if what came of them can come of that. */
const after = (
  { model, step }: State,
  writes: ReadonlyArray<{ readonly call: Call; readonly actor: string; readonly outcome: unknown }>,
) => {
  let so = { model, expected: [] as ReadonlyArray<unknown>, fits: true };
  for (const { actor, call, outcome } of writes) {
    const { model, outcomes } = write(so.model, call, { actor, id: idOf(outcome), step });
    const agreed = outcomes.findIndex((one) => alike(one, outcome));
    const expected = [...so.expected, outcomes[Math.max(0, agreed)]];
    so = { model, expected, fits: so.fits && agreed >= 0 };
  }
  return so;
};

/** Whether two lines are of two writes at the same time, either of which may be the first. */
const haveMet = (a: AuditRecord, b: AuditRecord) =>
  a.actor !== b.actor && a.actor.slice(0, -1) === b.actor.slice(0, -1);

/** Reads all that is there, which must be one of the `candidates`. */
const look = Effect.fnUntraced(function* (
  state: State,
  registry: ChatbotRegistry["Service"],
  candidates: ReadonlyArray<RegistryModel>,
  limit: number,
) {
  const directory = yield* ChatbotDirectory;
  const [listed, lines, newest] = yield* Effect.all(
    [registry.list, registry.audit(2 ** 31 - 1), registry.audit(limit)],
    { concurrency: "unbounded" },
  );
  yield* same("the newest lines", newest, lines.slice(0, limit));
  const ids = listed.map(({ chatbot }) => chatbot.id);
  yield* same(
    "the order of the chatbots",
    ids,
    ids.toSorted((a, b) => a - b),
  );
  const ours = listed.filter(({ chatbot }) => chatbot.workspaceName.startsWith(state.prefix));
  const noted = lines.filter(({ actor }) => actor.startsWith(state.prefix)).toReversed();
  const opened = yield* Effect.forEach(
    keyIds,
    (suffix) => {
      const id = state.prefix + suffix;
      return Effect.map(directory.open(id), (opens) => [id, opens] as const);
    },
    { concurrency: "unbounded" },
  );
  const actual = {
    chatbots: ours.map(({ chatbot, keys }) => ({
      chatbot,
      keys: keys
        .map(({ createdAt: _, lastUsedAt, revokedAt, ...key }) => ({
          ...key,
          isRevoked: revokedAt !== null,
          isUsed: lastUsedAt !== null,
        }))
        .toSorted(byId),
    })),
    notes: Object.fromEntries(
      noted.map(({ chatbot }): [number, ReadonlyArray<string>] => [
        chatbot,
        noted
          .filter((line) => line.chatbot === chatbot)
          .map(({ action, actor, detail }) => `${actor} ${action} ${detail}`),
      ]),
    ),
    opened: Object.fromEntries(opened),
  };
  const isUsedNow = new Map(
    actual.chatbots.flatMap(({ keys }) => keys.map(({ id, isUsed }) => [id, isUsed] as const)),
  );
  const expectedOf = (model: RegistryModel): typeof actual => ({
    chatbots: model
      .map(({ chatbot, keys }) => ({
        chatbot,
        keys: keys
          .map(({ step: _, ...key }) => ({
            ...key,
            isUsed: key.isUsed ?? isUsedNow.get(key.id) ?? false,
          }))
          .toSorted(byId),
      }))
      .toSorted((a, b) => a.chatbot.id - b.chatbot.id),
    notes: Object.fromEntries(model.map(({ chatbot, notes }) => [chatbot.id, notes])),
    opened: Object.fromEntries(
      opened.map(([id]) => {
        const of = model.find(({ keys }) => keys.some((key) => key.id === id));
        const key = of?.keys.find((one) => one.id === id);
        if (key === undefined || key.isRevoked) return [id, null];
        const { expiresAt, hash, scopes } = key;
        return [id, { hash, scopes, expiresAt, chatbot: of!.chatbot }];
      }),
    ),
  });
  const agreeing = candidates.find((model) => alike(actual, expectedOf(model)));
  yield* same("what is there", actual, expectedOf(agreeing ?? candidates[0]!));
  state.model = agreeing!;
  for (const [n, line] of noted.entries()) {
    const early = noted
      .slice(0, n)
      .find((before) => before.time > line.time && !haveMet(before, line));
    yield* same("a line that is later than the next", early, undefined);
  }
  for (const { keys } of ours) yield* timesOf(state, keys);
  const made = new Map(ours.flatMap(({ keys }) => keys.map((key) => [key.id, key.createdAt])));
  for (const { action, detail, time } of noted) {
    if (action !== "add-key") continue;
    const apart = Math.abs(time.getTime() - made.get(detail)!.getTime());
    yield* same("whether a key's line is of the minute when it was made", apart < 60_000, true);
  }
  state.latest = Math.max(state.latest, ...noted.map(({ time }) => time.getTime()));
});

/** When the keys of a chatbot were made, revoked and used. */
const timesOf = Effect.fnUntraced(function* (state: State, keys: ReadonlyArray<RegisteredKey>) {
  const model = new Map(
    state.model.flatMap(({ keys }) => keys.map((key) => [key.id, key] as const)),
  );
  const made = keys.map(({ createdAt, id }) => ({ time: createdAt.getTime(), ...model.get(id)! }));
  yield* same(
    "the order of the keys",
    made.map(({ id }) => id),
    made.toSorted((a, b) => a.time - b.time).map(({ id }) => id),
  );
  const bySteps = made.toSorted((a, b) => a.step - b.step || a.time - b.time);
  yield* same(
    "which keys are older",
    bySteps.map(({ id }) => id),
    bySteps.toSorted((a, b) => a.time - b.time).map(({ id }) => id),
  );
  for (const { createdAt, id, lastUsedAt, revokedAt } of keys) {
    for (const [what, time] of Object.entries({ createdAt, revokedAt })) {
      if (time === null) continue;
      const name = `${what} of ${id}`;
      yield* same(name, time, state.times.get(name) ?? time);
      state.times.set(name, time);
    }
    const usedAfter = state.usedAfter.get(id);
    if (usedAfter === undefined || lastUsedAt === null || revokedAt !== null) continue;
    const isLate = lastUsedAt.getTime() > usedAfter - 60_000;
    yield* same(`whether the last use of ${id} is noted to the minute`, isLate, true);
  }
});

/** What every sequence begins with: two chatbots of a workspace and one of another, with a key each. */
const prelude = (
  [
    ["", "a"],
    ["", "b"],
    ["b", "a"],
  ] as const
).map(([workspace, name], n): RegistryCommand => ({
  _tag: "Alone",
  second: false,
  write: {
    _tag: "Create",
    workspace,
    name,
    description: "",
    settings: {},
    keys: [{ id: keyIds[n]!, name: null, scopes: "read,ask", expiresAt: null }],
  },
}));

/** Runs the commands over chatbots of their own, and fails where the registry and plain arrays disagree. */
const followsRegistry = Effect.fnUntraced(function* (commands: ReadonlyArray<RegistryCommand>) {
  const first = yield* ChatbotRegistry;
  const { second } = yield* StoreUnderTest;
  const state: State = {
    prefix: `Sequence ${Date.now()} ${++sequences} `,
    model: [],
    step: 0,
    latest: 0,
    usedAfter: new Map(),
    times: new Map(),
  };
  const use = (call: Call) => {
    if (call._tag !== "Use") return;
    for (const id of call.keyIds) state.usedAfter.set(id, state.latest);
  };
  let reader = first;
  for (const command of [...prelude, ...commands]) {
    state.step++;
    if (command._tag === "Pass") {
      yield* pass(command.millis);
      continue;
    }
    if (command._tag === "Look") {
      yield* look(state, reader, [state.model], command.limit + 1);
      continue;
    }
    const [mine, other] = command.second ? [second.registry, first] : [first, second.registry];
    reader = other;
    const actor = `${state.prefix}${command.second}`;
    switch (command._tag) {
      case "Alone": {
        const call = callOf(state, command.write);
        const outcome = yield* perform(mine, call, actor);
        const { expected, model } = after(state, [{ call, actor, outcome }]);
        yield* same("what came of it", outcome, expected[0]);
        state.model = model;
        use(call);
        break;
      }
      case "Together": {
        const calls = command.writes.map((one) => callOf(state, one));
        const writes = yield* Effect.forEach(
          calls,
          (call, n) => {
            const by = `${actor} ${state.step} ${n}`;
            return Effect.map(perform(n === 0 ? mine : other, call, by), (outcome) => ({
              call,
              actor: by,
              outcome,
            }));
          },
          { concurrency: 2 },
        );
        const orders = [after(state, writes), after(state, writes.toReversed())];
        const fitting = orders.filter(({ fits }) => fits);
        const outcomes = writes.map(({ outcome }) => outcome);
        if (fitting.length === 0) yield* same("what came of both", outcomes, orders[0]!.expected);
        calls.forEach(use);
        yield* look(
          state,
          reader,
          fitting.map(({ model }) => model),
          1,
        );
        break;
      }
      case "Interrupted": {
        const call = callOf(state, command.write);
        const fiber = yield* Effect.forkChild(perform(mine, call, actor));
        for (let step = 0; step < command.after; step++) yield* Effect.yieldNow;
        yield* Fiber.interrupt(fiber);
        const exit = yield* Fiber.await(fiber);
        const outcome = Exit.isSuccess(exit) ? exit.value : yield* madeBy(call);
        const { expected, model } = after(state, [{ call, actor, outcome }]);
        if (Exit.isSuccess(exit)) yield* same("what came of it", outcome, expected[0]);
        yield* look(state, reader, Exit.isSuccess(exit) ? [model] : [state.model, model], 1);
        break;
      }
    }
  }
  yield* look(state, reader, [state.model], 1);
});

/** The chatbot that a creation made before it was interrupted, if it did. */
const madeBy = (call: Call) =>
  ChatbotRegistry.use((registry) =>
    Effect.map(registry.list, (all) => {
      if (call._tag !== "Create") return undefined;
      const { name, workspaceName } = call.chatbot;
      return all.find(
        ({ chatbot }) => chatbot.workspaceName === workspaceName && chatbot.name === name,
      )?.chatbot;
    }),
  );

/** The registry agrees with plain arrays over random sequences of commands. */
export const registryModelCheck = (
  options: ModelCheckOptions = {},
): Check<ChatbotRegistry | ChatbotDirectory | StoreUnderTest> =>
  check("the registry agrees with plain arrays over random sequences of commands", () =>
    agrees(RegistryCommand, followsRegistry, { runs: 25, commands: 40, ...options }),
  );
