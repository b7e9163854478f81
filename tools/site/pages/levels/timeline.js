// What happened in a schedule, as a table: a row for each buyer and for the lock on the server, a
// column for each move.

/** @import { Board, State, Turn } from "../shared/board.js" */

import { element } from "../../../../demo/static/assets/dom.js";
import { BUYERS, FREE } from "../shared/board.js";

/**
 * Return the rows of the table.
 * @param {Board} board
 * @param {string} schedule
 * @returns {HTMLTableRowElement[]}
 */
export function makeTimelineRows(board, schedule) {
  const keys = [...schedule].map((_, n) => schedule.slice(0, n + 1));
  /** @type {(name: string, cellAt: (key: string) => HTMLElement) => HTMLTableRowElement} */
  const makeRow = (name, cellAt) => element("tr", {}, element("th", { scope: "row" }, name), ...keys.map(cellAt));
  const rows = [
    element("tr", {}, element("td"), ...keys.map((_, n) => element("th", { scope: "col" }, n + 1))),
    ...BUYERS.map((buyer) => makeRow(buyer, (key) => makeBuyerCell(board, buyer, key))),
  ];
  if (keys.some((key) => describeTurn(board, "", key))) {
    rows.push(makeRow("The world", (key) => element("td", {}, describeTurn(board, "", key))));
  }
  if (keys.some((key) => board.turnAt(key).lock)) {
    rows.push(makeRow("Lock on the server", (key) => makeLockCell(board.turnAt(key))));
  }
  rows.push(makeRow("Stock, orders", (key) => element("td", {}, stateAt(board, key).slice(0, 2).join(", "))));
  return rows;
}

/**
 * @param {Board} board
 * @param {string} key Not the empty one: before the first turn there is no state.
 * @returns {State}
 */
function stateAt(board, key) {
  return /** @type {State} */ (board.turnAt(key).state);
}

/**
 * Return what a buyer, or the world, did in a turn, as one text; of a statement its first word.
 * @param {Board} board
 * @param {string} name The buyer; empty for the world.
 * @param {string} key
 * @returns {string}
 */
function describeTurn(board, name, key) {
  const lines = board.turnAt(key).lines.filter(([buyer]) => buyer === name);
  return lines.map(([, kind, text]) => (kind === "sql" ? text.split(" ")[0] : text)).join(", ");
}

/**
 * @param {Board} board
 * @param {string} buyer
 * @param {string} key
 * @returns {HTMLElement}
 */
function makeBuyerCell(board, buyer, key) {
  const [, , believers] = stateAt(board, key);
  const text = describeTurn(board, buyer, key);
  if (!believers.includes(buyer)) return element("td", {}, text);
  if (believers.length === 1) return element("td", { class: "holds" }, text);
  const remark = element("span", { class: "unseen" }, "Both believe to have the lock. ");
  return element("td", { class: "holds both" }, remark, text);
}

/**
 * @param {Turn} turn
 * @returns {HTMLElement}
 */
function makeLockCell({ lock }) {
  return lock ? element("td", { class: "holds" }, lock) : element("td", {}, FREE);
}
