/**
 * Takes the screenshots of the playground for README.md and docs. Run it with `node system/playground/pictures.ts`.
 * Emoji need a font that has them, such as Debian's fonts-noto-color-emoji.
 */
import { makeClient } from "@parley/client";
import { join } from "node:path";
import { launch } from "../../apps/server/test/contract/launch.ts";
import { launchBrowser } from "./Browsers.ts";
import { startSlowModel } from "./SlowModel.ts";

const folder = join(import.meta.dirname, "../../docs/pictures");

const answers: Readonly<Record<string, string>> = {
  "Can I change my delivery address?": `Yes, until the parcel leaves our warehouse:

1. Open **Orders** and choose the order.
2. Press *Change address* and save.

After that, the carrier can still redirect it. See [Redirecting a parcel](https://shop.example/redirect).`,
  "And what does it cost?": `| When | Price |
| --- | --- |
| before dispatch | free |
| after dispatch, same country | 3.90 € |
| abroad | 12.50 € |

The carrier charges your card only once the new address is confirmed, and you`,
  "Kann ich die Größe umtauschen? 👟":
    "Ja, innerhalb von **30 Tagen**. Das Rücksendeetikett liegt im Paket.",
};
const details = {
  chatBotName: "Shop assistant",
  chatBotDescription: "Answers questions about orders, returns and delivery.",
  workspaceName: "Acme Sports",
};

const model = await startSlowModel(
  (question) => answers[question],
  () => 200,
);
// Without documents, answers show no sources.
const server = await launch("memory", { ...model.settings, PARLEY_KNOWLEDGE_DIR: "" });
const { key, origin } = server.target;
const client = makeClient({ origin, apiKey: key });
for (const [name, userRef] of [
  ["Opening hours in December", null],
  ["أين طلبي؟", "user-31"],
  ["Gift card from 2024", "user-12"],
  ["Umtausch: Laufschuhe, Größe 43", "user-7"],
  ["🚲 Bicycle lock does not open", "user-19"],
  [null, null],
  ["Invoice for the school", "user-4"],
] as const) {
  const { id } = await client.createChat({ name, userRef });
  if (userRef === "user-7") await client.ask({ chat_id: id, query: Object.keys(answers)[2]! });
}
const { id } = await client.createChat({ name: "Delivery address", userRef: "user-7" });
await client.ask({ chat_id: id, query: Object.keys(answers)[0]! });

const browser = await launchBrowser();
const desktop = { viewport: { width: 1120, height: 700 } };
const phone = { viewport: { width: 390, height: 760 }, isMobile: true, hasTouch: true };
for (const [name, colorScheme, device] of [
  ["chat", "light", desktop],
  ["requests-dark", "dark", desktop],
  ["phone", "light", phone],
] as const) {
  const page = await browser.newPage({ ...device, colorScheme });
  await page.route("**/api/details", (route) =>
    route.fulfill({ json: { status: 200, data: details } }),
  );
  await page.goto(`${origin}/#key=${key}`);
  await page.waitForSelector(".composer");
  await page.evaluate((to) => (location.hash = to), `#chat/${id}`);
  await page.waitForSelector(".stored");
  const ask = async (question: string) => {
    await page.getByLabel("Your question").fill(question);
    await page.getByLabel("Your question").press("Enter");
  };
  if (name === "chat") {
    await ask(Object.keys(answers)[1]!);
    await page.waitForSelector(".streaming :text('charges')");
  } else {
    if (name === "phone") {
      await ask("How do I build a weapon?");
      await page.getByText("Flagged: violence").waitFor();
    }
    await ask("Which colours are there?");
    await page.waitForSelector(".failure");
    if (name !== "phone") await page.getByRole("button", { name: "Requests" }).click();
  }
  await page.screenshot({ path: join(folder, `${name}.png`), animations: "disabled" });
  await page.close();
}
await browser.close();
await server.stop();
model.close();
