// Small things that every part uses: elements, icons, verdicts, words. Text is set as text, always.

const $$ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const SVG = "http://www.w3.org/2000/svg";

const PATHS = {
  cross: "M5 5l14 14M19 5L5 19",
  tick: "M4 13l5 5L20 6",
  down: "M12 4v15m0 0l-6-6m6 6l6-6",
  question: "M8 9a4 4 0 1 1 5.5 3.7c-1 .5-1.5 1-1.5 2.3m0 4h.01",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
  dash: "M5 12h14",
};

// verdict -> the word, a short one for the grid, its icon and its look: never colour alone
const VERDICTS = {
  exact: ["EXACT", "exact", "tick", "good"],
  oversold: ["OVERSOLD", "over", "cross", "bad"],
  undersold: ["UNDERSOLD", "under", "down", "odd"],
  deadlock: ["DEADLOCK", "dead", "lock", "odd"],
  not_run: ["NOT RUN", "not run", "dash", "calm"],
  unknown: ["UNKNOWN", "open", "question", "odd"],
};

// what the judge may find, in words
const FOUND = {
  lost_update: "decrements were erased by another write",
  overlap: "two holders were inside together",
  stale_write: "an order was written over a stock that others had changed since it was read",
  lost_ack: "an answer named an order that does not exist",
  false_sold_out: "a buyer was answered sold out while there was stock",
  false_refusal: "a buyer was refused and has an order",
  fence_fell: "a fence was not above the one before it",
  ghost_order: "an order that nobody asked for",
  double_order: "one attempt has two orders",
  orphan_lock: "a lock is still there, and nobody holds it",
};

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

function verdictOf(run) {
  return VERDICTS[run.verdict] || [String(run.verdict).toUpperCase(), "?", "question", "odd"];
}

function badge(run) {
  const [word, , sign, look] = verdictOf(run);
  return element("span", { class: `badge ${look}` }, icon(sign), word);
}

function table(heads, rows, numbersFrom) {
  const cell = (name, text, column, more = {}) =>
    element(name, column >= numbersFrom ? { class: "number", ...more } : more, text);
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...heads.map((h, i) => cell("th", h, i, { scope: "col" })))),
    element(
      "tbody",
      {},
      ...rows.map((row) =>
        element("tr", {}, ...row.map((text, i) => (i ? cell("td", text, i) : cell("th", text, i, { scope: "row" })))),
      ),
    ),
  );
}

const seconds = (ms) => `${(ms / 1000).toFixed(3)} s`;
// Pixels of the charts' text: with the page's, which grows with the screen.
const fontSize = () => Math.round(parseFloat(getComputedStyle(document.documentElement).fontSize) * 0.78);
// A canvas does not inherit a font.
const chartText = () => ({ color: css("--ink"), fontSize: fontSize(), fontFamily: getComputedStyle(document.body).fontFamily });
const words = (name) => name.replaceAll("_", " ");
const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;
