// The verdicts: a table of runs, or a grid of strategies by faults. Each run has a button that opens it.

/** @import { Figures, ReportData, Run } from "./data.js" */

import { $, VERDICTS, badge, element, icon, lookOf, signOf, words } from "../../../demo/static/assets/dom.js";
import { NO_NUMBERS, expectedNote, nameOfRun, table, verdictsIn } from "./tables.js";

const LOST_UPDATES =
  "Lost updates: decrements that another write erased. Two buyers read the same stock, and both write it back less one.";
const GRID = { role: "grid", class: "grid", "aria-labelledby": "verdicts-title" };
/** @type {Record<string, [rows: number, columns: number]>} The step of each arrow key. */
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/**
 * Return the button that opens a run.
 * @param {number} index The index of the run.
 * @param {string} classes Further classes.
 * @param {Record<string, any>} attributes
 * @param {...(string | Node | null)} children
 * @returns {HTMLButtonElement}
 */
function makeOpenButton(index, classes, attributes, ...children) {
  const allAttributes = { type: "button", class: `opens ${classes}`, "data-run": index, ...attributes };
  return element("button", allAttributes, ...children);
}

/**
 * Return a table with a row for each run.
 * @param {Run[]} runs
 * @param {Figures} figures
 * @returns {HTMLTableElement}
 */
function tableOfRuns(runs, { heads, rows }) {
  const runRows = runs.map((run, index) => {
    const verdict = element("span", {}, badge(run.verdict), expectedNote(run));
    return [makeOpenButton(index, "", {}, nameOfRun(run)), verdict, ...rows[index]];
  });
  return table(heads, runRows, 2);
}

/**
 * Return the button of a run in the grid: the sign of its verdict, with `!` if another was expected.
 * @param {Run} run
 * @param {number} index
 * @returns {HTMLButtonElement}
 */
function makeCell(run, index) {
  const mark = run.as_expected ? null : element("span", { "aria-hidden": "true" }, "!");
  const expected = run.as_expected ? "as expected" : `expected ${words(run.expected)}`;
  const title = `${run.lock} under ${run.fault}: ${words(run.verdict)}, ${expected}`;
  const classes = `cell ${lookOf(run.verdict)} ${run.as_expected ? "" : "off"}`;
  return makeOpenButton(index, classes, { title, "aria-label": title, tabindex: -1 }, icon(signOf(run.verdict)), mark);
}

/**
 * Explain the signs that the grid has.
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
 * Return the grid: a row for each strategy, a column for each fault.
 * @param {Run[]} runs
 * @param {string[]} faults
 * @returns {HTMLTableElement}
 */
function gridOfRuns(runs, faults) {
  /** @type {Record<string, (string | Node)[]>} */
  const rows = {};
  runs.forEach((run, index) => {
    rows[run.lock] ??= [run.lock, ...faults.map(() => "")];
    rows[run.lock][faults.indexOf(run.fault) + 1] = makeCell(run, index);
  });
  const heads = ["", ...faults.map((fault) => element("span", {}, fault))];
  const grid = table(heads, Object.values(rows), NO_NUMBERS, GRID);
  const [firstButton] = grid.getElementsByTagName("button");
  firstButton.tabIndex = 0;
  grid.addEventListener("keydown", moveInGrid);
  return grid;
}

/**
 * Move the focus by an arrow key to the next cell with a run. Only that cell is then in the tab order.
 * @param {KeyboardEvent} event
 */
function moveInGrid(event) {
  const step = MOVES[event.key];
  let cell = /** @type {HTMLElement} */ (event.target).closest("td");
  if (!step || !cell) return;
  event.preventDefault();
  const { rows } = /** @type {HTMLTableSectionElement} */ (cell.closest("tbody"));
  do {
    const row = /** @type {HTMLTableRowElement} */ (cell.parentElement);
    cell = /** @type {HTMLTableCellElement | undefined} */ (rows[row.sectionRowIndex + step[0]]?.cells[cell.cellIndex + step[1]]) ?? null;
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
 * Fill the list of faults, with what each of them does.
 * @param {string[]} faults
 * @param {Record<string, string>} effects
 */
function fillFaults(faults, effects) {
  const explainedFaults = faults.filter((fault) => effects[fault]);
  const terms = explainedFaults.flatMap((fault) => [element("dt", {}, fault), element("dd", {}, effects[fault])]);
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
