// Words in the language of the page. English is here; the file of another language is fetched when the first element
// needs it. Numbers and dates follow the same language.
const FILES = {
  // Each has a file in words/. A language in two scripts has two: zh-TW is zh-Hant.
  ar: "/assets/words-ar.js",
  de: "/assets/words-de.js",
  es: "/assets/words-es.js",
  fr: "/assets/words-fr.js",
  he: "/assets/words-he.js",
  hi: "/assets/words-hi.js",
  it: "/assets/words-it.js",
  ja: "/assets/words-ja.js",
  nl: "/assets/words-nl.js",
  pl: "/assets/words-pl.js",
  pt: "/assets/words-pt.js",
  tr: "/assets/words-tr.js",
  zh: "/assets/words-zh.js",
  "zh-Hant": "/assets/words-zh-Hant.js",
};

// By the name of its file: the words of a language, or a promise of them.
const known = new Map([["en", ENGLISH]]);
// Names of files that are asked for again later.
const retrying = new Set();
// By language tag, once the words are there.
const spoken = new Map();
// By language tag, made when the first number is shown.
const plurals = {};

// The language tag that applies to an element, also within shadow roots of the page: "de-AT". Empty without a good one.
function tagOf(element) {
  for (let one = element; one; one = one.getRootNode().host) {
    const holder = one.closest("[lang]");
    if (!holder) continue;
    try {
      return Intl.getCanonicalLocales(holder.getAttribute("lang").trim())[0] ?? "";
    } catch {
      return ""; // no language tag
    }
  }
  return "";
}

// The file that has the words for a tag.
function fileOf(tag) {
  const [language] = tag.split("-");
  // Asked only where it differs, since it takes a browser some ms.
  return language === "zh" && new Intl.Locale(tag).maximize().script === "Hant" ? "zh-Hant" : language;
}

// The page's own words for a tag. Words for "de" apply to "de-AT" too, unless it has its own.
function ownWords(tag) {
  const isFor = (key) => `${tag}-`.toLowerCase().startsWith(`${key}-`.toLowerCase());
  const keys = Object.keys(settings.words ?? {}).filter(isFor);
  return Object.assign({}, ...keys.sort((a, b) => a.length - b.length).map((key) => settings.words[key]));
}

// What is written from right to left, or makes other text so.
const RIGHT_TO_LEFT = /[\u0590-\u08ff\u200f\u202b\u202e\u2067\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

// Words, numbers and dates for one element.
class Words {
  constructor(tag) {
    const asked = tag || "en";
    const words = known.get(fileOf(asked));
    const isKnown = words !== undefined && !(words instanceof Promise);
    this.own = ownWords(asked);
    this.words = isKnown ? words : ENGLISH;
    // The page's language: that of names.
    this.page = tag;
    // What the words themselves are in: the page's language, or English.
    this.tag = isKnown || Object.keys(this.own).length > 0 ? asked : "en";
  }
  // Without this, a language that the browser does not know would have the numbers of the browser's own.
  get locale() {
    return (this.found ??= Intl.NumberFormat.supportedLocalesOf(this.page || "en")[0] ?? "en");
  }
  // A text with its values put in. `n` chooses the plural; it and other numbers are written as the language does.
  text(key, values = {}) {
    let text = this.own[key] ?? this.words[key];
    const tag = text === undefined || text === ENGLISH[key] ? "en" : this.tag;
    text ??= ENGLISH[key] ?? "";
    if (typeof text === "object") text = text[(plurals[tag] ??= new Intl.PluralRules(tag)).select(values.n ?? 0)] ?? text.other ?? "";
    const isMixed = RIGHT_TO_LEFT.test(text) || Object.values(values).some((value) => RIGHT_TO_LEFT.test(value));
    return text.replace(/\{(\w+)\}/g, (whole, name) => {
      if (!(name in values)) return whole;
      if (typeof values[name] === "number") return this.number(values[name]);
      // A name in other letters must not move what stands around it. These two characters isolate it, and show nothing.
      return isMixed ? `\u2068${values[name]}\u2069` : values[name];
    });
  }
  // Sentences after each other, without the empty ones. A full stop of Chinese and Japanese brings its own blank.
  sentences(all) {
    return all.filter(Boolean).join(" ").replace(/([。？！]) /g, "$1");
  }
  number(value) {
    // A browser takes 20 ms for its first formatter, and English needs none here.
    if (Math.abs(value) < 1000 && /^(en(?!.*-u-)|$)/.test(this.page)) return String(value);
    return (this.numbers ??= new Intl.NumberFormat(this.locale)).format(value);
  }
  percent(share) {
    return share.toLocaleString(this.locale, { style: "percent" });
  }
  // With the time zone, which a reader elsewhere could not know.
  when(text) {
    const options = { year: "numeric", month: "short", day: "numeric", hour: "numeric", minute: "2-digit", timeZoneName: "short" };
    return new Date(text).toLocaleString(this.locale, options);
  }
  // How long something takes: 12 minutes, or 4:59.
  duration(ms) {
    if (ms > SECONDS_FROM_MS) return Math.ceil(ms / MINUTE_MS).toLocaleString(this.locale, { style: "unit", unit: "minute", unitDisplay: "long" });
    const seconds = Math.max(0, Math.ceil(ms / SECOND_MS));
    return `${this.number(Math.floor(seconds / 60))}:${(seconds % 60).toLocaleString(this.locale, { minimumIntegerDigits: 2 })}`;
  }
  time(at) {
    return new Date(at).toLocaleTimeString(this.locale, { timeStyle: "short" });
  }
}

// The words for a language tag, or a promise of them while their file is fetched. Without the file they are English.
function wordsFor(tag) {
  if (spoken.has(tag)) return spoken.get(tag);
  const file = fileOf(tag || "en");
  if (FILES[file] && !known.has(file)) {
    const fetched = load(FILES[file]).then(
      (words) => known.set(file, words.default),
      () => {
        known.delete(file);
        again += "?";
        if (retrying.has(file)) return;
        retrying.add(file);
        setTimeout(() => {
          retrying.delete(file);
          speaking.forEach((one) => fileOf(one.tag) === file && one.learn());
        }, RETRY_MOST_MS);
      },
    );
    known.set(file, fetched);
  }
  const held = known.get(file);
  if (held instanceof Promise) return held.then(() => (known.has(file) ? wordsFor(tag) : new Words(tag)));
  spoken.set(tag, new Words(tag));
  return spoken.get(tag);
}
