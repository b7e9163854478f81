// Two buyers, one step at a time. What is shown comes from the shop's own state.

import { $, badge } from "../assets/dom.js";
import { allow, allowed, ask, refusal, say } from "./ask.js";

const ORDER = ["checked", "paid", "written", "done"];
const NEXT = { checked: "pay", paid: "write", written: "commit" };
const STANDS = {
  paid: "Has paid. Nothing is written yet.",
  written: "Has written the new stock and an order; nobody else sees them before the commit.",
};
// what a blocked buyer waits for -> its icon, and in words
const WAITS = {
  lock: ["lock", " waits until the other gives the lock back."],
  database: ["database", " waits for the product's row in the database: the other has not committed."],
  advisory: ["database", " waits for the advisory lock in the database: the other has not committed."],
};

const columns = document.querySelectorAll(".buyer");
let round = null;
const pressed = new Set(); // buyers whose step the shop has not answered yet
let beginning = false; // a new round: the one that is shown is over, and takes no step any more

export function install(refresh) {
  $("round-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    beginning = true;
    for (const column of columns) allow(column.querySelector(".step"), false);
    const { status, body } = await ask("/steps", { lock: $("step-lock").value });
    beginning = false; // refresh() shows the new one, and only then can its buttons be pressed
    say($("round-refusal"), status === 201 ? "" : refusal(body));
    for (const column of columns) say(column.querySelector(".refusal"), "");
    refresh();
  });
  for (const column of columns) {
    column.querySelector(".step").addEventListener("click", async ({ currentTarget }) => {
      if (!allowed(currentTarget) || !round) return;
      const { buyer } = column.dataset;
      pressed.add(buyer);
      allow(currentTarget, false);
      const { status, body } = await ask("/steps/step", { round, buyer });
      pressed.delete(buyer);
      say(column.querySelector(".refusal"), status === 202 ? "" : `Not done: ${body.error}`);
      refresh();
    });
  }
}

// Whether somebody is under way, so that it is worth looking often.
export function show(steps) {
  say($("round-lock"), steps ? `This round: ${steps.lock}.` : "");
  round = steps?.round;
  const sale = steps?.sale;
  $("step-stock").textContent = sale?.stock_left ?? "–";
  $("step-orders").textContent = sale?.orders ?? "–";
  for (const column of columns) showBuyer(column, steps);
  showVerdict(steps, sale);
  return Object.values(steps?.buyers ?? {}).some(({ status }) => status !== "ready" && status !== "done");
}

function showBuyer(column, steps) {
  const name = column.dataset.buyer;
  const buyer = steps?.buyers[name];
  const button = column.querySelector(".step");
  const status = buyer?.status ?? "none";
  const at = status === "done" ? "done" : (buyer?.at ?? buyer?.after);
  const reached = ORDER.indexOf(at);
  const undone = status === "done" && buyer.outcome !== "sold";
  column.querySelectorAll(".track li").forEach((item, index) => {
    item.classList.toggle("passed", !undone && index <= reached);
    item.classList.toggle("here", index === reached && status === "stopped");
  });
  column.dataset.status = status;
  button.disabled = !steps;
  allow(button, !beginning && !pressed.has(name) && (status === "ready" || status === "stopped"));
  button.textContent = status === "done" ? `${name} is done` : `${name}: ${NEXT[at] || "read"}`;
  column.querySelector(".left").textContent = buyer?.left_s === undefined ? "" : `${Math.ceil(buyer.left_s)} s left`;
  say(column.querySelector(".place"), ...place(buyer, steps));
}

function place(buyer, steps) {
  if (!buyer) return ["Press New round."];
  const { status, outcome } = buyer;
  if (status === "ready") return ["Has not come yet."];
  if (status === "moving") return ["…"];
  if (status === "blocked") {
    const [sign, words] = WAITS[steps.lock === "advisory" ? "advisory" : buyer.waits_for];
    return [badge("blocked", sign), words];
  }
  if (status === "stopped") {
    return [buyer.at === "checked" ? `Has read ${buyer.saw}: there is one.` : STANDS[buyer.at]];
  }
  if (outcome === "sold") {
    const late = buyer.released === "expired" ? " The lock had expired meanwhile." : "";
    return [badge("sold"), ` has order ${buyer.order}.${late}`];
  }
  if (outcome === "sold_out") return [badge("sold_out"), " found nothing left."];
  return [badge(outcome), ` ${buyer.said}`];
}

function showVerdict(steps, sale) {
  const over = steps && Object.values(steps.buyers).every((buyer) => buyer.status === "done");
  let shown = [over ? "Nobody bought it. Begin a new round." : ""];
  if (sale?.oversold) shown = [badge("oversold"), ` ${sale.orders} orders for the last unit, under ${steps.lock}.`];
  else if (over && sale?.orders === 1) shown = [badge("exact"), ` One order for one unit, under ${steps.lock}.`];
  say($("step-verdict"), ...shown);
}
