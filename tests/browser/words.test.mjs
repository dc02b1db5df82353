// The files with the elements' words: each has the keys, the placeholders and the plural forms that it needs, and is
// served. No server and no browser.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { test } from "node:test";

const LARGEST = 1000; // the numbers that are tried
const read = (path) => readFile(new URL(`../../src/web/pages/${path}`, import.meta.url), "utf8");
const files = (await readdir(new URL("../../src/web/pages/embed/words/", import.meta.url))).map((name) => name.replace(/\.js$/, "")).sort();
const load = async (name) => {
  const source = (await read(`embed/words/${name}.js`)).replace("const ENGLISH =", "export default");
  return (await import(`data:text/javascript,${encodeURIComponent(source)}`)).default;
};
const english = await load("en");
const all = new Map(await Promise.all(files.map(async (name) => [name, await load(name)])));
const forms = (text) => Object.entries(typeof text === "string" ? { other: text } : text);
const placeholders = (text) => [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name).sort();
const plain = (text) => text.replace(/\{\w+\}/g, "");

// Written alike in English.
const ALIKE = new Set(["fr votes"]);
// What these numbers count is never zero.
const NEVER_ZERO = new Set(["chooseUpTo"]);
const numbersOf = (language, category, key) => {
  const rules = new Intl.PluralRules(language);
  return [...Array(LARGEST + 1).keys()].filter((n) => (n > 0 || !NEVER_ZERO.has(key)) && rules.select(n) === category);
};

test("every file of words is one that words.js fetches and that the server has", async () => {
  const fetched = [...(await read("embed/words.js")).matchAll(/^ {2}"?([\w-]+)"?: "\/assets\/words-([\w-]+)\.js",$/gm)].map(([, tag, file]) => (assert.equal(tag, file), file));
  const served = [...(await read("assets.rs")).matchAll(/"words-([\w-]+)\.js",\s*SCRIPT,\s*&\[include_bytes!\("embed\/words\/([\w-]+)\.js"\)\]/g)].map(([, name, file]) => (assert.equal(name, file), file));
  const others = files.filter((name) => name !== "en");
  assert.ok(others.length >= 14, String(others));
  assert.deepEqual(fetched.sort(), others);
  assert.deepEqual(served.sort(), others);
  for (const name of files) assert.deepEqual([name, ...Intl.PluralRules.supportedLocalesOf(name)], [name, name]);
});

test("every language has exactly the keys of English, in the same order, each in its own words", () => {
  for (const [name, words] of all) {
    assert.deepEqual(Object.keys(words), Object.keys(english), name);
    if (name === "en") continue;
    const hasWords = (key) => forms(english[key]).some(([, text]) => /\p{L}/u.test(plain(text)));
    const same = Object.keys(words).filter((key) => hasWords(key) && !ALIKE.has(`${name} ${key}`) && JSON.stringify(words[key]) === JSON.stringify(english[key]));
    assert.deepEqual(same, [], `${name} has these in English`);
  }
});

test("every text has the placeholders of English, and leaves a number out only in a form for this number alone", () => {
  for (const [name, words] of all) {
    for (const [key, text] of Object.entries(words)) {
      const expected = placeholders(forms(english[key]).find(([category]) => category === "other")[1]);
      for (const [category, form] of forms(text)) {
        const isForOne = category !== "other" && numbersOf(name, category, key).length === 1;
        const may = isForOne ? [expected, expected.filter((one) => one !== "n")] : [expected];
        assert.ok(may.some((one) => String(one) === String(placeholders(form))), `${name}: ${key}, ${category}: ${form}`);
      }
    }
  }
});

test("plural forms are of categories that the language has, and one of them is for all other numbers", () => {
  for (const [name, words] of all) {
    const categories = new Intl.PluralRules(name).resolvedOptions().pluralCategories;
    for (const [key, text] of Object.entries(words)) {
      const given = forms(text).map(([category]) => category);
      assert.ok(given.includes("other"), `${name}: ${key} has no form for other numbers`);
      assert.deepEqual(given.filter((category) => !categories.includes(category)), [], `${name}: ${key}`);
      // A text that depends on a number does so in English too.
      if (typeof text !== "string") assert.equal(typeof english[key], "object", `${name}: ${key}`);
      for (const category of given) assert.ok(category === "other" || numbersOf(name, category, key).length > 0, `${name}: ${key}, ${category}`);
    }
  }
});

test("a sentence of English is a sentence in every language, and no text has blanks around it", () => {
  for (const [name, words] of all) {
    for (const [key, text] of Object.entries(words)) {
      const isSentence = /[.?]$/.test(forms(english[key])[0][1]);
      for (const [, form] of forms(text)) {
        assert.equal(form, form.trim(), `${name}: ${key}`);
        assert.doesNotMatch(form, /['"]|\s\s/, `${name}: ${key}`);
        assert.equal(/[.?。？।؟]$/u.test(form), isSentence, `${name}: ${key}: ${form}`);
      }
    }
  }
});

test("every word that an element asks for is there", async () => {
  const scripts = (await readdir(new URL("../../src/web/pages/embed/", import.meta.url))).filter((name) => name.endsWith(".js"));
  const asked = (await Promise.all(scripts.map((name) => read(`embed/${name}`)))).flatMap((source) => [...source.matchAll(/(?:\.text|\bnote)\("(\w+)"/g)].map(([, key]) => key));
  assert.ok(asked.length > 20, String(asked));
  assert.deepEqual(asked.filter((key) => !(key in english)), []);
});
