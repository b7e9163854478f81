// The page to project: asks the shop how the sale stands, and starts rushes.

import { $, allow, allowed, ask, badge, besideTheFields, element, say, units } from "./dom.js";
import { follow } from "./chart.js";
import * as steps from "./steps.js";

const OFTEN = 250; // milliseconds between two looks while something happens
const SELDOM = 1000;

const { product, demo, locust } = document.body.dataset;
let timer = 0;
let looking = false;
let rush = { on: false, number: 0 };
let shown = ""; // of which the history was read last

async function look() {
  clearTimeout(timer);
  if (looking) return;
  looking = true;
  const { status, body } = await ask(`/state?product=${product}`);
  looking = false;
  const busy = status === 200 ? show(body) : away(body);
  if (!document.hidden) timer = setTimeout(look, busy ? OFTEN : SELDOM);
}

function away(body) {
  say($("offline"), "away", `${body.error}: is make serve still running?`);
  return false;
}

function show({ sale, rush: now, steps: round }) {
  say($("offline"), "");
  rush = now || { on: false, number: 0 };
  showSale(sale);
  showButton();
  follow(sale, rush.on);
  const busy = steps.show(round);
  const key = JSON.stringify([rush.number, sale && [sale.sale, rush.on || sale.orders]]);
  if (key !== shown) {
    shown = key;
    showHistory();
  }
  return busy || rush.on;
}

function showSale(sale) {
  $("sale").textContent = sale ? `sale ${sale.sale}, ${units(sale.initial_stock, "unit")}` : "";
  $("stock").textContent = sale ? sale.stock_left : "–";
  $("orders").textContent = sale ? sale.orders : "–";
  $("oversold").textContent = sale ? sale.oversold : "–";
  $("oversold-box").classList.toggle("bad", Boolean(sale && sale.oversold));
  const widest = sale ? Math.max(sale.stock_left, sale.orders) : 0;
  $("oversold-box").parentElement.classList.toggle("long", widest > 999);
  const verdict = verdictOf(sale);
  const words = explained(sale, verdict);
  say($("verdict"), `${sale && sale.sale} ${verdict}`, verdict ? badge(verdict) : "");
  say($("explained"), words, words);
}

function verdictOf(sale) {
  if (!sale) return "";
  if (sale.oversold) return "oversold";
  if (rush.on) return "running";
  return sale.orders === sale.initial_stock ? "exact" : "open";
}

function explained(sale, verdict) {
  if (!sale) return "No sale yet: start a rush.";
  const { initial_stock, orders, stock_left, lost_updates } = sale;
  if (verdict === "running" && orders === 0) return "The buyers are meeting at the door.";
  const sold = `${units(orders, "order")} for ${units(initial_stock, "unit")}`;
  if (verdict === "oversold") {
    const lost = lost_updates ? ` ${units(lost_updates, "decrement")} overwritten.` : "";
    return `${sold}, and the shelf ${stock_left ? "still " : ""}shows ${stock_left}.${lost}`;
  }
  return verdict === "exact" ? `${sold}, and none is left.` : `${sold}, ${stock_left} left.`;
}

function showButton() {
  if (!demo || !locust) return;
  $("start").textContent = rush.on ? "A rush is running" : "Start the rush";
  allow($("start"), !rush.on);
}

async function showHistory() {
  const { status, body } = await ask(`/history?product=${product}`);
  if (status !== 200) return;
  const cards = body.sales.map((sale) => {
    const { lock, buyers, duration_s: seconds } = sale.run;
    const running = rush.on && sale.open && !sale.oversold;
    const facts = [
      ["orders", `${sale.orders} of ${sale.initial_stock}`],
      ["stock left", sale.stock_left],
      ["lost updates", sale.lost_updates],
      ["buyers", buyers ?? "–"],
      ["seconds", seconds ?? "–"],
    ];
    return element(
      "li",
      {},
      element("h3", {}, lock || sale.locks.join(", ") || "no orders"),
      badge(running ? "running" : sale.verdict),
      element(
        "dl",
        {},
        ...facts.map(([name, value]) =>
          element("div", {}, element("dt", {}, name), element("dd", {}, String(value))),
        ),
      ),
      element("p", { class: "quiet" }, `sale ${sale.sale}`),
    );
  });
  if (!cards.length) cards.push(element("li", { class: "empty" }, "None yet."));
  $("history").replaceChildren(...cards);
}

// --- the form ---

function showLock() {
  const chosen = $("lock").selectedOptions[0];
  $("lock-summary").textContent = chosen.dataset.summary;
  $("code-name").textContent = chosen.value;
  if ($("code").open) showCode();
}

async function showCode() {
  const { status, body } = await ask(`/strategies/${$("lock").value}/code`);
  if (status !== 200) return;
  const parts = body.parts.map(({ file, code }) => {
    const shown = element("pre", { tabindex: "0", role: "region", "aria-label": file }, code);
    return element("section", {}, element("h3", {}, file), shown);
  });
  $("code-parts").replaceChildren(...parts);
}

async function start(event) {
  event.preventDefault();
  if (!allowed($("start"))) return;
  allow($("start"), false);
  const { status, body } = await ask("/rush", new FormData($("start-form")));
  besideTheFields($("start-form"), body.fields || {});
  if (status === 202) {
    rush.on = true;
    say($("said"), "");
  } else {
    say($("said"), `${status} ${body.error}`, body.error);
  }
  showButton();
  look();
}

async function buyOne() {
  const hold = $("hold_ms").value;
  const wanted = { product, lock: $("lock").value, buyer: "page", ...(demo && { hold_ms: hold }) };
  const { body } = await ask("/buy", wanted);
  const words =
    body.outcome === "sold" ? `sold: order ${body.order}` : `${body.outcome}: ${body.error}`;
  say($("said"), `${words} ${Date.now()}`, words);
  look();
}

$("start-form").addEventListener("submit", start);
$("buy").addEventListener("click", buyOne);
$("lock").addEventListener("change", showLock);
$("code").addEventListener("toggle", showLock);
document.addEventListener("visibilitychange", look);
steps.install(look);
showLock();
look();
