// The elements on pages that are built in different ways: a style of its own for each. What such styles may set in an
// element is what it inherits, and what they say about the element itself. HOSTS=folder keeps a picture of each.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { STATE_LEAST, TEXT_LEAST, close, contrasts, eventually, faults, fits, host, open, person, tally } from "./harness.mjs";

before(open);
after(close);

const TARGET_LEAST_PX = 24; // the least size of a control
const kept = process.env.HOSTS;

// What some frameworks set where a page's styles reach: on every element, on the page, and on plain tags.
const BOOTSTRAP = `*, *::before, *::after { box-sizing: border-box; }
  body { margin: 0; font-family: system-ui, "Segoe UI", Roboto, sans-serif; font-size: 1rem; font-weight: 400; line-height: 1.5; color: #212529; background-color: #fff; }
  h1, h2, h3 { margin-top: 0; margin-bottom: 0.5rem; font-weight: 500; line-height: 1.2; } ul { padding-left: 2rem; margin-top: 0; margin-bottom: 1rem; }
  button { border-radius: 0; text-transform: none; } [type="button"]:not(:disabled) { cursor: pointer; }
  [data-bs-theme="dark"] { color-scheme: dark; } [data-bs-theme="dark"] body { color: #dee2e6; background-color: #212529; }`;
const PREFLIGHT = `*, ::after, ::before { box-sizing: border-box; margin: 0; padding: 0; border: 0 solid; }
  html { line-height: 1.5; tab-size: 4; font-family: ui-sans-serif, system-ui, sans-serif; } h1, h2, h3 { font-size: inherit; font-weight: inherit; }
  ol, ul, menu { list-style: none; } svg, img, video { display: block; vertical-align: middle; } a { color: inherit; text-decoration: inherit; }
  button, input { font: inherit; letter-spacing: inherit; color: inherit; border-radius: 0; background-color: transparent; opacity: 1; }`;
const RESET = `html, body, div, span, h1, h2, h3, p, ul, li, label, form, button, input, main { margin: 0; padding: 0; border: 0; font: inherit; font-size: 100%; vertical-align: baseline; }
  body { line-height: 1; } ul { list-style: none; }`;
const HOSTS = {
  "no style": {},
  "a reset": { style: RESET },
  bootstrap: { style: BOOTSTRAP },
  "bootstrap, dark": { style: BOOTSTRAP, html: 'lang="en" data-bs-theme="dark"' },
  "tailwind's preflight": { style: PREFLIGHT },
  "tailwind's preflight, dark": { style: `${PREFLIGHT} body { background: #0f172a; color: #cbd5e1; }` },
  "rem of 10 pixels": { style: "html { font-size: 62.5%; } body { font: 1.6rem/1.5 system-ui, sans-serif; }" },
  "rem of 10 pixels, and no other size": { style: "html { font-size: 62.5%; }" },
  "dark by class": { style: ".dark { background: #15171c; color: #e6e6e6; }", html: 'lang="en" class="dark"' },
  "dark green": { style: "body { background: #0a4a2c; color: #fff; }" },
  "serif on paper": { style: "body { background: #fdf6e3; color: #5c4b37; font: 18px/1.7 Georgia, serif; }" },
  "grey text": { style: "body { color: #666; background: #fff; font: 300 15px/1.6 Helvetica, Arial, sans-serif; }" },
  "large print": { style: "html { font-size: 200%; }" },
  "rules with !important": { style: "* { color: #2b2b45 !important; line-height: 1.1 !important; letter-spacing: 0.02em !important; text-align: center !important; }" },
  "capitals, centred": { style: "body { text-align: center; text-transform: uppercase; letter-spacing: 0.05em; font-weight: 700; }" },
  "right to left": { style: "body { font-family: system-ui, sans-serif; }", html: 'lang="he" dir="rtl"' },
};

const page = (name, elements, { style = "", html = 'lang="en"' }) => host(name.replace(/\W+/g, "-"), `<!doctype html>
  <html ${html}><head><meta charset="utf-8"><title>${name}</title><meta name="viewport" content="width=device-width, initial-scale=1">
  <style>${style}</style><script type="module" src="${tally.base}/embed.js"></script></head>
  <body><main><h1>News</h1><h2>Votes</h2><p id="text">A page with words of its own.</p>${elements}</main></body></html>`);

async function make() {
  const item = await tally.newItem({ name: "A fountain in the park" });
  const full = await tally.newItem({ name: "A seat on the bus", max_votes: 1 });
  const like = await tally.newItem({ name: "A like", down_votes: false });
  const polls = {
    one: await tally.newPoll({ title: "Lunch on Friday?", choices: ["Soup of the day", "A salad with everything that the garden has, and bread", "Nothing"] }),
    several: await tally.newPoll({ title: "Which days?", choices: ["Monday", "Friday"], max_choices: 0 }),
    closed: await tally.newPoll({ title: "Closed already", closes_at: "2030-01-01T00:00:00Z" }),
    ballots: await tally.newPoll({ title: "The board", choices: ["Yes", "No"], by_ballot: true }),
    emoji: await tally.newPoll({ title: "Emoji", choices: ["👍", "❤️", "😂", "🎉"], max_choices: 0 }),
  };
  await tally.vote(item, "bob");
  await tally.vote(full, "bob");
  for (const voter of ["ada", "bob", "eve"]) await tally.choose(polls.one, voter, voter === "eve" ? 1 : 0);
  await tally.choose(polls.closed, "ada", 1);
  await tally.choose(polls.emoji, "ada", 1);
  await tally.call("PATCH", `/v1/polls/${polls.closed.id}`, { closes_at: new Date().toISOString() });
  await eventually(async () => (await tally.call("GET", `/v1/items/${item}/history?over=day`)).spans.length > 0);
  const of = ({ id }) => `<tally-poll poll="${id}"></tally-poll>`;
  return {
    polls,
    elements: `<p>It has <tally-count item="${item}"></tally-count> votes.</p><tally-vote item="${item}"></tally-vote><tally-vote item="${full}"></tally-vote>
      <tally-vote item="${like}" no-name></tally-vote>${of(polls.one)}${of(polls.several)}${of(polls.closed)}${of(polls.ballots)}
      <tally-reactions poll="${polls.emoji.id}"></tally-reactions><tally-history item="${item}"></tally-history>`,
  };
}

test("on every page the elements take its font and colour, are read well, and fit", async () => {
  const { polls, elements } = await make();
  const poll = (page, name) => page.locator(`tally-poll[poll="${polls[name].id}"]`);
  for (const [name, style] of Object.entries(HOSTS)) {
    const visitor = await person({ viewport: { width: 640, height: 1500 }, reducedMotion: "reduce" });
    await visitor.goto(page(name, elements, style));
    const buttons = [
      poll(visitor, "one").getByRole("button", { name: /^Soup/ }),
      poll(visitor, "several").getByRole("button", { name: /^Monday/ }),
      visitor.getByRole("button", { name: /👍/ }),
      visitor.locator("tally-vote[no-name]").getByRole("button"),
    ];
    for (const button of buttons) {
      await button.click();
      await visitor.locator('[aria-pressed="true"]').and(button).waitFor();
    }
    await visitor.locator("tally-history").getByRole("img").waitFor();
    // What a visitor's system prefers says nothing about such a page.
    for (const colorScheme of ["light", "dark"]) {
      await visitor.emulateMedia({ colorScheme });
      const where = `${name}, ${colorScheme}`;
      if (kept) await visitor.screenshot({ path: `${kept}/${where.replace(/\W+/g, "-")}.png`, fullPage: true });
      assert.deepEqual(await faults(visitor), [], where);
      const measured = await contrasts(visitor);
      assert.ok(measured.filter((one) => one.isText).length > 20 && measured.some((one) => !one.isText), `${where}: ${measured.length}`);
      const faint = measured.filter((one) => one.contrast < (one.isText ? TEXT_LEAST : STATE_LEAST));
      assert.deepEqual(faint, [], where);
      const others = await visitor.evaluate(() => {
        const looks = (one) => {
          const { color, fontFamily, fontSize } = getComputedStyle(one);
          return [color, fontFamily, fontSize].join();
        };
        const own = looks(document.querySelector("#text"));
        return [...document.querySelectorAll("tally-poll, tally-vote, tally-reactions")].filter((one) => looks(one) !== own).map((one) => one.localName);
      });
      assert.deepEqual(others, [], `${where}: another font or colour than the text beside it`);
    }
    const small = await visitor.getByRole("button").evaluateAll((all, least) => all.filter((one) => {
      const { width, height } = one.getBoundingClientRect();
      return width > 0 && Math.min(width, height) < least;
    }).map((one) => one.outerHTML.slice(0, 80)), TARGET_LEAST_PX);
    assert.deepEqual(small, [], name);
    await fits(visitor, name);
    await visitor.setViewportSize({ width: 320, height: 256 });
    await fits(visitor, `${name}, enlarged to 400%`);
    if (kept) await visitor.screenshot({ path: `${kept}/${name.replace(/\W+/g, "-")}-narrow.png`, fullPage: true });
    assert.deepEqual(visitor.errors, [], name);
    await visitor.context().close();
  }
});

test("whatever accent a page sets, what is written on it is read well", async () => {
  const item = await tally.newItem({ name: "Accents" });
  const poll = await tally.newPoll({ title: "Accents?" });
  for (const accent of ["#ffd400", "#0a0a0a", "#ffffff", "#00c2a8", "rgb(200 0 0)", "hsl(280 80% 60%)", "#777"]) {
    const visitor = await person();
    await visitor.goto(page("accent", `<tally-vote item="${item}"></tally-vote><tally-poll poll="${poll.id}"></tally-poll>`, { style: `body { --tally-accent: ${accent}; }` }));
    for (const button of [visitor.getByRole("button", { name: "Vote up: Accents" }), visitor.getByRole("button", { name: /^Soup/ })]) {
      await button.click();
      await visitor.locator('[aria-pressed="true"]').and(button).waitFor();
    }
    const marks = (await contrasts(visitor)).filter((one) => one.what.includes("mark") && one.isPressed);
    assert.equal(marks.length, 2, JSON.stringify(marks));
    assert.deepEqual(marks.filter((one) => one.contrast < TEXT_LEAST), [], accent);
    await visitor.context().close();
  }
});
