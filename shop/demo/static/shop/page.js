// The page to project: shows the sale's state, starts rushes and stops them.

import { $, badge, count } from "../assets/dom.js";
import { allow, allowed, ask, left, refusal, say } from "./ask.js";
import { follow } from "./chart.js";
import { showCode } from "./code.js";
import { showSales } from "./sales.js";
import * as steps from "./steps.js";

const OFTEN = 250; // milliseconds between two looks while something happens
const SELDOM = 1000;
const NOTHING = { on: false, number: 0, rush: null, started: null };

const { product, rushes, deadline } = document.body.dataset;
let timer = 0;
let looking = false;
let wanted = 0; // looks that were asked for
let rush = NOTHING;
let starting = false;
let stopping = false;
let shown = ""; // of which the sales were read last

// Looks after the shop was asked for something. An answer that was under way by then is
// older than that, and not shown: it would undo what the person has just seen happen.
async function look() {
  clearTimeout(timer);
  wanted += 1;
  if (looking) return;
  looking = true;
  let number, status, body;
  do {
    number = wanted;
    ({ status, body } = await ask(`/state?product=${product}`));
  } while (number !== wanted);
  looking = false;
  const busy = status === 200 ? show(body) : away(body);
  if (!document.hidden) timer = setTimeout(look, busy ? OFTEN : SELDOM);
}

function away(body) {
  say($("offline"), `${body.error}: is make serve still running?`);
  if (rushes) {
    $("start").textContent = "The shop does not answer";
    allow($("start"), false);
  }
  $("stop").hidden = true;
  say($("progress"), "");
  return false;
}

function show({ sale, rush: now, steps: round }) {
  say($("offline"), "");
  rush = now || NOTHING;
  if (!rush.on) stopping = false;
  showSale(sale);
  showButtons();
  follow(sale, rush.on);
  const busy = steps.show(round);
  const key = JSON.stringify([rush.number, rush.on, sale && [sale.sale, sale.verdict, rush.on || sale.orders]]);
  if (key !== shown) {
    shown = key;
    showSales(product, rush.rush);
  }
  return busy || rush.on;
}

function showSale(sale) {
  const lock = sale && (sale.lock || (rush.on && rush.started && rush.started.lock));
  $("sale").textContent = sale ? `sale ${sale.sale}, ${count(sale.initial_stock, "unit")}` : "";
  $("stock").textContent = sale ? sale.stock_left : "–";
  $("orders").textContent = sale ? sale.orders : "–";
  $("oversold").textContent = sale ? sale.oversold : "–";
  $("oversold-box").classList.toggle("alarm", Boolean(sale && sale.oversold));
  if (sale) say($("verdict"), `${sale.sale} ${sale.verdict} ${lock}`, badge(sale.verdict), lock ? ` under ${lock}` : "");
  say($("explained"), explained(sale));
}

// What the digits do not say.
const WHY = {
  stopped: "The sale is closed: nothing more is sold.",
  unknown: "Not every buyer was answered, so this shows nothing.",
};

function explained(sale) {
  if (!sale) return "No sale yet: start a rush.";
  if (sale.verdict === "running" && !sale.orders) return "The buyers wait until the last one has come.";
  return WHY[sale.verdict] || "";
}

// How far the rush is, next to its button. Not read aloud: it changes every second.
function progress({ arrived, answered, buyers, left_s: seconds }) {
  if (seconds === null) return `${arrived} of ${buyers} buyers have come.`;
  const end = seconds > 0 ? `The others give up in ${left(seconds).replace(" left", "")}.` : "The last ones are being answered.";
  return `${answered} of ${buyers} buyers have their answer. ${answered < buyers ? end : ""}`;
}

function showButtons() {
  if (!rushes) return;
  $("start").textContent = rush.on ? "A rush is running" : "Start the rush";
  allow($("start"), !rush.on && !starting);
  const focused = document.activeElement === $("stop");
  $("stop").hidden = !rush.on;
  $("buy").hidden = rush.on;
  if (focused && !rush.on) $("start").focus();
  $("stop").textContent = stopping ? "Stopping" : "Stop";
  allow($("stop"), !stopping);
  say($("progress"), rush.on && rush.rush ? progress(rush.rush) : "");
}

// --- the form ---

function showLock() {
  const chosen = $("lock").selectedOptions[0];
  $("lock-summary").textContent = chosen.dataset.summary;
  return showCode(chosen.value);
}

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
  const [units, ms] = [$("stock-wanted"), $("hold_ms")].map((field) => Number(field.value));
  const sales = Math.min(units, Number($("buyers").value));
  const seconds = Math.round((sales * ms) / 1000);
  const take = `${count(sales, "sale")} of ${ms} ms, one after the other under a lock, take ${seconds} s`;
  say($("hold-warning"), seconds > Number(deadline) ? `${take}; the buyers give up after ${deadline} s.` : "");
}

async function start(event) {
  event.preventDefault();
  if (!allowed($("start"))) return;
  starting = true;
  allow($("start"), false);
  const { status, body } = await ask("/rush", new FormData($("start-form")));
  starting = false;
  if (status === 202) {
    rush = { ...rush, on: true, rush: null };
    say($("said"), "");
    $("verdict").scrollIntoView({ block: "nearest" }); // on a phone the form is below it
  } else {
    say($("said"), `${status} ${refusal(body)}`, refusal(body));
  }
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
    say($("said"), `${status} ${body.error}`, body.error);
  }
  look();
}

async function buyOne() {
  const hold = $("hold_ms").value;
  const wanted = { product, lock: $("lock").value, buyer: "page", hold_ms: hold };
  const { body } = await ask("/buy", wanted);
  const words =
    body.outcome === "sold" ? `sold: order ${body.order}` : `${body.outcome}: ${body.error}`;
  say($("said"), `${words} ${Date.now()}`, words);
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
