// The page of the demo: it shows the state of the sale, and starts and stops rushes.

import { $, badge, count, element } from "../assets/dom.js";
import { ask, describeRefusal, isEnabled, setEnabled, showMessage } from "./ask.js";
import { updateChart } from "./chart.js";
import * as steps from "./steps.js";

/** @import { Sale } from "./chart.js" */

/**
 * The rush that is on, or the last one, as GET /state reports it.
 * @typedef {object} Rush
 * @property {boolean} on
 * @property {number} [number] The number of past rushes.
 * @property {Progress | null} rush
 */

/**
 * The progress of a rush, in buyers.
 * @typedef {object} Progress
 * @property {number} arrived
 * @property {number} answered
 * @property {number} buyers
 * @property {number | null} left_s The time until the buyers give up; null before their start.
 */

/**
 * A sale in the table of sales.
 * @typedef {Sale & {
 *   is_on: boolean, lost_updates: number,
 *   run: { buyers?: number, hold_ms?: number | null, duration_s?: number }
 * }} PastSale
 */

/**
 * A part of a strategy's code.
 * @typedef {object} Block
 * @property {string} file
 * @property {string[]} lines
 * @property {number[]} marked The numbers of the lines that decide.
 */

const BUSY_POLL_MS = 250; // during a rush or a step
const IDLE_POLL_MS = 1000;

// `rushes` is empty if this shop starts no rushes; `deadline` is how many seconds the buyers wait.
const { product = "", rushes, deadline } = document.body.dataset;
let timer = 0;
let latestPoll = 0; // the number of the latest poll
/** @type {Rush} */
let rush = { on: false, rush: null };
let isUnreachable = false;
let isStarting = false;
let isStopping = false;
let isRefusalShown = false; // the message is the refusal of a start
let shownSalesKey = ""; // the state in which the table of sales was last read

/**
 * Poll the state and show it. The answer to an earlier poll is ignored: it would undo a change that
 * the user has just seen.
 */
async function poll() {
  clearTimeout(timer);
  latestPoll += 1;
  const number = latestPoll;
  const { status, body } = await ask(`/state?product=${product}`);
  if (number !== latestPoll) return;
  const isChanging = status === 200 ? showState(body) : showUnreachable(body);
  if (!document.hidden) timer = setTimeout(poll, isChanging ? BUSY_POLL_MS : IDLE_POLL_MS);
}

/**
 * Say that the shop does not answer.
 * @param {{ error: string }} body
 * @returns {boolean} False: the page need not poll often.
 */
function showUnreachable({ error }) {
  showMessage($("offline"), `${error}: is make serve still running?`);
  isUnreachable = true;
  showButtons();
  return false;
}

/**
 * Show a state. Return whether it changes, so that the page should poll often.
 * @param {{ sale: Sale | null, rush: Rush, steps: import("./steps.js").Round | null }} state
 * @returns {boolean}
 */
function showState({ sale, rush: now, steps: round }) {
  showMessage($("offline"), "");
  isUnreachable = false;
  if (rush.on && !now.on && isRefusalShown) showMessage($("message"), "");
  rush = now;
  if (!rush.on) isStopping = false;
  showSale(sale);
  showButtons();
  updateChart(sale, rush.on);
  const isRoundChanging = steps.showRound(round);
  // the table shows no orders of a sale whose rush is on
  const salesKey = JSON.stringify([rush.number, rush.on, sale && [sale.sale, sale.verdict, rush.on || sale.orders]]);
  if (salesKey !== shownSalesKey) {
    shownSalesKey = salesKey;
    showSales();
  }
  return isRoundChanging || rush.on;
}

/** @param {Sale | null} sale */
function showSale(sale) {
  $("sale").textContent = sale ? `sale ${sale.sale}, ${count(sale.initial_stock, "unit")}` : "";
  $("stock").textContent = sale?.stock_left ?? "–";
  $("orders").textContent = sale?.orders ?? "–";
  $("oversold").textContent = sale?.oversold ?? "–";
  $("oversold-box").classList.toggle("alarm", Boolean(sale?.oversold));
  if (sale) showMessage($("verdict"), badge(sale.verdict), sale.lock ? ` under ${sale.lock}` : "");
  showMessage($("explained"), explainVerdict(sale));
}

/**
 * Return the sentence below the verdict.
 * @param {Sale | null} sale
 * @returns {string}
 */
function explainVerdict(sale) {
  if (!sale) return "No sale yet: start a rush.";
  if (sale.verdict === "running" && !sale.orders) return "Waiting for all buyers to arrive.";
  if (sale.verdict === "stopped") return "The sale is closed: nothing more is sold.";
  if (sale.verdict !== "unknown") return "";
  return sale.why ? `The verdict is open: ${sale.why}` : "The verdict is open.";
}

/**
 * Return the progress of the rush, next to its button. That element is no live region, because it changes
 * every second.
 * @param {Progress} rush
 * @returns {string}
 */
function describeProgress({ arrived, answered, buyers, left_s: seconds }) {
  if (seconds === null) return `${arrived} of ${buyers} buyers have arrived.`;
  const end = seconds > 0 ? `The others give up in ${Math.ceil(seconds)} s.` : "Waiting for the last answers.";
  return `${answered} of ${buyers} buyers have their answer. ${answered < buyers ? end : ""}`;
}

function showButtons() {
  if (!rushes) return;
  const idleText = isUnreachable ? "The shop does not answer" : "Start the rush";
  const isRunning = rush.on && !isUnreachable;
  $("start").textContent = isRunning ? "A rush is running" : idleText;
  setEnabled($("start"), !rush.on && !isStarting && !isUnreachable);
  if (!isRunning && document.activeElement === $("stop")) $("start").focus();
  $("stop").hidden = !isRunning;
  $("buy").hidden = rush.on;
  $("stop").textContent = isStopping ? "Stopping" : "Stop";
  setEnabled($("stop"), !isStopping);
  showMessage($("progress"), isRunning && rush.rush ? describeProgress(rush.rush) : "");
}

// --- the table of sales, to compare them ---

async function showSales() {
  const { status, body } = await ask(`/history?product=${product}`);
  if (status !== 200) return;
  /** @type {PastSale[]} */
  const sales = body.sales;
  const rows = sales.map(makeRow);
  if (!rows.length) rows.push(element("tr", {}, element("td", { colspan: "8" }, "None yet.")));
  $("history").replaceChildren(...rows);
}

/**
 * Return a cell with a number; a dash if it is unknown.
 * @param {string | number | null | undefined} value
 * @param {string} [look]
 * @returns {HTMLTableCellElement}
 */
function numberCell(value, look = "") {
  return element("td", { class: `number ${look}` }, String(value ?? "–"));
}

/**
 * Return the row of a sale in the table.
 * @param {PastSale} sale
 * @returns {HTMLTableRowElement}
 */
function makeRow(sale) {
  const { buyers, hold_ms: payment, duration_s: seconds } = sale.run;
  // during its rush only the large digits above the table change
  /** @type {(value: string | number) => HTMLElement} */
  const numberAfterRush = (value) => numberCell(sale.is_on ? "…" : value);
  return element(
    "tr",
    { title: `sale ${sale.sale}` },
    element("th", { scope: "row" }, sale.lock || "no orders"),
    element("td", {}, badge(sale.verdict)),
    numberAfterRush(`${sale.orders} of ${sale.initial_stock}`),
    numberAfterRush(sale.stock_left),
    numberAfterRush(sale.lost_updates),
    numberCell(seconds?.toFixed(2), "wide"),
    numberCell(buyers, "wider"),
    numberCell(payment === null ? null : `${payment} ms`, "wider"),
  );
}

// --- the code of the chosen strategy: its decisive lines, and the rest on demand ---

async function showCode() {
  const { value: lock, dataset } = $("lock").selectedOptions[0];
  $("lock-summary").textContent = dataset.summary;
  $("code-name").textContent = lock;
  const { status, body } = await ask(`/strategies/${lock}/code`);
  if (status !== 200 || $("lock").value !== lock) return;
  /** @type {Block[]} */
  const blocks = body.blocks;
  const marked = blocks.filter((block) => block.marked.length);
  const decisive = marked.length ? marked : blocks; // your own file has no marks
  $("code-marked").replaceChildren(...decisive.map(makeBlock));
  $("code-rest").replaceChildren(...blocks.filter((block) => !decisive.includes(block)).map(makeBlock));
}

/**
 * Return a block of code as an element, with its docstrings grey and its decisive lines marked.
 * @param {Block} block
 * @returns {HTMLElement}
 */
function makeBlock({ file, lines, marked }) {
  const listing = element("pre", { tabindex: "0", role: "region", "aria-label": file });
  let inDocstring = false; // a longer docstring begins and ends in a line with a single """
  lines.forEach((text, number) => {
    const quotes = text.split('"""').length - 1;
    const quiet = inDocstring || text.trim().startsWith('"""');
    if (quiet && quotes === 1) inDocstring = !inDocstring;
    const look = quiet ? element("span", { class: "quiet" }, text) : text;
    listing.append(marked.includes(number) ? element("mark", {}, text) : look, "\n");
  });
  return element("div", { class: "block" }, element("p", { class: "file" }, file), listing);
}

// --- the form ---

// The fields that this page fills in from its address; the server fills in those for votes.
const PRESET_FIELDS = "#start-form select, #start-form input[type=number], #round-form select";

/**
 * Fill the forms in from the address: /?lock=redis&buyers=200&stock=100&hold_ms=5#steps
 * @param {URLSearchParams} query
 */
function fillForms(query) {
  for (const control of document.querySelectorAll(PRESET_FIELDS)) {
    const field = /** @type {HTMLInputElement | HTMLSelectElement} */ (control);
    const preset = query.get(field.name) ?? "";
    if (accepts(field, preset)) field.value = preset;
  }
}

/**
 * Return whether a field accepts a value.
 * @param {HTMLInputElement | HTMLSelectElement} field
 * @param {string} value
 * @returns {boolean}
 */
function accepts(field, value) {
  if (field instanceof HTMLInputElement) return /^\d{1,5}$/.test(value);
  return [...field.options].some((option) => option.value === value && !option.disabled);
}

/** Warn if the sales, one after the other under a lock, would take longer than the buyers wait. */
function warnOfLongSales() {
  const ms = $("hold_ms").valueAsNumber;
  const sales = Math.min($("stock-wanted").valueAsNumber, $("buyers").valueAsNumber);
  const seconds = Math.round((sales * ms) / 1000);
  const durationText = `${count(sales, "sale")} of ${ms} ms, one after the other under a lock, take ${seconds} s`;
  const warning = `${durationText}; the buyers give up after ${deadline} s.`;
  showMessage($("hold-warning"), seconds > Number(deadline) ? warning : "");
}

/** @param {SubmitEvent} event */
async function startRush(event) {
  event.preventDefault();
  if (!isEnabled($("start"))) return;
  isStarting = true;
  showButtons();
  const { status, body } = await ask("/rush", new FormData($("start-form")));
  isStarting = false;
  if (status === 202) {
    rush = { ...rush, on: true, rush: null };
    $("verdict").scrollIntoView({ block: "nearest" }); // on a phone the form is below it
  }
  isRefusalShown = status !== 202;
  showMessage($("message"), isRefusalShown ? describeRefusal(body) : "");
  showButtons();
  poll();
}

async function stopRush() {
  if (!isEnabled($("stop"))) return;
  isStopping = true;
  showButtons();
  const { status, body } = await ask("/rush/stop", {});
  if (status !== 202) {
    isStopping = false;
    isRefusalShown = false;
    showMessage($("message"), body.error);
  }
  poll();
}

async function buyOne() {
  if (!$("hold_ms").reportValidity()) return;
  const form = { product, lock: $("lock").value, buyer: "page", hold_ms: $("hold_ms").value };
  const { status, body } = await ask("/buy", form);
  showMessage($("message"), ""); // so that a screen reader also reads the same message again
  showMessage($("message"), describePurchase(status, body));
  poll();
}

/**
 * Return the result of a purchase by hand as a sentence.
 * @param {number} status
 * @param {{ outcome: string, order?: number, error?: string }} body
 * @returns {string}
 */
function describePurchase(status, { outcome, order, error }) {
  if (outcome === "sold") return `sold: order ${order}`;
  // the shop's own message names a request, which a visitor of the page cannot send
  if (status === 404 && rushes) return "No sale is open: Start the rush opens one.";
  return `${outcome}: ${error}`;
}

// An answer may make a card longer while a button is pressed, and move the button away from the
// pointer. The button captures the pointer, so that it gets the click wherever the press ends.
document.addEventListener("pointerdown", (event) => {
  const { target, pointerId } = /** @type {PointerEvent & { target: Element }} */ (event);
  target.closest("button")?.setPointerCapture(pointerId);
});
$("start-form").addEventListener("submit", startRush);
$("start-form").addEventListener("input", warnOfLongSales);
$("stop").addEventListener("click", stopRush);
$("buy").addEventListener("click", buyOne);
$("lock").addEventListener("change", showCode);
document.addEventListener("visibilitychange", poll);
steps.install(poll);
fillForms(new URLSearchParams(location.search));
warnOfLongSales();
await Promise.all([showCode(), poll()]);
// The page has grown since the browser scrolled to the anchor of the address: /?lock=redis#steps
$(location.hash.slice(1))?.scrollIntoView();
