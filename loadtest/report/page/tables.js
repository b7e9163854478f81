// A table, and what the tables of runs show of a run.

/** @import { Run } from "./data.js" */

import { VERDICTS, element, words } from "../../../demo/static/assets/dom.js";

/** @typedef {string | Node | null} Cell */

/**
 * Return a table whose first column has heads. An empty text heads nothing.
 * @param {Cell[]} heads
 * @param {Cell[][]} rows
 * @param {number} numbersFrom The first column of numbers.
 * @param {Record<string, string>} [attributes]
 * @returns {HTMLTableElement}
 */
export function table(heads, rows, numbersFrom, attributes = {}) {
  /** @type {(cells: Cell[], scope: "row" | "col") => HTMLElement} */
  const row = (cells, scope) => {
    const items = cells.map((cell, column) => {
      const look = column >= numbersFrom ? { class: "number" } : {};
      const isHead = cell && (scope === "col" || !column);
      return isHead ? element("th", { ...look, scope }, cell) : element("td", look, cell);
    });
    return element("tr", {}, ...items);
  };
  const body = element("tbody", {}, ...rows.map((cells) => row(cells, "row")));
  return element("table", attributes, element("thead", {}, row(heads, "col")), body);
}

/**
 * Return the verdicts of some runs, each once, in the order of VERDICTS.
 * @param {Run[]} runs
 * @returns {string[]}
 */
export function verdictsIn(runs) {
  return Object.keys(VERDICTS).filter((name) => runs.some((run) => run.verdict === name));
}

/**
 * Return the name of a run in a table of runs.
 * @param {Run} run
 * @returns {string}
 */
export function nameOfRun(run) {
  return run.fault === "rush-one-process" ? `${run.lock} (one process)` : run.lock;
}

/**
 * Return the expected verdict of a run that has another one, otherwise null.
 * @param {Run} run
 * @returns {HTMLElement | null}
 */
export function surprise(run) {
  return run.as_expected ? null : element("span", { class: "surprise" }, ` expected ${words(run.expected)}`);
}
