/**
 * Plots as SVG without styles or scripts, so that they are displayed wherever images are.
 */

const width = 760;
const colours: Readonly<Record<string, string>> = {
  Parley: "#d9480f",
  Fastify: "#5c7cfa",
  "Fastify, with care": "#2b8a3e",
  "node:http": "#868e96",
  Mastra: "#9c36b5",
};
const colourOf = (name: string): string => colours[name] ?? "#495057";

const escape = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

interface TextOptions {
  readonly anchor?: "start" | "middle" | "end";
  readonly colour?: string;
  readonly size?: number;
}

const text = (
  x: number,
  y: number,
  content: string,
  { anchor = "start", colour = "#343a40", size = 12 }: TextOptions = {},
) =>
  `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}" fill="${colour}" font-size="${size}">${escape(content)}</text>`;

const rectangle = (x: number, y: number, w: number, h: number, colour: string, opacity = 1) =>
  `<rect x="${x.toFixed(1)}" y="${y.toFixed(1)}" width="${w.toFixed(1)}" height="${h.toFixed(1)}" fill="${colour}" fill-opacity="${opacity}"/>`;

const line = (x1: number, y1: number, x2: number, y2: number, colour: string, w = 1) =>
  `<line x1="${x1.toFixed(1)}" y1="${y1.toFixed(1)}" x2="${x2.toFixed(1)}" y2="${y2.toFixed(1)}" stroke="${colour}" stroke-width="${w}"/>`;

/** The white background keeps the picture legible on dark pages, too. */
const picture = (title: string, height: number, parts: ReadonlyArray<string>): string =>
  [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="system-ui, sans-serif" role="img" aria-label="${escape(title)}">`,
    rectangle(0, 0, width, height, "#ffffff"),
    text(16, 26, title, { size: 15 }),
    ...parts,
    "</svg>\n",
  ].join("\n");

const legend = (names: ReadonlyArray<string>, y: number): ReadonlyArray<string> => {
  let x = 16;
  return names.flatMap((name) => {
    const parts = [rectangle(x, y - 10, 12, 12, colourOf(name)), text(x + 18, y, name)];
    x += 42 + name.length * 6.6;
    return parts;
  });
};

/** Returns a step that divides an axis into about four parts and has a single non-zero digit. */
const stepOf = (most: number): number => {
  const power = 10 ** Math.floor(Math.log10(most / 4));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => most / step <= 5)!;
};

const number = (value: number): string =>
  value.toLocaleString("en-US", { maximumSignificantDigits: value < 100 ? 2 : 3 });

export interface Bar {
  readonly name: string;
  readonly parts: readonly [number, number];
}

export interface BarGroup {
  readonly label: string;
  readonly bars: ReadonlyArray<Bar>;
}

/** Draws horizontal bars, each with a dark and a light part. */
export const barPlot = (
  title: string,
  note: string,
  groups: ReadonlyArray<BarGroup>,
  names: ReadonlyArray<string>,
): string => {
  const [left, right, barHeight, gap] = [200, 70, 15, 14];
  const totalOf = ({ parts }: Bar) => parts[0] + parts[1];
  const most = Math.max(...groups.flatMap(({ bars }) => bars.map(totalOf)));
  const scale = (width - left - right) / most;
  let y = 74;
  const parts: Array<string> = [];
  for (const { bars, label } of groups) {
    parts.push(text(left - 10, y + (bars.length * barHeight) / 2 + 4, label, { anchor: "end" }));
    for (const bar of bars) {
      const [dark, light] = bar.parts;
      const colour = colourOf(bar.name);
      parts.push(rectangle(left, y, dark * scale, barHeight - 2, colour));
      parts.push(rectangle(left + dark * scale, y, light * scale, barHeight - 2, colour, 0.4));
      parts.push(text(left + totalOf(bar) * scale + 6, y + 10, number(totalOf(bar)), { size: 11 }));
      y += barHeight;
    }
    y += gap;
  }
  const step = stepOf(most);
  const grid: Array<string> = [];
  for (let value = 0; value <= most; value += step) {
    const x = left + value * scale;
    grid.push(line(x, 64, x, y - gap + 6, "#dee2e6"));
    grid.push(text(x, y + 8, number(value), { anchor: "middle", colour: "#868e96", size: 11 }));
  }
  return picture(title, y + 40, [
    ...legend(names, 50),
    ...grid,
    ...parts,
    text(16, y + 30, note, { colour: "#868e96", size: 11 }),
  ]);
};

export interface Curve {
  readonly name: string;
  readonly points: ReadonlyArray<readonly [x: number, y: number]>;
  readonly isDashed?: boolean;
  readonly label: string;
}

/** Draws curves over a logarithmic x axis, each with a label at its end. */
export const curvePlot = (
  title: string,
  note: string,
  curves: ReadonlyArray<Curve>,
  xLabel: (x: number) => string,
): string => {
  const [left, right, top, bottom] = [64, 190, 50, 300];
  const points = curves.flatMap((curve) => curve.points);
  const xs = [...new Set(points.map(([x]) => x))].toSorted((a, b) => a - b);
  const most = Math.max(...points.map(([, y]) => y));
  const span = Math.log(xs.at(-1)! / xs[0]!);
  const toX = (x: number) => left + (Math.log(x / xs[0]!) / span) * (width - left - right);
  const toY = (y: number) => bottom - (y / most) * (bottom - top);
  const step = stepOf(most);
  const grid: Array<string> = [];
  for (let value = 0; value <= most; value += step) {
    grid.push(line(left, toY(value), width - right, toY(value), "#dee2e6"));
    grid.push(
      text(left - 8, toY(value) + 4, number(value), { anchor: "end", colour: "#868e96", size: 11 }),
    );
  }
  for (const x of xs) {
    grid.push(
      text(toX(x), bottom + 18, xLabel(x), { anchor: "middle", colour: "#868e96", size: 11 }),
    );
  }
  // Labels of curves that end close to each other are moved apart.
  let last = Infinity;
  const ends = curves
    .map((curve) => ({ curve, y: toY(curve.points.at(-1)![1]) }))
    .toSorted((a, b) => b.y - a.y)
    .map(({ curve, y }) => {
      last = Math.min(y, last - 15);
      return text(width - right + 10, last + 4, curve.label, { colour: colourOf(curve.name) });
    });
  const polylines = curves.flatMap(({ isDashed = false, name, points }) => {
    const path = points.map(([x, y]) => `${toX(x).toFixed(1)},${toY(y).toFixed(1)}`).join(" ");
    const dashes = isDashed ? ' stroke-dasharray="6 4"' : "";
    return [
      `<polyline points="${path}" fill="none" stroke="${colourOf(name)}" stroke-width="2"${dashes}/>`,
      ...points.map(
        ([x, y]) =>
          `<circle cx="${toX(x).toFixed(1)}" cy="${toY(y).toFixed(1)}" r="3" fill="${colourOf(name)}"/>`,
      ),
    ];
  });
  return picture(title, bottom + 56, [
    ...grid,
    ...polylines,
    ...ends,
    text(16, bottom + 44, note, { colour: "#868e96", size: 11 }),
  ]);
};
