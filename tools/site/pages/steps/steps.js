// The step-through: any strategy, any order of two buyers' moves.

/** @import { Source } from "../shared/code.js" */
/** @import { State, Turns } from "../shared/board.js" */

import { $, badge, count, element, readFragment } from "../../../../demo/static/assets/dom.js";
import { readData } from "../../../../loadtest/report/page/data.js";
import { BUYERS, Board } from "../shared/board.js";
import { showCode } from "../shared/code.js";
import { listenToKeys } from "../shared/keys.js";
import { unpack } from "../shared/unpack.js";

/** @type {State} */
const INITIAL_STATE = [1, 0, ""];

/** @type {{ turns: string, strategies: Record<string, Source> }} */
const data = readData();
/** @type {Record<string, Turns>} */
const turnsByLock = await unpack(data.turns);
const board = new Board();
let lock = "none";

/**
 * Return whether both purchases have ended.
 * @returns {boolean}
 */
function isOver() {
  return BUYERS.every((buyer) => board.turn.phases[buyer] === "ended");
}

function show() {
  const [stock, orders, holder] = board.turn.state ?? INITIAL_STATE;
  $("stock").textContent = stock;
  $("orders").textContent = orders;
  $("holder").textContent = holder ? `${[...holder].join(" and ")}'s` : "free";
  const isLockEverHeld = Object.values(board.turns).some(({ state = INITIAL_STATE }) => state[2] !== "");
  $("lock-box").hidden = !isLockEverHeld;
  board.showTracks();
  $("order").textContent = board.key ? `So far: ${board.key}` : "Nobody has moved";
  // unlike `disabled`, ariaDisabled keeps the focus; a press without effect does no harm
  $("back").ariaDisabled = String(!board.key);
  $("again").ariaDisabled = String(!board.key);
  $("finish").ariaDisabled = String(isOver());
  showVerdict(orders);
  $("announcement").textContent = `${board.sentence} ${describeResult(stock, orders)}`;
  history.replaceState(null, "", `#${lock}/${board.key}`);
}

/**
 * Return the result of the purchases so far as a sentence, for a reader who hears the page.
 * @param {number} stock
 * @param {number} orders
 * @returns {string}
 */
function describeResult(stock, orders) {
  if (orders > 1) return "Oversold: two orders, one unit.";
  if (isOver()) return "Exact: one order, one unit.";
  return `Stock ${stock}, ${count(orders, "order")}.`;
}

/**
 * Return what to press next: the move that shows the oversell, if both buyers can move.
 * @returns {string}
 */
function describeNextPress() {
  const free = BUYERS.filter((buyer) => board.canMove(buyer));
  if (free.length === 1) return `press ${free[0]}`;
  if (lock === "none" && board.key === "A") return "now press B: read the stock";
  const bothWrite = BUYERS.every((buyer) => board.turn.labels[buyer] === `${buyer}: write`);
  return bothWrite ? "now let them go on: Finish both" : "press A or B";
}

/** @param {number} orders */
function showVerdict(orders) {
  const verdict = $("verdict");
  const exactText = orders ? " One order, one unit; the other is told: sold out." : " Nobody bought.";
  if (orders > 1) verdict.replaceChildren(badge("oversold"), " Two orders, one unit.");
  else if (isOver()) verdict.replaceChildren(badge("exact"), exactText);
  else if (!board.key) verdict.replaceChildren("Nobody has moved: press A or B.");
  else verdict.replaceChildren(`${board.standing}: ${describeNextPress()}.`);
}

/**
 * Return whether a buyer can move without waiting for the other one.
 * @param {string} buyer
 * @returns {boolean}
 */
function isFree(buyer) {
  return board.canMove(buyer) && board.turn.phases[buyer] !== "waits";
}

/** Let the buyers move until none can move without waiting. */
function finishBoth() {
  let next = BUYERS.find(isFree);
  while (next) {
    board.key += next;
    next = BUYERS.find(isFree);
  }
  show();
}

/** @param {string} order */
function play(order) {
  board.follow(order);
  show();
}

/** @param {string} buyer */
function makeMove(buyer) {
  if (board.canMove(buyer)) play(board.key + buyer);
}

/** @param {string} name */
function chooseStrategy(name) {
  lock = name;
  board.turns = turnsByLock[name];
  $("lock").value = name;
  $("summary").textContent = data.strategies[name].summary;
  showCode($("code"), data.strategies[name]);
}

/** Play the strategy and the order in the address of the page; without an order, A moves once. */
function playAddress() {
  const [name, order] = readFragment().split("/");
  chooseStrategy(turnsByLock[name] ? name : "none");
  play(turnsByLock[name] && order !== undefined ? order : "A");
}

const recordedStrategies = Object.entries(data.strategies).filter(([name]) => turnsByLock[name]);
$("lock").append(...recordedStrategies.map(([name, { title }]) => element("option", { value: name }, `${name}: ${title}`)));
$("lock").addEventListener("change", () => {
  chooseStrategy($("lock").value);
  play("A");
});
for (const button of document.querySelectorAll(".move")) {
  button.addEventListener("click", () => makeMove(/** @type {HTMLElement} */ (button).dataset.buyer ?? ""));
}
$("finish").addEventListener("click", finishBoth);
$("back").addEventListener("click", () => play(board.previousKey));
$("again").addEventListener("click", () => play(""));
listenToKeys({
  a: () => makeMove("A"),
  b: () => makeMove("B"),
  f: finishBoth,
  r: () => play(""),
  Backspace: () => play(board.previousKey),
});
addEventListener("hashchange", playAddress);
playAddress();
