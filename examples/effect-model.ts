import { CurrentAsk } from "@parley/core";
import { layerEffectLanguageModel } from "@parley/llm";
import { Effect, Layer, Schema } from "effect";
import { type LanguageModel, Tool, Toolkit } from "effect/ai";

const Orders = Toolkit.make(
  Tool.make("orders", { description: "The asker's open orders", success: Schema.String }),
);

const layerOrders = Orders.toLayer({
  orders: () => Effect.map(CurrentAsk, ({ userRef }) => `Orders of ${userRef}: 4711, in delivery.`),
});

/** Any `LanguageModel` of Effect's answers, with a tool that acts for the asker. */
export const answersOf = <E>(model: Layer.Layer<LanguageModel.LanguageModel, E>) =>
  layerEffectLanguageModel({ toolkit: Orders }).pipe(Layer.provide([model, layerOrders]));
