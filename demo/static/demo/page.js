// The page to project: shows the sale's state, starts rushes and stops them.

import { $, badge, count, element } from "../assets/dom.js";
import { allow, allowed, ask, refusal, say } from "./ask.js";
import { follow } from "./chart.js";
import * as steps from "./steps.js";

const BUSY_POLL_MS = 250; // during a rush or a step
const IDLE_POLL_MS = 1000;

const { product, rushes, deadline } = document.body.dataset;
let timer = 0;
let latestPoll = 0; // the number of the latest poll
let rush = { on: false, rush: null };
let unreachable = false; // the shop does not answer
let starting = false;
let stopping = false;
let shownSalesKey = ""; // the state in which the table of sales was last read

// Poll the state and show it. The answer to an earlier poll is ignored: it would undo a change that
// the user has just seen.
async function poll() {
  clearTimeout(timer);
  latestPoll += 1;
  const number = latestPoll;
  const { status, body } = await ask(`/state?product=${product}`);
  if (number !== latestPoll) return;
  const busy = status === 200 ? show(body) : showUnreachable(body);
  if (!document.hidden) timer = setTimeout(poll, busy ? BUSY_POLL_MS : IDLE_POLL_MS);
}

function showUnreachable({ error }) {
  say($("offline"), `${error}: is make serve still running?`);
  unreachable = true;
  showButtons();
}

function show({ sale, rush: now, steps: round }) {
  say($("offline"), "");
  unreachable = false;
  rush = now;
  if (!rush.on) stopping = false;
  showSale(sale);
  showButtons();
  follow(sale, rush.on);
  const busy = steps.show(round);
  const key = JSON.stringify([rush.number, rush.on, sale && [sale.sale, sale.verdict, rush.on || sale.orders]]);
  if (key !== shownSalesKey) {
    shownSalesKey = key;
    showSales();
  }
  return busy || rush.on;
}

function showSale(sale) {
  $("sale").textContent = sale ? `sale ${sale.sale}, ${count(sale.initial_stock, "unit")}` : "";
  $("stock").textContent = sale?.stock_left ?? "–";
  $("orders").textContent = sale?.orders ?? "–";
  $("oversold").textContent = sale?.oversold ?? "–";
  $("oversold-box").classList.toggle("alarm", Boolean(sale?.oversold));
  if (sale) say($("verdict"), badge(sale.verdict), sale.lock ? ` under ${sale.lock}` : "");
  say($("explained"), explain(sale));
}

// The sentence below the verdict.
function explain(sale) {
  if (!sale) return "No sale yet: start a rush.";
  if (sale.verdict === "running" && !sale.orders) return "Waiting for all buyers to arrive.";
  if (sale.verdict === "stopped") return "The sale is closed: nothing more is sold.";
  return sale.verdict === "unknown" ? "Some buyers got no answer, so the verdict is open." : "";
}

// The progress of the rush, next to its button. Not a live region: it changes every second.
function progress({ arrived, answered, buyers, left_s: seconds }) {
  if (seconds === null) return `${arrived} of ${buyers} buyers have arrived.`;
  const end = seconds > 0 ? `The others give up in ${Math.ceil(seconds)} s.` : "Waiting for the last answers.";
  return `${answered} of ${buyers} buyers have their answer. ${answered < buyers ? end : ""}`;
}

function showButtons() {
  if (!rushes) return;
  const idle = unreachable ? "The shop does not answer" : "Start the rush";
  const running = rush.on && !unreachable;
  $("start").textContent = running ? "A rush is running" : idle;
  allow($("start"), !rush.on && !starting && !unreachable);
  if (!running && document.activeElement === $("stop")) $("start").focus();
  $("stop").hidden = !running;
  $("buy").hidden = rush.on;
  $("stop").textContent = stopping ? "Stopping" : "Stop";
  allow($("stop"), !stopping);
  say($("progress"), running && rush.rush ? progress(rush.rush) : "");
}

// --- the table of sales, to compare them ---

async function showSales() {
  const { status, body } = await ask(`/history?product=${product}`);
  if (status !== 200) return;
  const rows = body.sales.map(rowOf);
  if (!rows.length) rows.push(element("tr", {}, element("td", { colspan: "8" }, "None yet.")));
  $("history").replaceChildren(...rows);
}

function rowOf(sale) {
  const { buyers, hold_ms: payment, duration_s: seconds } = sale.run;
  const figure = (value, look = "") => element("td", { class: `number ${look}` }, String(value ?? "–"));
  const settled = (value) => figure(sale.is_on ? "…" : value); // the digits above show changing values
  return element(
    "tr",
    { title: `sale ${sale.sale}` },
    element("th", { scope: "row" }, sale.lock || "no orders"),
    element("td", {}, badge(sale.verdict)),
    settled(`${sale.orders} of ${sale.initial_stock}`),
    settled(sale.stock_left),
    settled(sale.lost_updates),
    figure(seconds?.toFixed(2), "wide"),
    figure(buyers, "wider"),
    figure(payment === null ? null : `${payment} ms`, "wider"),
  );
}

// --- the code of the chosen strategy: its decisive lines, and the rest on demand ---

async function showLock() {
  const { value: lock, dataset } = $("lock").selectedOptions[0];
  $("lock-summary").textContent = dataset.summary;
  $("code-name").textContent = lock;
  const { status, body } = await ask(`/strategies/${lock}/code`);
  if (status !== 200 || $("lock").value !== lock) return;
  const marked = body.blocks.filter((block) => block.marked.length);
  const decisive = marked.length ? marked : body.blocks; // your own file has no marks
  $("code-marked").replaceChildren(...decisive.map(blockOf));
  $("code-rest").replaceChildren(...body.blocks.filter((block) => !decisive.includes(block)).map(blockOf));
}

function blockOf({ file, lines, marked }) {
  const listing = element("pre", { tabindex: "0", role: "region", "aria-label": file });
  let inDocstring = false;
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

// The fields that the address fills in. The shop itself fills in the votes.
const FILLED = "#start-form select, #start-form input[type=number], #round-form select";

// The address fills the forms in: /?lock=redis&buyers=200&stock=100&hold_ms=5#steps
function fill(query) {
  for (const field of document.querySelectorAll(FILLED)) {
    const preset = query.get(field.name) || "";
    const listed = [...(field.options || [])].some((option) => option.value === preset && !option.disabled);
    if (field.options ? listed : /^\d{1,5}$/.test(preset)) field.value = preset;
  }
}

// Warn before the rush if the sales, one after the other under a lock, take longer than the buyers wait.
function warn() {
  const ms = $("hold_ms").valueAsNumber;
  const sales = Math.min($("stock-wanted").valueAsNumber, $("buyers").valueAsNumber);
  const seconds = Math.round((sales * ms) / 1000);
  const take = `${count(sales, "sale")} of ${ms} ms, one after the other under a lock, take ${seconds} s`;
  say($("hold-warning"), seconds > Number(deadline) ? `${take}; the buyers give up after ${deadline} s.` : "");
}

async function start(event) {
  event.preventDefault();
  if (!allowed($("start"))) return;
  starting = true;
  showButtons();
  const { status, body } = await ask("/rush", new FormData($("start-form")));
  starting = false;
  if (status === 202) {
    rush = { ...rush, on: true, rush: null };
    $("verdict").scrollIntoView({ block: "nearest" }); // on a phone the form is below it
  }
  say($("message"), status === 202 ? "" : refusal(body));
  showButtons();
  poll();
}

async function stop() {
  if (!allowed($("stop"))) return;
  stopping = true;
  showButtons();
  const { status, body } = await ask("/rush/stop", {});
  if (status !== 202) {
    stopping = false;
    say($("message"), body.error);
  }
  poll();
}

async function buyOne() {
  const form = { product, lock: $("lock").value, buyer: "page", hold_ms: $("hold_ms").value };
  const { body } = await ask("/buy", form);
  say($("message"), ""); // so that a screen reader also reads the same message again
  say($("message"), body.outcome === "sold" ? `sold: order ${body.order}` : `${body.outcome}: ${body.error}`);
  poll();
}

// An answer may make a card longer while a button is pressed, and move the button away from the
// pointer. The button captures the pointer, so that it gets the click wherever the press ends.
document.addEventListener("pointerdown", ({ target, pointerId }) => target.closest("button")?.setPointerCapture(pointerId));
$("start-form").addEventListener("submit", start);
$("start-form").addEventListener("input", warn);
$("stop").addEventListener("click", stop);
$("buy").addEventListener("click", buyOne);
$("lock").addEventListener("change", showLock);
document.addEventListener("visibilitychange", poll);
steps.install(poll);
fill(new URLSearchParams(location.search));
warn();
await Promise.all([showLock(), poll()]);
// The page has grown since the browser scrolled to the anchor of the address: /?lock=redis#steps
$(location.hash.slice(1))?.scrollIntoView();
