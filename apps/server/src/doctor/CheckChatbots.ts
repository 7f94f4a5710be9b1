/**
 * Whether the settings of the chatbots and those of the server fit together.
 */
import { ChatbotRegistry, keyState, type RegisteredChatbot } from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Clock, Effect, Path } from "effect";
import { databaseOptions } from "../Database.ts";
import { Settings } from "../Settings.ts";
import { checkFolder } from "./CheckFiles.ts";
import { checkModel } from "./CheckModels.ts";
import { failed, ok, warning, type Finding } from "./Finding.ts";

/** To be run over a database that was found to be in order. */
export const checkChatbots = Effect.gen(function* () {
  const options = yield* databaseOptions;
  const all = yield* ChatbotRegistry.use(({ list }) => list).pipe(
    Effect.provide(layerPostgres(options)),
  );
  if (all.length === 0) {
    return [ok("chatbots", "There are none yet; the first start makes one.")];
  }
  const findings = yield* Effect.forEach(all, checkChatbot);
  const models = yield* checkModelsOf(all);
  const wrong = [...findings.flat(), ...models];
  return [ok("chatbots", all.length === 1 ? "There is 1." : `There are ${all.length}.`), ...wrong];
}).pipe(
  Effect.scoped,
  Effect.catchCause(() =>
    Effect.succeed([
      failed(
        "chatbots",
        "They cannot be read.",
        "Run a command such as parley chatbot list to see why.",
      ),
    ]),
  ),
);

const checkChatbot = Effect.fnUntraced(function* ({ chatbot, keys }: RegisteredChatbot) {
  const { knowledgeRoot, llms, moderation } = yield* Settings;
  const path = yield* Path.Path;
  const now = yield* Clock.currentTimeMillis;
  const { id, name, settings } = chatbot;
  const called = `${id} "${name}"`;
  const set = `parley chatbot set --chatbot ${id}`;
  const findings: Array<Finding> = [];
  if (!keys.some((key) => keyState(key, now) === "live")) {
    findings.push(
      warning(
        "chatbots",
        `No live key opens ${called}.`,
        `"parley key create --chatbot ${id}" makes one.`,
      ),
    );
  }
  if (settings.moderation === "endpoint" && moderation.endpoint === null) {
    findings.push(
      failed(
        "chatbots",
        `The questions of ${called} are for the moderation endpoint, but none is set.`,
        `Set PARLEY_MODERATION_BASE_URL, or run "${set} --unset moderation".`,
      ),
    );
  }
  if (settings.model !== null && llms.length === 0) {
    findings.push(
      warning(
        "chatbots",
        `The model of ${called} is not asked: no endpoint is set.`,
        `Set PARLEY_LLM_BASE_URL, or run "${set} --unset model".`,
      ),
    );
  }
  if (settings.knowledge !== null) {
    const unset = `or run "${set} --unset knowledge"`;
    if (knowledgeRoot === null) {
      findings.push(
        failed(
          "chatbots",
          `The documents of ${called} are in the folder "${settings.knowledge}" of nowhere.`,
          `Set PARLEY_KNOWLEDGE_ROOT, ${unset}.`,
        ),
      );
    } else {
      const folder = path.join(knowledgeRoot, settings.knowledge);
      const found = yield* checkFolder(folder, `Put them there, ${unset}.`);
      if (found.status !== "ok") findings.push(found);
    }
  }
  return findings;
});

/** Each model that chatbots name, once; the server's own are checked without them. */
const checkModelsOf = Effect.fnUntraced(function* (all: ReadonlyArray<RegisteredChatbot>) {
  const [first] = (yield* Settings).llms;
  if (first === undefined) return [];
  const names = new Set(all.map(({ chatbot }) => chatbot.settings.model ?? first.model));
  names.delete(first.model);
  return yield* Effect.forEach(names, (model) => checkModel({ ...first, model }), {
    concurrency: 4,
  });
});
