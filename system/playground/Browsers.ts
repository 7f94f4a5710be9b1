/**
 * Debian's Chromium for the tests, and the check for accessibility.
 */
import axe from "axe-core";
import { chromium, type Page } from "playwright-core";
import { expect } from "vitest";

export const desktop = { viewport: { width: 1280, height: 800 } };
export const phone = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };

export const launchBrowser = (...args: ReadonlyArray<string>) =>
  // Chromium's sandbox refuses to run as root.
  chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", ...args] });

export const expectAccessible = async (page: Page, view: string) => {
  await page.evaluate(axe.source);
  const { violations } = (await page.evaluate("axe.run()")) as axe.AxeResults;
  const problems = violations.map(
    ({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`,
  );
  expect(problems, view).toEqual([]);
  const overflow = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  expect(overflow, `${view} is wider than the window`).toBeLessThanOrEqual(0);
};
