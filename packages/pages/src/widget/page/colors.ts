/**
 * Colours of a site's brand, made legible on the widget's own backgrounds.
 */
type Color = readonly [red: number, green: number, blue: number];

/** Reads an sRGB colour in the form `rgb(…)` or `color(srgb …)`. */
const parse = (color: string): Color => {
  const [red = 0, green = 0, blue = 0] = (color.match(/[\d.]+(e-\d+)?/g) ?? []).map(
    (text) => Number(text) / (color.startsWith("rgb") ? 255 : 1),
  );
  return [red, green, blue];
};

const luminanceOf = (color: Color): number => {
  const [red, green, blue] = color.map((part) =>
    part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
};

/** Returns black or white, whichever contrasts more with the colour. */
export const legibleOn = (color: string): string =>
  luminanceOf(parse(color)) > 0.179 ? "#000" : "#fff";

const mix = (a: Color, b: Color, share: number): Color => {
  const [red, green, blue] = a.map((part, at) => part + (b[at]! - part) * share);
  return [red!, green!, blue!];
};

const toText = (color: Color): string => `rgb(${color.map((part) => Math.round(part * 255))})`;

const themes = [
  { ground: [0.957, 0.949, 0.929], end: [0, 0, 0], share: 0.1 },
  { ground: [0.114, 0.129, 0.141], end: [1, 1, 1], share: 0.18 },
] as const;

/**
 * Returns two values of CSS for the light and the dark theme: a colour for links, rings and marks with a contrast of
 * 4.5 : 1, and the background of a question, both as close to the brand's colour as that allows.
 */
export const toTheme = (color: string): readonly [accent: string, tint: string] => {
  const brand = parse(color);
  const pairs = themes.map(({ end, ground, share }) => {
    const tint = mix(ground, brand, share);
    const contrastWith = (accent: Color) => (other: Color) => {
      const [dark, light] = [luminanceOf(accent), luminanceOf(other)].toSorted((a, b) => a - b);
      return (light! + 0.05) / (dark! + 0.05);
    };
    let accent = brand;
    for (let step = 1; step <= 20; step++) {
      // A little more than 4.5, because the values are rounded.
      if (Math.min(...[ground, tint].map(contrastWith(accent))) >= 4.6) break;
      accent = mix(brand, end, step / 20);
    }
    return [toText(accent), toText(tint)];
  });
  const [accents, tints] = [0, 1].map((at) => `light-dark(${pairs.map((pair) => pair[at])})`);
  return [accents!, tints!];
};
