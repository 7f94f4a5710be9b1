import { assert, it } from "@effect/vitest";
import { Effect } from "effect";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readSettings } from "../src/Settings.ts";
import { ignoredVariables, unusedProxy } from "../src/Variables.ts";

const fileOf = (content: string | Uint8Array) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const directory = await mkdtemp(join(tmpdir(), "parley-variables-"));
      await writeFile(join(directory, "value"), content);
      return directory;
    }),
    (directory) => Effect.promise(() => rm(directory, { recursive: true })),
  ).pipe(Effect.map((directory) => join(directory, "value")));

it.effect(
  "a setting from <name>_FILE is the file's content without a final line break or byte order mark",
  () =>
    Effect.gen(function* () {
      for (const content of ["8080", "8080\n", "8080\r\n", "\ufeff8080\n"]) {
        const settings = yield* readSettings({ PARLEY_PORT_FILE: yield* fileOf(content) });
        assert.strictEqual(settings.port, 8080);
        assert.deepStrictEqual(settings.warnings, []);
      }
    }),
);

it.effect(
  "the error for an invalid <name>_FILE names the variable and does not repeat the file's content",
  () =>
    Effect.gen(function* () {
      const utf16 = Buffer.from("\ufeffsecret", "utf16le");
      for (const [content, reason] of [
        ["", "is empty"],
        [" \n", "is empty"],
        ["secret\n\n", "more than one line"],
        ["secret\nsecret", "more than one line"],
        [utf16, "not UTF-8"],
        [utf16.subarray(2), "not UTF-8"],
        [Uint8Array.of(0xfc), "not UTF-8"],
      ] as const) {
        const path = yield* fileOf(content);
        const { message } = yield* Effect.flip(readSettings({ DATABASE_URL_FILE: path }));
        assert.match(message, /^DATABASE_URL_FILE: /);
        assert.include(message, reason);
        assert.notInclude(message, "secret");
      }
      const missing = yield* Effect.flip(readSettings({ PARLEY_LLM_API_KEY_FILE: "/nowhere" }));
      assert.match(missing.message, /^PARLEY_LLM_API_KEY_FILE: .*ENOENT/);
      const directory = yield* Effect.flip(readSettings({ PARLEY_HOST_FILE: "/tmp" }));
      assert.match(directory.message, /^PARLEY_HOST_FILE: .*EISDIR/);
      const both = { DATABASE_URL: "secret", DATABASE_URL_FILE: yield* fileOf("secret") };
      const { message } = yield* Effect.flip(readSettings(both));
      assert.strictEqual(message, "DATABASE_URL and DATABASE_URL_FILE are both set: unset one.");
    }),
);

it.effect("a setting that is itself a path cannot come from <name>_FILE", () =>
  Effect.gen(function* () {
    const path = yield* fileOf("/elsewhere");
    const settings = yield* readSettings({ PARLEY_DATA_DIR_FILE: path });
    assert.strictEqual(settings.dataDir, "./.parley");
    assert.match(settings.warnings.join(), /PARLEY_DATA_DIR_FILE is not a setting/);
  }),
);

it.effect("PARLEY_MANAGEMENT_PORT is a port on 127.0.0.1, or a host and a port; 0 is none", () =>
  Effect.gen(function* () {
    for (const [text, management] of [
      ["9000", { host: "127.0.0.1", port: 9000 }],
      ["0.0.0.0:9000", { host: "0.0.0.0", port: 9000 }],
      ["[::]:9000", { host: "::", port: 9000 }],
      ["parley.internal:9000", { host: "parley.internal", port: 9000 }],
      ["0.0.0.0:0", null],
    ] as const) {
      const settings = yield* readSettings({ PARLEY_MANAGEMENT_PORT: text });
      assert.deepStrictEqual(settings.management, management, text);
    }
    for (const text of ["::1:9000", "a:65536", "a:", "http://a:1"]) {
      const { message } = yield* Effect.flip(readSettings({ PARLEY_MANAGEMENT_PORT: text }));
      assert.include(message, "PARLEY_MANAGEMENT_PORT", text);
    }
  }),
);

const settings = new Set(["DATABASE_URL", "PARLEY_PORT", "PARLEY_LLM_MODEL"]);

it("a variable that looks like a setting but is not one causes a warning that names it", () => {
  for (const name of ["PARLEY_PROT", "PARLEY_PROT_FILE", "PARLEY_DATABASE_URL", "DATABASE_ULR"]) {
    const warnings = ignoredVariables({ [name]: "x", HOME: "/", PARLEY_PORT: "1" }, settings);
    assert.strictEqual(warnings.length, 1, name);
    assert.match(warnings[0]!, new RegExp(`^${name} is not a setting`));
  }
  assert.deepStrictEqual(ignoredVariables({ PARLEY_PROT: " ", PARLEYS: "x" }, settings), []);
});

it.effect("an OpenTelemetry variable with an unsupported value causes a warning", () =>
  Effect.gen(function* () {
    for (const [name, values] of [
      ["OTEL_TRACES_SAMPLER", ["always_off", "traceidratio", "parentbased_traceidratio"]],
      ["OTEL_EXPORTER_OTLP_PROTOCOL", ["grpc"]],
      ["OTEL_TRACES_EXPORTER", ["console", "zipkin"]],
    ] as const) {
      for (const value of values) {
        const { warnings } = yield* readSettings({ [name]: value });
        assert.match(warnings.join("\n"), new RegExp(`^${name}=${value} is not supported.*$`));
      }
    }
    const fine = { OTEL_TRACES_SAMPLER: "always_on", OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" };
    assert.deepStrictEqual((yield* readSettings(fine)).warnings, []);
  }),
);

it.effect(
  "variables that Kubernetes sets for its Services are ignored, with one warning for all of them",
  () =>
    Effect.gen(function* () {
      const { askPort, management, port, warnings } = yield* readSettings({
        PARLEY_PORT: "tcp://10.43.7.1:3000",
        PARLEY_ASK_PORT: "tcp://10.43.7.2:3000",
        PARLEY_MANAGEMENT_PORT: "udp://10.43.7.3:3000",
        PARLEY_SERVICE_PORT_HTTP: "3000",
        PARLEY_PORT_3000_TCP: "tcp://10.43.7.1:3000",
        PARLEY_PORT_3000_TCP_ADDR: "10.43.7.1",
        PARLEY_WEB_PORT: "tcp://10.43.7.4:80",
        DATABASE_SERVICE_HOST: "10.43.7.5",
      });
      assert.deepStrictEqual(
        { port, askPort, management },
        { port: 3000, askPort: null, management: { host: "127.0.0.1", port: 3001 } },
      );
      assert.strictEqual(warnings.length, 1);
      assert.match(
        warnings[0]!,
        /^PARLEY_PORT, PARLEY_ASK_PORT, PARLEY_MANAGEMENT_PORT: .*enableServiceLinks: false/,
      );
    }),
);

it("a proxy that Node does not use causes a warning", () => {
  const model = "https://llm.example/v1";
  const isWarned = (variables: Record<string, string>, address = model) =>
    unusedProxy(variables, address).length > 0;
  for (const name of ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"]) {
    assert.isTrue(isWarned({ [name]: "http://proxy:3128" }), name);
  }
  const proxy = { HTTPS_PROXY: "http://proxy:3128" };
  assert.match(
    unusedProxy(proxy, model)[0]!,
    /^Requests to llm.example do not use the proxy set in HTTPS_PROXY: .* only with NODE_USE_ENV_PROXY=1/,
  );
  assert.isFalse(isWarned({ ...proxy, NODE_USE_ENV_PROXY: "1" }));
  assert.isFalse(isWarned({ ...proxy, ALL_PROXY: "x", NODE_USE_ENV_PROXY: "1" }));
  assert.isTrue(isWarned({ ALL_PROXY: "x", NODE_USE_ENV_PROXY: "1" }));
  for (const list of ["*", "llm.example", ".example", "*.example", "a.b, llm.example:443"]) {
    assert.isFalse(isWarned({ ...proxy, NO_PROXY: list }), list);
  }
  assert.isTrue(isWarned({ ...proxy, no_proxy: "lm.example,other" }));
  assert.isFalse(isWarned({ ...proxy, NO_PROXY: "localhost" }, "http://localhost:11434/v1"));
  assert.match(
    unusedProxy({ ...proxy, HTTP_PROXY: "x" }, model)[0]!,
    / proxy set in HTTPS_PROXY and HTTP_PROXY: /,
  );
});
