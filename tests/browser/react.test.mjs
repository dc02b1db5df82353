// The React component of docs/react.md in React 19 and 18, as esbuild bundles it.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { examples } from "./documented.mjs";
import { close, eventually, host, hostElements, hostScript, isPressed, open, person, tally } from "./harness.mjs";

before(open);
after(close);

const component = (await examples()).find((text) => text.includes("export function Poll"));

// An application around the guide's component. A button shows another poll, and one takes the component out.
const application = (polls) => `${component}
import { StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
const seen = [];
window.seen = seen;
const thank = (vote) => seen.push(vote.items ?? vote.item_id);
function Application() {
  const [poll, setPoll] = useState(${JSON.stringify(String(polls[0].id))});
  const [renders, setRenders] = useState(0);
  return <main>
    {poll && <Poll poll={poll} no-title onVote={thank} />}
    <p>Rendered {renders}</p>
    <button onClick={() => setRenders(renders + 1)}>Render</button>
    <button onClick={() => setPoll(${JSON.stringify(String(polls[1].id))})}>Another</button>
    <button onClick={() => setPoll(null)}>None</button>
  </main>;
}
createRoot(document.getElementById("root")).render(<StrictMode><Application /></StrictMode>);
`;

async function bundle(text, version) {
  const resolveDir = fileURLToPath(new URL(".", import.meta.url));
  const alias = version === 19 ? {} : { react: `react-${version}`, "react-dom": `react-dom-${version}` };
  const { outputFiles } = await build({
    stdin: { contents: text, loader: "tsx", resolveDir },
    absWorkingDir: resolveDir, // where an alias is looked for
    bundle: true, write: false, format: "esm", jsx: "automatic", alias,
    define: { "process.env.NODE_ENV": '"development"' },
  });
  return outputFiles[0].text;
}

test("no attribute is the name of something else of its element, which React 19 would set in its place", async () => {
  const item = await tally.newItem({ name: "Named" });
  const poll = await tally.newPoll({ title: "Named?" });
  const page = await person();
  await page.goto(hostElements("named", `<tally-vote item="${item}"></tally-vote><tally-count item="${item}" show="up"></tally-count>
    <tally-poll poll="${poll.id}"></tally-poll><tally-reactions poll="${poll.id}"></tally-reactions><tally-history poll="${poll.id}"></tally-history>`));
  await page.locator("tally-reactions").getByRole("button").first().waitFor();
  await page.locator("tally-vote").getByRole("button").first().waitFor();
  await page.locator("tally-poll").getByRole("button").first().waitFor();
  const [checked, taken] = await page.evaluate(() => {
    const names = [...document.querySelectorAll("*")].filter((one) => one.localName.startsWith("tally-"))
      .flatMap((one) => one.constructor.observedAttributes.map((name) => [one, name]));
    return [names.length, names.filter(([one, name]) => name in one).map(([one, name]) => `${one.localName} ${name}`)];
  });
  assert.ok(checked >= 14, `${checked} attributes`);
  assert.deepEqual(taken, []);
});

for (const version of [19, 18]) {
  test(`the component of docs/react.md votes, says so once, and shows another poll, in React ${version}`, async () => {
    const polls = [await tally.newPoll({ title: "First?" }), await tally.newPoll({ title: "Second?", choices: ["Tea", "Coffee"] })];
    const script = hostScript(`react-${version}`, await bundle(application(polls), version));
    const page = await person();
    const warnings = [];
    // Without cookies the elements ask in vain for a voter, of which the browser notes the 404.
    const isOfReact = (message) => ["error", "warning"].includes(message.type()) && !message.text().startsWith("Failed to load resource");
    page.on("console", (message) => isOfReact(message) && warnings.push(message.text()));
    await page.goto(host(`react-${version}`, `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>React</title><link rel="icon" href="data:,">
      <script type="module" src="${tally.base}/embed.js"></script></head><body><div id="root"></div><script type="module" src="${script}"></script></body></html>`));
    const choice = (name) => page.getByRole("button", { name: new RegExp(`^${name}`) });
    const seen = () => page.evaluate(() => window.seen);
    await choice("Soup").click();
    await isPressed(choice("Soup"));
    await eventually(async () => (await seen()).length === 1);
    assert.deepEqual(await seen(), [[polls[0].choices[0].item_id]]);
    assert.equal(await page.getByText("First?").filter({ visible: true }).count(), 0, "no-title reaches the element");
    // A render changes nothing that the element shows.
    await choice("Render").click();
    await page.getByText("Rendered 1").waitFor();
    await isPressed(choice("Soup"));

    await choice("Another").click();
    await choice("Tea").click();
    await isPressed(choice("Tea"));
    assert.equal(await choice("Soup").count(), 0);
    assert.deepEqual((await seen()).at(-1), [polls[1].choices[0].item_id]);
    await choice("None").click();
    await page.locator("tally-poll").waitFor({ state: "detached" });
    assert.deepEqual(warnings, []);
    assert.deepEqual(page.errors, []);
  });
}
