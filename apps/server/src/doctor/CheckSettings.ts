/**
 * Whether the settings can be read: all that is wrong with them, not only the first.
 */
import { Effect, Result } from "effect";
import { settingsOf, type SettingsShape, type Variables } from "../Settings.ts";
import { failed, ok, warning, type Finding } from "./Finding.ts";

/** The settings, `null` if they cannot be read, and what was found. */
export const checkSettings = Effect.fnUntraced(function* (
  variables: Variables,
): Effect.fn.Return<readonly [SettingsShape | null, ReadonlyArray<Finding>]> {
  const asked = new Set<string>();
  const first = yield* Effect.result(settingsOf(variables, (name) => asked.add(name)));
  if (Result.isSuccess(first)) {
    const unknown = Object.keys(variables)
      .filter((name) => name.startsWith("PARLEY_") && !asked.has(name))
      .map((name) =>
        warning("settings", `${name} is no setting.`, "See docs/settings.md; is it misspelt?"),
      );
    return [
      first.success,
      unknown.length > 0 ? unknown : [ok("settings", "All settings can be read.")],
    ];
  }
  const problems: Array<string> = [];
  const left: Record<string, string | undefined> = { ...variables };
  const taken = new Set<string>();
  let result = yield* Effect.result(settingsOf(left));
  // Without the settings that a problem names the next problem shows.
  while (Result.isFailure(result)) {
    const { message } = result.failure;
    const names = [...new Set(message.match(/\b(?:PARLEY_[A-Z0-9_]+|DATABASE_URL)\b/g))];
    // What names a setting that was taken away may be wrong only because of that.
    if (!names.some((name) => taken.has(name))) problems.push(message);
    const set = names.filter((name) => left[name] !== undefined);
    if (set.length === 0) break;
    for (const name of set) {
      delete left[name];
      taken.add(name);
    }
    result = yield* Effect.result(settingsOf(left));
  }
  const hint = "docs/settings.md explains every setting.";
  return [null, problems.map((message) => failed("settings", message, hint))];
});
