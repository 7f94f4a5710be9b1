import { expect, it } from "vitest";
import { toTheme } from "../../src/widget/page/colors.ts";

const luminanceOf = (text: string) => {
  const [red, green, blue] = text.match(/\d+/g)!.map((part) => {
    const share = Number(part) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
};
const contrast = (...colors: readonly [string, string]) => {
  const [dark, light] = colors.map(luminanceOf).toSorted((a, b) => a - b);
  return (light! + 0.05) / (dark! + 0.05);
};

/** The window's backgrounds in the light and in the dark theme. */
const grounds = [
  ["rgb(252,251,249)", "rgb(255,255,255)", "rgb(244,242,237)"],
  ["rgb(21,24,26)", "rgb(29,33,36)", "rgb(16,19,21)"],
];
const texts = ["rgb(29,33,37)", "rgb(232,230,227)"];

it.each([
  ["yellow", "rgb(255, 204, 0)"],
  ["black", "rgb(0, 0, 0)"],
  ["white", "rgb(255, 255, 255)"],
  ["grey", "rgb(128, 128, 128)"],
  ["a wide-gamut red", "color(srgb 1.02 -0.02 -3e-2)"],
  ["violet", "color(srgb 0.478 0.122 0.635)"],
])(
  "links, rings and questions are legible in both themes with the brand's colour %s",
  (_, color) => {
    const [accents, tints] = toTheme(color).map((value) => value.match(/rgb\([^)]*\)/g)!);
    for (const theme of [0, 1]) {
      const backgrounds = [...grounds[theme]!, tints![theme]!];
      for (const ground of backgrounds)
        expect(contrast(accents![theme]!, ground)).toBeGreaterThan(4.5);
      expect(contrast(texts[theme]!, tints![theme]!)).toBeGreaterThan(4.5);
    }
  },
);
