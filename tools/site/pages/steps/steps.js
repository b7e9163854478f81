// The step-through: any strategy, any order of two buyers' moves.

/** @import { Source } from "../shared/code.js" */
/** @import { State, Turns } from "../shared/board.js" */

import { $, badge, count, element } from "../../../../demo/static/assets/dom.js";
import { readData } from "../../../../loadtest/report/page/data.js";
import { BUYERS, Board } from "../shared/board.js";
import { showCode } from "../shared/code.js";
import { listenToKeys } from "../shared/keys.js";
import { unpack } from "../shared/unpack.js";

/** @type {State} */
const START = [1, 0, ""];

/** @type {{ turns: string, strategies: Record<string, Source> }} */
const data = readData();
/** @type {Record<string, Turns>} */
const turnsByLock = await unpack(data.turns);
const board = new Board();
let lock = "none";

/** @returns {boolean} */
function isOver() {
  return BUYERS.every((buyer) => board.turn.phases[buyer] === "ended");
}

function show() {
  const [stock, orders, holder] = board.turn.state ?? START;
  $("stock").textContent = stock;
  $("orders").textContent = orders;
  $("holder").textContent = holder ? `${[...holder].join(" and ")}'s` : "free";
  $("lock-box").hidden = !Object.values(board.turns).some(({ state }) => state?.[2]);
  board.showTracks();
  $("order").textContent = board.key ? `So far: ${board.key}` : "Nobody has moved";
  $("back").disabled = !board.key;
  $("again").disabled = !board.key;
  $("finish").disabled = isOver();
  showVerdict(orders);
  $("said").textContent = `${board.sentence} ${sumOf(stock, orders)}`;
  history.replaceState(null, "", `#${lock}/${board.key}`);
}

/**
 * Return the sum of the purchases, for a reader who hears the page.
 * @param {number} stock
 * @param {number} orders
 * @returns {string}
 */
function sumOf(stock, orders) {
  if (orders > 1) return "Oversold: two orders, one unit.";
  if (isOver()) return "Exact: one order, one unit.";
  return `Stock ${stock}, ${count(orders, "order")}.`;
}

/**
 * Return what to press next: the move that shows the oversell, if both buyers can move.
 * @returns {string}
 */
function advice() {
  const free = BUYERS.filter((buyer) => board.canMove(buyer));
  if (free.length === 1) return `press ${free[0]}`;
  if (lock === "none" && board.key === "A") return "now press B: read the stock";
  const bothWrite = BUYERS.every((buyer) => board.turn.labels[buyer] === `${buyer}: write`);
  return bothWrite ? "now let them go on: Finish both" : "press A or B";
}

/** @param {number} orders */
function showVerdict(orders) {
  const verdict = $("verdict");
  if (orders > 1) verdict.replaceChildren(badge("oversold"), " Two orders, one unit.");
  else if (isOver()) verdict.replaceChildren(badge("exact"), orders ? " One order, one unit; the other is told: sold out." : " Nobody bought.");
  else if (!board.key) verdict.replaceChildren("Nobody has moved: press A or B.");
  else verdict.replaceChildren(`${board.standing}: ${advice()}.`);
}

/**
 * Return whether a buyer can move without waiting for the other one.
 * @param {string} buyer
 * @returns {boolean}
 */
function isFree(buyer) {
  return board.canMove(buyer) && board.turn.phases[buyer] !== "waits";
}

function finish() {
  for (let next = BUYERS.find(isFree); next; next = BUYERS.find(isFree)) board.key += next;
  show();
}

/** @param {string} order */
function play(order) {
  board.follow(order);
  show();
}

/** @param {string} buyer */
function move(buyer) {
  if (board.canMove(buyer)) play(board.key + buyer);
}

/** @param {string} name */
function choose(name) {
  lock = name;
  board.turns = turnsByLock[name];
  $("lock").value = name;
  $("summary").textContent = data.strategies[name].summary;
  showCode($("code"), data.strategies[name]);
}

function playAddress() {
  const [name, order] = decodeURIComponent(location.hash.slice(1)).split("/");
  choose(turnsByLock[name] ? name : "none");
  play(turnsByLock[name] && order !== undefined ? order : "A");
}

const recorded = Object.entries(data.strategies).filter(([name]) => turnsByLock[name]);
$("lock").append(...recorded.map(([name, { title }]) => element("option", { value: name }, `${name}: ${title}`)));
$("lock").addEventListener("change", () => {
  choose($("lock").value);
  play("A");
});
for (const button of document.querySelectorAll(".move")) {
  button.addEventListener("click", () => move(/** @type {HTMLElement} */ (button).dataset.buyer ?? ""));
}
$("finish").addEventListener("click", finish);
$("back").addEventListener("click", () => play(board.previousKey));
$("again").addEventListener("click", () => play(""));
listenToKeys({
  a: () => move("A"),
  b: () => move("B"),
  f: finish,
  r: () => play(""),
  Backspace: () => play(board.previousKey),
});
addEventListener("hashchange", playAddress);
playAddress();
