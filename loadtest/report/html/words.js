// What the report says and draws text with, beside assets/dom.js.

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
  foreign_key: "somebody bought who is none of the run's buyers",
  double_order: "one attempt has two orders",
  orphan_lock: "a lock is still there, and nobody holds it",
};

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
