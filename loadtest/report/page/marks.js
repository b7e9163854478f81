// The marks of the timeline, which look the same in the chart and in its legend.

import { $, css, element, icon } from "../../../demo/static/assets/dom.js";

/**
 * The look of a mark, which is a bar or a sign.
 * @typedef {object} Mark
 * @property {string} title
 * @property {string} color The name of a custom property.
 * @property {number} [bar] The height of the bar, as a part of its lane's.
 * @property {"cross" | "square" | "circle" | "diamond"} [sign]
 * @property {boolean} [filled]
 * @property {boolean} [hatched]
 */

/** Size of the charts' text, as a part of the page's. */
const FONT_PART = 0.78;

/** @type {Record<string, Mark>} */
export const MARKS = {
  wait: { title: "waiting for an answer", color: "--wait", bar: 0.5 },
  hold: { title: "holding the lock", color: "--hold", bar: 0.86 },
  section: { title: "from the read to the commit", color: "--section", bar: 0.36 },
  sold: { title: "committed", color: "--good", sign: "circle", filled: true },
  stale: { title: "stale write: it erased decrements", color: "--bad", sign: "diamond", filled: true },
  open: { title: "a commit whose outcome is unknown", color: "--odd", sign: "circle" },
  refused: { title: "refused: sold out", color: "--quiet", sign: "cross" },
  turned: { title: "refused: busy, lost, full, unavailable", color: "--odd", sign: "cross" },
  unknown: { title: "no answer, or an open one", color: "--odd", sign: "square" },
  overlap: { title: "two holders at a time", color: "--bad", bar: 1, hatched: true },
};

/** The mark of a commit, by its state: CommitState of lanes.py. */
export const COMMIT_MARKS = ["open", "sold", "stale"];

/**
 * Return a time as text, in seconds.
 * @param {number} ms
 * @returns {string}
 */
export function formatSeconds(ms) {
  return `${(ms / 1000).toFixed(3)} s`;
}

/**
 * Return the size of the charts' text in pixels. The size of the page's text depends on the screen.
 * @returns {number}
 */
export function fontSize() {
  return Math.round(parseFloat(getComputedStyle(document.documentElement).fontSize) * FONT_PART);
}

/**
 * Return the look of a chart's text. A canvas does not inherit a font.
 * @returns {Record<string, any>}
 */
export function chartText() {
  return { color: css("--ink"), fontSize: fontSize(), fontFamily: getComputedStyle(document.body).fontFamily };
}

/**
 * Return the name of an answer's mark; null if the answer has none.
 * @param {string} outcome
 * @returns {string | null}
 */
export function markOfOutcome(outcome) {
  if (outcome === "sold") return null; // the commit has a mark of its own
  if (outcome === "sold_out") return "refused";
  return outcome === "unknown" ? "unknown" : "turned";
}

/**
 * Return the icon of a mark for the legend: a sign, or a short bar.
 * @param {Mark} mark
 * @returns {SVGElement}
 */
function makeSwatch({ color, bar, sign, filled, hatched }) {
  const svg = icon(sign ?? "dash");
  svg.setAttribute("viewBox", bar ? "5 8 14 8" : "2 2 20 20");
  svg.setAttribute("class", "swatch");
  Object.assign(svg.style, {
    fill: filled ? `var(${color})` : "none",
    stroke: filled ? "none" : `var(${color})`,
    strokeWidth: bar ? bar * 8 : 3,
    strokeDasharray: hatched ? "1.5 1" : "none",
  });
  return svg;
}

/**
 * Fill the legend with the marks that the chart has.
 * @param {{ id: string, data: unknown[] }[]} series
 */
export function fillLegend(series) {
  const names = Object.keys(MARKS).filter((name) => series.some(({ id, data }) => id === name && data.length));
  $("legend").replaceChildren(...names.map((name) => element("li", {}, makeSwatch(MARKS[name]), MARKS[name].title)));
}
