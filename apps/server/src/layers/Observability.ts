/**
 * Logs, the metrics of the process, and the export by OpenTelemetry's protocol (OTLP).
 */
import { describeCause, registerGauge } from "@parley/core";
import { Array, Cause, ConfigProvider, DateTime, Effect, Formatter, Layer, Logger } from "effect";
import { FetchHttpClient, HttpClient } from "effect/http";
import { Otlp, OtlpSerialization } from "effect/observability";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { getHeapStatistics } from "node:v8";
import { Settings, SettingsInvalid } from "../Settings.ts";
import { version } from "../Version.ts";

const timeZone = DateTime.zoneMakeLocal();

/** `2026-11-25 02:46:09.318 +01:00`, in the time zone of the process. */
const formatDate = (timestamp: string): string =>
  DateTime.formatIsoOffset(DateTime.makeZonedUnsafe(timestamp, { timeZone })).replace(
    /T|(?=[+-]\d\d:)/g,
    " ",
  );

/** An event on one line: date and zone, level, message, and the annotations as `name=value`. */
const formatText = Logger.map(
  Logger.formatStructured,
  ({ annotations, cause, level, message, timestamp }) =>
    [
      formatDate(timestamp),
      level,
      ...Array.ensure(message).map((part) =>
        typeof part === "string" ? part : Formatter.format(part),
      ),
      ...(cause === undefined ? [] : [cause]),
      ...Object.entries(annotations).map(([name, value]) => {
        const text = String(value);
        return `${name}=${/^[^\s"=]+$/.test(text) ? text : JSON.stringify(text)}`;
      }),
    ]
      .join(" ")
      .replace(/\s*\n\s*/g, " | "),
);

/** Whether the log is text, for people to read, instead of JSON. */
export const logsText = Effect.map(
  Settings,
  ({ logFormat }) => (logFormat ?? (process.stdout.isTTY ? "text" : "json")) === "text",
);

const layerLogger = Layer.unwrap(
  Effect.map(logsText, (text) =>
    Logger.layer([text ? Logger.withConsoleLog(formatText) : Logger.consoleJson]),
  ),
);

/** Milliseconds between the samples of the event loop's delay. */
const resolution = 20;

const layerProcessMetrics = Layer.effectDiscard(
  Effect.gen(function* () {
    const context = yield* Effect.context<never>();
    const loop = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const delays = monitorEventLoopDelay({ resolution });
        delays.enable();
        return delays;
      }),
      (delays) => Effect.sync(() => delays.disable()),
    );
    /** A delay in seconds: a sample is the time since the previous one, its regular interval included. */
    const seconds = (nanos: number) => Math.max(0, nanos / 1e9 - resolution / 1000);

    const gauge = registerGauge.bind(null, context);
    const versions = { version, node_version: process.version };
    gauge("parley.build_info", "Always 1; the versions are attributes", versions, () => 1);
    gauge("process.memory.usage", "Resident memory of the process", { unit: "By" }, () =>
      process.memoryUsage.rss(),
    );
    gauge("v8js.memory.heap.used", "Memory of JavaScript's objects", { unit: "By" }, () => {
      return getHeapStatistics().used_heap_size;
    });
    gauge(
      "nodejs.eventloop.delay.p99",
      "Event-loop delay since the last reading",
      { unit: "s" },
      () => seconds(loop.percentile(99)),
    );
    gauge(
      "nodejs.eventloop.delay.max",
      "Longest delay since the last reading",
      { unit: "s" },
      () => {
        const { max } = loop;
        loop.reset();
        return seconds(max);
      },
    );
  }),
);

/** Logs once that the collector takes no data, and once that it takes data again. */
const layerCollector = Layer.effect(
  HttpClient.HttpClient,
  Effect.map(HttpClient.HttpClient, (client) => {
    let isFailing = false;
    const note = (reason: string | null) =>
      Effect.suspend(() => {
        if ((reason !== null) === isFailing) return Effect.void;
        isFailing = reason !== null;
        return reason === null
          ? Effect.logInfo("The OpenTelemetry collector takes data again")
          : Effect.annotateLogs(
              Effect.logWarning("The OpenTelemetry collector takes no data"),
              "reason",
              reason,
            );
      });
    return client.pipe(
      HttpClient.tap(({ status }) => note(status < 300 ? null : `HTTP ${status}`)),
      HttpClient.tapError((error) => note(describeCause(error))),
    );
  }),
).pipe(Layer.provide(FetchHttpClient.layer));

/** Does nothing unless a variable `OTEL_EXPORTER_OTLP_…ENDPOINT` is set. */
const layerOtlp = Layer.suspend(() => {
  const variables: Record<string, string> = {
    // The defaults of OpenTelemetry's specification.
    OTEL_LOGS_EXPORTER: "otlp",
    OTEL_METRICS_EXPORTER: "otlp",
    OTEL_TRACES_EXPORTER: "otlp",
    OTEL_EXPORTER_OTLP_PROTOCOL: "http/protobuf",
    OTEL_SERVICE_NAME: "parley",
    ...Object.fromEntries(
      Object.entries(process.env).flatMap(([name, value]) =>
        name.startsWith("OTEL_") && value ? [[name, value]] : [],
      ),
    ),
  };
  const protocol = variables["OTEL_EXPORTER_OTLP_PROTOCOL"]!;
  const serialization = {
    "http/json": OtlpSerialization.layerJson,
    "http/protobuf": OtlpSerialization.layerProtobuf,
  }[protocol];
  if (serialization === undefined) {
    const message = `OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf or http/json, not "${protocol}".`;
    return Layer.effectDiscard(Effect.fail(new SettingsInvalid({ message })));
  }
  return Otlp.layerFromConfig({ resource: { serviceVersion: version } }).pipe(
    Layer.provide([
      layerCollector,
      serialization,
      ConfigProvider.layer(ConfigProvider.fromEnvRecord(variables)),
    ]),
    Layer.catchCause((cause) => {
      const message = `OpenTelemetry's variables: ${describeCause(Cause.squash(cause))}`;
      return Layer.effectDiscard(Effect.fail(new SettingsInvalid({ message })));
    }),
  );
});

/** The logger of the settings, the metrics of the process, and a tracer if OTLP is on. */
export const layerObservability = Layer.mergeAll(layerProcessMetrics, layerOtlp).pipe(
  Layer.provideMerge(layerLogger),
);
