// Two buyers, one step at a time, shown from the state of the round in the shop.

import { $, badge } from "../assets/dom.js";
import { allow, allowed, ask, refusal, say } from "./ask.js";

const STOPS = ["checked", "written", "done"];
const NEXT_STEPS = { checked: "write", written: "commit" };
// Icon and text of a blocked buyer, by the object that it waits for.
const WAIT_DESCRIPTIONS = {
  lock: ["lock", " waits until the other buyer releases the lock."],
  database: ["database", " waits for the product's row in the database: the other buyer has not committed."],
  advisory: ["database", " waits for the advisory lock in the database: the other buyer has not committed."],
};

const columns = document.querySelectorAll(".buyer");
let round = null;
const pressed = new Set(); // buyers whose step the shop has not answered yet
let beginning = false; // a new round has been requested: the one that is shown takes no more steps

export function install(refresh) {
  $("round-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    beginning = true;
    for (const column of columns) allow(column.querySelector(".step"), false);
    const { status, body } = await ask("/steps", { lock: $("step-lock").value });
    beginning = false; // its buttons can be pressed once refresh() shows the new round
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

// Show the round. Return whether a buyer is moving, so that the page should poll often.
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
  const reached = STOPS.indexOf(at);
  const undone = status === "done" && buyer.outcome !== "sold";
  column.querySelectorAll(".track li").forEach((item, index) => {
    item.classList.toggle("passed", !undone && index <= reached);
    item.classList.toggle("here", index === reached && status === "stopped");
  });
  column.dataset.status = status;
  button.disabled = !steps;
  allow(button, !beginning && !pressed.has(name) && (status === "ready" || status === "stopped"));
  button.textContent = status === "done" ? `${name} is done` : `${name}: ${NEXT_STEPS[at] || "read"}`;
  column.querySelector(".left").textContent = buyer?.left_s === undefined ? "" : `${Math.ceil(buyer.left_s)} s left`;
  say(column.querySelector(".place"), ...describe(buyer, steps));
}

function describe(buyer, steps) {
  if (!buyer) return ["Press New round."];
  const { status, outcome } = buyer;
  if (status === "ready") return ["Not started."];
  if (status === "moving") return ["…"];
  if (status === "blocked") {
    const [sign, text] = WAIT_DESCRIPTIONS[steps.lock === "advisory" ? "advisory" : buyer.waits_for];
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

function showVerdict(steps, sale) {
  const over = steps && Object.values(steps.buyers).every((buyer) => buyer.status === "done");
  let message = [over ? "No order was made. Begin a new round." : ""];
  if (sale?.oversold) message = [badge("oversold"), ` ${sale.orders} orders for the last unit, under ${steps.lock}.`];
  else if (over && sale?.orders === 1) message = [badge("exact"), ` One order for one unit, under ${steps.lock}.`];
  say($("step-verdict"), ...message);
}
