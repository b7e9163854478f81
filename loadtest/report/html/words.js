// What the report says and draws text with, besides assets/dom.js.

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
