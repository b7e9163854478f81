// The verdicts: a table of runs, or a grid of strategies by faults. Each opens its timeline.

/** @import { Figures, ReportData, Run } from "./data.js" */

import { $, VERDICTS, badge, element, icon, lookOf, signOf, words } from "../../../demo/static/assets/dom.js";
import { nameOfRun, surprise, table, verdictsIn } from "./tables.js";

const LOST_UPDATES =
  "Lost updates: decrements that another write erased. Two buyers read the same stock, and both write it back less one.";
const GRID = { role: "grid", class: "grid", "aria-labelledby": "verdicts-title" };
/** @type {Record<string, [rows: number, columns: number]>} */
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/**
 * Return the button that opens a run.
 * @param {number} number
 * @param {string} look
 * @param {Record<string, any>} attributes
 * @param {...(string | Node | null)} children
 * @returns {HTMLButtonElement}
 */
function opener(number, look, attributes, ...children) {
  return element("button", { type: "button", class: `opens ${look}`, "data-run": number, ...attributes }, ...children);
}

/**
 * @param {Run[]} runs
 * @param {Figures} figures
 * @returns {HTMLTableElement}
 */
function tableOfRuns(runs, { heads, rows }) {
  const lines = runs.map((run, number) => {
    const verdict = element("span", {}, badge(run.verdict), surprise(run));
    return [opener(number, "", {}, nameOfRun(run)), verdict, ...rows[number]];
  });
  return table(heads, lines, 2);
}

/**
 * @param {Run} run
 * @param {number} number
 * @returns {HTMLButtonElement}
 */
function cellOf(run, number) {
  const mark = run.as_expected ? null : element("span", { "aria-hidden": "true" }, "!");
  const expected = run.as_expected ? "as expected" : `expected ${words(run.expected)}`;
  const title = `${run.lock} under ${run.fault}: ${words(run.verdict)}, ${expected}`;
  const look = `cell ${lookOf(run.verdict)} ${run.as_expected ? "" : "off"}`;
  return opener(number, look, { title, "aria-label": title, tabindex: -1 }, icon(signOf(run.verdict)), mark);
}

/**
 * Explain the signs of the grid: those that are there.
 * @param {Run[]} runs
 */
function fillKey(runs) {
  const items = verdictsIn(runs).map((name) => {
    const [sign, look, meaning] = VERDICTS[name];
    const cell = element("span", { class: `cell ${look}` }, icon(sign));
    return element("li", {}, cell, element("span", {}, element("strong", {}, words(name)), `: ${meaning}`));
  });
  if (runs.some((run) => !run.as_expected)) {
    items.push(element("li", {}, element("span", { class: "cell off" }, "!"), "not the verdict that was expected"));
  }
  $("verdicts-key").replaceChildren(...items);
  $("verdicts-key").hidden = false;
}

/**
 * @param {Run[]} runs
 * @param {string[]} faults
 * @returns {HTMLTableElement}
 */
function gridOfRuns(runs, faults) {
  /** @type {Record<string, (string | Node)[]>} */
  const rows = {};
  runs.forEach((run, number) => {
    rows[run.lock] ??= [run.lock, ...faults.map(() => "")];
    rows[run.lock][faults.indexOf(run.fault) + 1] = cellOf(run, number);
  });
  const heads = ["", ...faults.map((fault) => element("span", {}, fault))];
  const grid = table(heads, Object.values(rows), Infinity, GRID);
  const [button] = grid.getElementsByTagName("button");
  button.tabIndex = 0;
  grid.addEventListener("keydown", moveInGrid);
  return grid;
}

/**
 * Move by an arrow key, over empty places. One cell of the grid is in the tab order.
 * @param {KeyboardEvent} event
 */
function moveInGrid(event) {
  const move = MOVES[event.key];
  let cell = /** @type {HTMLElement} */ (event.target).closest("td");
  if (!move || !cell) return;
  event.preventDefault();
  const { rows } = /** @type {HTMLTableSectionElement} */ (cell.closest("tbody"));
  do {
    const row = /** @type {HTMLTableRowElement} */ (cell.parentElement);
    cell = /** @type {HTMLTableCellElement | undefined} */ (rows[row.sectionRowIndex + move[0]]?.cells[cell.cellIndex + move[1]]) ?? null;
  } while (cell?.matches("td:empty"));
  if (cell?.tagName === "TD") takeFocus(/** @type {HTMLElement} */ (cell.firstChild));
}

/**
 * Focus the button of a run; in the grid it takes the place of the one in the tab order.
 * @param {HTMLElement} button
 */
export function takeFocus(button) {
  const inTabOrder = button.closest(".grid")?.querySelector("button[tabindex='0']");
  if (inTabOrder) {
    /** @type {HTMLElement} */ (inTabOrder).tabIndex = -1;
    button.tabIndex = 0;
  }
  button.focus();
}

/**
 * Say what each fault does, in a sentence.
 * @param {string[]} faults
 * @param {Record<string, string>} effects
 */
function fillFaults(faults, effects) {
  const explained = faults.filter((fault) => effects[fault]);
  const terms = explained.flatMap((fault) => [element("dt", {}, fault), element("dd", {}, effects[fault])]);
  $("faults-list").replaceChildren(...terms);
  $("faults").hidden = false;
}

/**
 * Return the faults of the runs: in the order of their explanations, those without one last.
 * @param {Run[]} runs
 * @param {Record<string, string>} effects
 * @returns {string[]}
 */
function faultsOf(runs, effects) {
  const present = new Set(runs.map((run) => run.fault));
  return [...new Set([...Object.keys(effects), ...present])].filter((fault) => present.has(fault));
}

/**
 * Fill the section of the verdicts.
 * @param {ReportData} data
 */
export function fillVerdicts({ runs, faults: effects, table: figures }) {
  const faults = faultsOf(runs, effects);
  $("verdicts-box").classList.toggle("grid-box", !figures);
  $("verdicts-box").replaceChildren(figures ? tableOfRuns(runs, figures) : gridOfRuns(runs, faults));
  if (figures) $("verdicts-words").textContent = LOST_UPDATES;
  else {
    fillKey(runs);
    fillFaults(faults, effects);
  }
  $("verdicts-hint").textContent = figures
    ? "Each name opens its timeline."
    : "Each cell of a fault opens its timeline; the arrow keys go from cell to cell.";
}
