// A table, and the texts of a run that several tables show.

/** @import { Run } from "./data.js" */

import { VERDICTS, element, words } from "../../../demo/static/assets/dom.js";

/** @typedef {string | Node | null} Cell */

/** `numbersFrom` of a table without columns of numbers. */
export const NO_NUMBERS = Infinity;

/**
 * Return a table. The first row and the first column are headings, but for empty cells.
 * @param {Cell[]} heads The first row.
 * @param {Cell[][]} rows The other rows.
 * @param {number} numbersFrom The index of the first column of numbers; all later ones have numbers, too.
 * @param {Record<string, string>} [attributes]
 * @returns {HTMLTableElement}
 */
export function table(heads, rows, numbersFrom, attributes = {}) {
  /** @type {(cells: Cell[], scope: "row" | "col") => HTMLElement} */
  const row = (cells, scope) => {
    const items = cells.map((cell, column) => {
      const numberClass = column >= numbersFrom ? { class: "number" } : {};
      const isHead = cell && (scope === "col" || column === 0);
      return isHead ? element("th", { ...numberClass, scope }, cell) : element("td", numberClass, cell);
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
 * Return a note with the expected verdict if the run has another one, otherwise null.
 * @param {Run} run
 * @returns {HTMLElement | null}
 */
export function expectedNote(run) {
  return run.as_expected ? null : element("span", { class: "surprise" }, ` expected ${words(run.expected)}`);
}
