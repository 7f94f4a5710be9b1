/**
 * Logs, process metrics, and export over the OpenTelemetry protocol (OTLP).
 */
import { describeCause, registerGauge } from "@parley/core/ports";
import { Array, Cause, ConfigProvider, Effect, Formatter, Layer, Logger, Metric } from "effect";
import { FetchHttpClient, HttpClient } from "effect/http";
import { Otlp, OtlpSerialization } from "effect/observability";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { getHeapStatistics } from "node:v8";
import { SettingsInvalid } from "../Variables.ts";
import { version } from "../Version.ts";

/** The default value of OTEL_SERVICE_NAME. */
const serviceName = "parley";

const toText = (part: unknown): string =>
  typeof part === "string" ? part : Formatter.format(part);

/** Formats a log event as one line: time, level, message, cause, and the annotations as `name=value`. */
const formatText = Logger.map(
  Logger.formatStructured,
  ({ annotations, cause = "", level, message, timestamp }) =>
    [
      timestamp,
      level,
      ...Array.ensure(message).map(toText),
      cause,
      ...Object.entries(annotations).map(([name, value]) => {
        const text = String(value);
        return `${name}=${/^[^\s"=]+$/.test(text) ? text : JSON.stringify(text)}`;
      }),
    ]
      .filter((part) => part !== "")
      .join(" ")
      .replace(/\s*\n\s*/g, " | "),
);

/** Formats a log event as a JSON object on one line. The annotations are members of that object. */
const formatJson = Logger.make((event: Logger.Options<unknown>) => {
  const { annotations, cause, level, message, timestamp } = Logger.formatStructured.log(event);
  return Formatter.formatJson({
    time: timestamp,
    level,
    message: typeof message === "string" ? message : Array.ensure(message).map(toText).join(" "),
    ...annotations,
    cause,
    trace_id: event.fiber.cache.span?.traceId,
    service: process.env["OTEL_SERVICE_NAME"] || serviceName,
    version,
  });
});

/** Logs text for people at a terminal, and JSON for programs. */
const layerLogger = Layer.suspend(() =>
  Logger.layer([
    Logger.withConsoleLog<unknown, string>(process.stdout.isTTY ? formatText : formatJson),
  ]),
);

const cpuSeconds = (): number => {
  const { system, user } = process.cpuUsage();
  return (system + user) / 1e6;
};

const layerProcessMetrics = Layer.effectDiscard(
  Effect.gen(function* () {
    const context = yield* Effect.context<never>();
    const loop = monitorEventLoopDelay({ resolution: 20 });
    loop.enable();
    const gauge = (name: string, description: string, unit: string, read: () => number) =>
      registerGauge(context, name, description, { unit }, read);
    const versions = { version, node_version: process.version };
    registerGauge(context, "parley.build_info", "Versions, as labels; always 1", versions, () => 1);
    // Named as in Prometheus' own client libraries.
    gauge("process.resident_memory", "Resident memory", "By", () => process.memoryUsage.rss());
    const startTime = Date.now() / 1000 - process.uptime();
    gauge("process.start_time", "Process start time, in seconds since 1970", "s", () => startTime);
    Metric.registerUnsafe(
      Metric.counter("process.cpu", { description: "CPU time", attributes: { unit: "s" } }),
      context,
      {
        get: () => ({ count: cpuSeconds(), incremental: true }),
        update: () => {},
        modify: () => {},
      },
    );
    if (existsSync("/proc/self/fd")) {
      const [, limit] = /files +(\d+)/.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
      gauge("process.max_fds", "Maximum number of open file descriptors", "", () => Number(limit));
      const read = () => readdirSync("/proc/self/fd").length;
      gauge("process.open_fds", "Open file descriptors", "", read);
    }
    gauge(
      "v8js.memory.heap.used",
      "Memory used by JavaScript objects",
      "By",
      () => getHeapStatistics().used_heap_size,
    );
    gauge(
      "nodejs.eventloop.delay.p99",
      "99th percentile of the event loop delay since the last reading",
      "s",
      () => loop.percentile(99) / 1e9,
    );
    gauge(
      "nodejs.eventloop.delay.max",
      "Longest event loop delay since the last reading",
      "s",
      () => {
        const { max } = loop;
        loop.reset();
        return max / 1e9;
      },
    );
  }),
);

/** Logs a warning when the collector stops accepting data, but no further warning until it accepts data again. */
const layerCollector = Layer.effect(
  HttpClient.HttpClient,
  Effect.map(HttpClient.HttpClient, (client) => {
    let isFailing = false;
    const logFailure = (reason: string) =>
      Effect.suspend(() => {
        if (isFailing) return Effect.void;
        isFailing = true;
        return Effect.annotateLogs(
          Effect.logWarning("The OpenTelemetry collector is not accepting data"),
          "reason",
          reason,
        );
      });
    return client.pipe(
      HttpClient.filterStatusOk,
      HttpClient.tap(() => Effect.sync(() => (isFailing = false))),
      HttpClient.tapError((error) => logFailure(describeCause(error))),
    );
  }),
).pipe(Layer.provide(FetchHttpClient.layer));

/** Does nothing unless an `OTEL_EXPORTER_OTLP_…ENDPOINT` variable is set. */
const layerOtlp = Layer.suspend(() => {
  const variables: NodeJS.ProcessEnv = {
    // The default exporters in the OpenTelemetry specification.
    OTEL_LOGS_EXPORTER: "otlp",
    OTEL_METRICS_EXPORTER: "otlp",
    OTEL_TRACES_EXPORTER: "otlp",
    OTEL_SERVICE_NAME: serviceName,
    ...Object.fromEntries(Object.entries(process.env).filter(([, value]) => value !== "")),
  };
  const isJson = variables["OTEL_EXPORTER_OTLP_PROTOCOL"] === "http/json";
  return Otlp.layerFromConfig({ resource: { serviceVersion: version } }).pipe(
    Layer.provide([
      layerCollector,
      isJson ? OtlpSerialization.layerJson : OtlpSerialization.layerProtobuf,
      ConfigProvider.layer(ConfigProvider.fromEnvRecord(variables)),
    ]),
    Layer.catchCause((cause) => {
      const message = `The OpenTelemetry variables are invalid: ${describeCause(Cause.squash(cause))}`;
      return Layer.effectDiscard(new SettingsInvalid({ message }));
    }),
  );
});

/** The configured logger, the process metrics and, if enabled, the export over OTLP. */
export const layerObservability = Layer.mergeAll(layerProcessMetrics, layerOtlp).pipe(
  Layer.provideMerge(layerLogger),
);
