// What the tests of languages share: the words of each language's file, and how a page says them.
import { readFile, readdir } from "node:fs/promises";

const FOLDER = new URL("../../src/web/pages/embed/words/", import.meta.url);
const RIGHT_TO_LEFT = ["ar", "he"];

// By the names of the files, so that a new language is in the tests by itself.
export const languages = (await readdir(FOLDER)).map((name) => name.replace(/\.js$/, "")).sort();
export const words = Object.fromEntries(await Promise.all(languages.map(async (name) => {
  const source = (await readFile(new URL(`${name}.js`, FOLDER), "utf8")).replace("const ENGLISH =", "export default");
  return [name, (await import(`data:text/javascript,${encodeURIComponent(source)}`)).default];
})));
// The attributes of a page in a language.
export const html = (tag) => `lang="${tag}"${RIGHT_TO_LEFT.includes(tag.split("-")[0]) ? ' dir="rtl"' : ""}`;
// Without the characters that isolate a name.
export const bare = (text) => text.replace(/[\u2068\u2069]/g, "");
const form = (language, key, n) => {
  const one = words[language][key];
  return typeof one === "object" ? (one[new Intl.PluralRules(language).select(n)] ?? one.other) : one;
};
// A text of a file, with numbers as the language writes them.
export function text(language, key, values = {}, tag = language) {
  return form(language, key, values.n).replace(/\{(\w+)\}/g, (_, name) => (typeof values[name] === "number" ? values[name].toLocaleString(tag) : values[name]));
}
// The same as a pattern. A value that is not given is any text.
export function pattern(language, key, values = {}) {
  const plain = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const parts = form(language, key, values.n).split(/\{(\w+)\}/); // texts, and names between them
  const value = (name) => values[name]?.source ?? (name in values ? plain(typeof values[name] === "number" ? values[name].toLocaleString(language) : values[name]) : ".+?");
  return new RegExp(parts.map((part, at) => (at % 2 ? value(part) : plain(part))).join(""), "u");
}
