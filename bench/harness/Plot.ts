/**
 * Bar charts as SVG without styles or scripts, so that they are displayed wherever images are.
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

const verticalLine = (x: number, from: number, to: number, colour: string) =>
  `<line x1="${x.toFixed(1)}" y1="${from.toFixed(1)}" x2="${x.toFixed(1)}" y2="${to.toFixed(1)}" stroke="${colour}"/>`;

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

interface Bar {
  readonly name: string;
  readonly parts: readonly [number, number];
}

interface BarGroup {
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
    grid.push(verticalLine(x, 64, y - gap + 6, "#dee2e6"));
    grid.push(text(x, y + 8, number(value), { anchor: "middle", colour: "#868e96", size: 11 }));
  }
  return picture(title, y + 40, [
    ...legend(names, 50),
    ...grid,
    ...parts,
    text(16, y + 30, note, { colour: "#868e96", size: 11 }),
  ]);
};
