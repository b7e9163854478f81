// The page to project: shows the sale's state, starts rushes and stops them.

import { $, badge, count, element } from "../assets/dom.js";
import { allow, allowed, ask, refusal, say } from "./ask.js";
import { follow } from "./chart.js";
import * as steps from "./steps.js";

const OFTEN = 250; // milliseconds between two looks while something happens
const SELDOM = 1000;

const { product, rushes, deadline } = document.body.dataset;
let timer = 0;
let newest = 0; // of the looks that were asked for
let rush = { on: false, rush: null };
let gone = false; // the shop does not answer
let starting = false;
let stopping = false;
let shown = ""; // of which the sales were read last

// Looks after the shop was asked for something. An answer that was under way by then is
// older than that, and not shown: it would undo what the person has just seen happen.
async function look() {
  clearTimeout(timer);
  newest += 1;
  const number = newest;
  const { status, body } = await ask(`/state?product=${product}`);
  if (number !== newest) return;
  const busy = status === 200 ? show(body) : away(body);
  if (!document.hidden) timer = setTimeout(look, busy ? OFTEN : SELDOM);
}

function away({ error }) {
  say($("offline"), `${error}: is make serve still running?`);
  gone = true;
  showButtons();
}

function show({ sale, rush: now, steps: round }) {
  say($("offline"), "");
  gone = false;
  rush = now;
  if (!rush.on) stopping = false;
  showSale(sale);
  showButtons();
  follow(sale, rush.on);
  const busy = steps.show(round);
  const key = JSON.stringify([rush.number, rush.on, sale && [sale.sale, sale.verdict, rush.on || sale.orders]]);
  if (key !== shown) {
    shown = key;
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
  say($("explained"), explained(sale));
}

// What the digits do not say.
function explained(sale) {
  if (!sale) return "No sale yet: start a rush.";
  if (sale.verdict === "running" && !sale.orders) return "The buyers wait until the last one has come.";
  if (sale.verdict === "stopped") return "The sale is closed: nothing more is sold.";
  return sale.verdict === "unknown" ? "Not every buyer was answered, so this shows nothing." : "";
}

// How far the rush is, next to its button. Not read aloud: it changes every second.
function progress({ arrived, answered, buyers, left_s: seconds }) {
  if (seconds === null) return `${arrived} of ${buyers} buyers have come.`;
  const end = seconds > 0 ? `The others give up in ${Math.ceil(seconds)} s.` : "The last ones are being answered.";
  return `${answered} of ${buyers} buyers have their answer. ${answered < buyers ? end : ""}`;
}

function showButtons() {
  if (!rushes) return;
  const idle = gone ? "The shop does not answer" : "Start the rush";
  const running = rush.on && !gone;
  $("start").textContent = running ? "A rush is running" : idle;
  allow($("start"), !rush.on && !starting && !gone);
  if (!running && document.activeElement === $("stop")) $("start").focus();
  $("stop").hidden = !running;
  $("buy").hidden = rush.on;
  $("stop").textContent = stopping ? "Stopping" : "Stop";
  allow($("stop"), !stopping);
  say($("progress"), running && rush.rush ? progress(rush.rush) : "");
}

// --- the sales so far, one below the other: the contrast ---

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
  const settled = (value) => figure(sale.is_on ? "…" : value); // what changes is above, in large digits
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

// --- the code of the chosen lock: the decisive lines, marked, and the rest of it on demand ---

async function showLock() {
  const { value: lock, dataset } = $("lock").selectedOptions[0];
  $("lock-summary").textContent = dataset.summary;
  $("code-name").textContent = lock;
  const { status, body } = await ask(`/strategies/${lock}/code`);
  if (status !== 200 || $("lock").value !== lock) return;
  const marked = body.blocks.filter((block) => block.marked.length);
  const shown = marked.length ? marked : body.blocks; // your own file has no marks
  $("code-marked").replaceChildren(...shown.map(blockOf));
  $("code-rest").replaceChildren(...body.blocks.filter((block) => !shown.includes(block)).map(blockOf));
}

function blockOf({ file, lines, marked }) {
  const shown = element("pre", { tabindex: "0", role: "region", "aria-label": file });
  let inDocstring = false;
  lines.forEach((text, number) => {
    const quotes = text.split('"""').length - 1;
    const quiet = inDocstring || text.trim().startsWith('"""');
    if (quiet && quotes === 1) inDocstring = !inDocstring;
    const look = quiet ? element("span", { class: "quiet" }, text) : text;
    shown.append(marked.includes(number) ? element("mark", {}, text) : look, "\n");
  });
  return element("div", { class: "block" }, element("p", { class: "file" }, file), shown);
}

// --- the form ---

// The address fills the forms in: /?lock=redis&buyers=200&stock=100&hold_ms=5#steps
function fill(given) {
  for (const field of document.querySelectorAll("select, input[type=number]")) {
    const wanted = given.get(field.name) || "";
    const listed = [...(field.options || [])].some((one) => one.value === wanted && !one.disabled);
    if (field.options ? listed : /^\d{1,5}$/.test(wanted)) field.value = wanted;
  }
}

// One after the other under a lock: a payment time that the buyers cannot wait for is said before.
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
  say($("said"), status === 202 ? "" : refusal(body));
  showButtons();
  look();
}

async function stop() {
  if (!allowed($("stop"))) return;
  stopping = true;
  showButtons();
  const { status, body } = await ask("/rush/stop", {});
  if (status !== 202) {
    stopping = false;
    say($("said"), body.error);
  }
  look();
}

async function buyOne() {
  const form = { product, lock: $("lock").value, buyer: "page", hold_ms: $("hold_ms").value };
  const { body } = await ask("/buy", form);
  say($("said"), ""); // what is said twice is read aloud twice
  say($("said"), body.outcome === "sold" ? `sold: order ${body.order}` : `${body.outcome}: ${body.error}`);
  look();
}

// Whatever comes from the shop and makes a card longer may move a button away from under the pointer
// that presses it: the button keeps the pointer, and the click is its own wherever the press ends.
document.addEventListener("pointerdown", ({ target, pointerId }) => target.closest("button")?.setPointerCapture(pointerId));
$("start-form").addEventListener("submit", start);
$("start-form").addEventListener("input", warn);
$("stop").addEventListener("click", stop);
$("buy").addEventListener("click", buyOne);
$("lock").addEventListener("change", showLock);
document.addEventListener("visibilitychange", look);
steps.install(look);
fill(new URLSearchParams(location.search));
warn();
await Promise.all([showLock(), look()]);
// What has just been filled in has moved what the address points at: /?lock=redis#steps
$(location.hash.slice(1))?.scrollIntoView();
