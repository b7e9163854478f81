// Two buyers, one step at a time, shown from the state of the round in the shop.

import { $, badge } from "../assets/dom.js";
import { ask, describeRefusal, isEnabled, setEnabled, showMessage } from "./ask.js";

/** @import { Sale } from "./chart.js" */

/**
 * A buyer of a round. demo/steps.py explains the fields.
 * @typedef {object} Buyer
 * @property {"ready" | "moving" | "blocked" | "stopped" | "done"} status
 * @property {string} [at] The stop where it waits.
 * @property {string} [after] The last stop that it has left.
 * @property {string} [waits_for]
 * @property {number} [saw] The stock that it read.
 * @property {number} [left_s] The time until it gives up.
 * @property {string} [outcome]
 * @property {string} [released]
 * @property {number} [order]
 * @property {string} [said]
 */

/**
 * @typedef {object} Round
 * @property {string} round
 * @property {string} lock
 * @property {Record<string, Buyer>} buyers
 * @property {Sale | null} sale
 */

/** @typedef {(string | Node)[]} Message */

/** The stops at the ends of the three steps; `done` is that of the commit. */
const STOPS = ["checked", "written", "done"];
/**
 * The step that begins at a stop.
 * @type {Record<string, string>}
 */
const NEXT_STEPS = { checked: "write", written: "commit" };
/**
 * Icon and text of a blocked buyer, by the object that it waits for.
 * @type {Record<string, [sign: string, text: string]>}
 */
const WAIT_DESCRIPTIONS = {
  lock: ["lock", " waits until the other buyer releases the lock."],
  database: ["database", " waits for the product's row in the database: the other buyer has not committed."],
  advisory: ["database", " waits for the advisory lock in the database: the other buyer has not committed."],
};

/** @type {NodeListOf<HTMLElement>} */
const columns = document.querySelectorAll(".buyer");
/** @type {string | undefined} */
let roundId;
/** @type {Set<string>} Buyers whose step the shop has not answered yet. */
const buyersWithOpenRequest = new Set();
let isBeginning = false; // a new round has been requested: the shown one takes no more steps

/**
 * Return a part of a buyer's column.
 * @param {HTMLElement} column
 * @param {string} selector
 * @returns {any}
 */
function part(column, selector) {
  return column.querySelector(selector);
}

/**
 * Let the form begin rounds, and each buyer's button make its steps.
 * @param {() => void} refresh Shows the state of the shop at once.
 */
export function install(refresh) {
  $("round-form").addEventListener("submit", async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    isBeginning = true;
    for (const column of columns) setEnabled(part(column, ".step"), false);
    const { status, body } = await ask("/steps", { lock: $("step-lock").value });
    isBeginning = false; // its buttons can be pressed once refresh() shows the new round
    showMessage($("round-refusal"), status === 201 ? "" : describeRefusal(body));
    for (const column of columns) showMessage(part(column, ".refusal"), "");
    refresh();
  });
  for (const column of columns) {
    part(column, ".step").addEventListener("click", () => requestStep(column, refresh));
  }
}

/**
 * Ask for the next step of a buyer, if there is one to take.
 * @param {HTMLElement} column
 * @param {() => void} refresh
 */
async function requestStep(column, refresh) {
  const button = part(column, ".step");
  const { buyer = "" } = column.dataset;
  if (!isEnabled(button) || !roundId) return;
  buyersWithOpenRequest.add(buyer);
  setEnabled(button, false);
  const { status, body } = await ask("/steps/step", { round: roundId, buyer });
  buyersWithOpenRequest.delete(buyer);
  showMessage(part(column, ".refusal"), status === 202 ? "" : `Not done: ${body.error}`);
  refresh();
}

/**
 * Show the round. Return whether a buyer is moving, so that the page should poll often.
 * @param {Round | null} round
 * @returns {boolean}
 */
export function showRound(round) {
  showMessage($("round-lock"), round ? `This round: ${round.lock}.` : "");
  roundId = round?.round;
  const sale = round?.sale ?? null;
  $("step-stock").textContent = sale?.stock_left ?? "–";
  $("step-orders").textContent = sale?.orders ?? "–";
  for (const column of columns) showBuyer(column, round);
  showVerdict(round, sale);
  return Object.values(round?.buyers ?? {}).some(({ status }) => status !== "ready" && status !== "done");
}

/**
 * Show the buyer of a column: its track, its button and what it does.
 * @param {HTMLElement} column
 * @param {Round | null} round
 */
function showBuyer(column, round) {
  const name = column.dataset.buyer ?? "";
  const buyer = round?.buyers[name];
  const button = part(column, ".step");
  const status = buyer?.status ?? "none";
  const at = status === "done" ? "done" : (buyer?.at ?? buyer?.after ?? "");
  const reachedIndex = STOPS.indexOf(at);
  // a purchase that sold nothing has passed no stop
  const soldNothing = status === "done" && buyer?.outcome !== "sold";
  column.querySelectorAll(".track li").forEach((item, index) => {
    item.classList.toggle("passed", !soldNothing && index <= reachedIndex);
    item.classList.toggle("here", index === reachedIndex && status === "stopped");
  });
  column.dataset.status = status;
  button.disabled = !round;
  setEnabled(button, !isBeginning && !buyersWithOpenRequest.has(name) && (status === "ready" || status === "stopped"));
  button.textContent = status === "done" ? `${name} is done` : `${name}: ${NEXT_STEPS[at] || "read"}`;
  part(column, ".left").textContent = buyer?.left_s === undefined ? "" : `${Math.ceil(buyer.left_s)} s left`;
  showMessage(part(column, ".place"), ...describeBuyer(buyer, round?.lock));
}

/**
 * Return the message about a buyer.
 * @param {Buyer | undefined} buyer
 * @param {string | undefined} lock The strategy of the round.
 * @returns {Message}
 */
function describeBuyer(buyer, lock) {
  if (!buyer) return ["Press New round."];
  const { status, outcome = "" } = buyer;
  if (status === "ready") return ["Not started."];
  if (status === "moving") return ["…"];
  if (status === "blocked") {
    const [sign, text] = WAIT_DESCRIPTIONS[lock === "advisory" ? "advisory" : (buyer.waits_for ?? "lock")];
    return [badge("blocked", sign), text];
  }
  if (status === "stopped") {
    if (buyer.at === "checked") return [`Has read a stock of ${buyer.saw}.`];
    return ["Has written the new stock and an order; other connections see them after the commit."];
  }
  if (outcome === "sold") {
    const late = buyer.released === "expired" ? " The lock had expired by then." : "";
    return [badge("sold"), ` has order ${buyer.order}.${late}`];
  }
  if (outcome === "sold_out") return [badge("sold_out"), " found no unit left."];
  return [badge(outcome), ` ${buyer.said}`];
}

/**
 * Show the verdict of a round once it is certain: too many orders, or all buyers are done.
 * @param {Round | null} round
 * @param {Sale | null} sale
 */
function showVerdict(round, sale) {
  const isOver = round && Object.values(round.buyers).every((buyer) => buyer.status === "done");
  /** @type {Message} */
  let message = [isOver ? "No order was made. Begin a new round." : ""];
  if (sale?.oversold) message = [badge("oversold"), ` ${sale.orders} orders for the last unit, under ${round?.lock}.`];
  else if (isOver && sale?.orders === 1) message = [badge("exact"), ` One order for one unit, under ${round?.lock}.`];
  showMessage($("step-verdict"), ...message);
}
