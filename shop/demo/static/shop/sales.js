// The sales so far, one below the other: the contrast.

import { $, badge, element } from "../assets/dom.js";
import { ask } from "./ask.js";

export async function showSales(product, rush) {
  const { status, body } = await ask(`/history?product=${product}`);
  if (status !== 200) return;
  const rows = body.sales.map((sale) => rowOf(sale, rush));
  if (!rows.length) rows.push(element("tr", {}, element("td", { colspan: "8" }, "None yet.")));
  $("history").replaceChildren(...rows);
}

function rowOf(sale, rush) {
  const running = rush && rush.sale === sale.sale;
  const { buyers, hold_ms: payment, duration_s: seconds } = sale.run;
  const verdict = running && !sale.oversold ? "running" : sale.verdict;
  const settled = (figure) => (running ? "…" : figure); // what changes is above, in large digits
  const figures = [
    [settled(`${sale.orders} of ${sale.initial_stock}`), ""],
    [settled(sale.stock_left), ""],
    [settled(sale.lost_updates), ""],
    [seconds === null ? "–" : seconds.toFixed(2), "wide"],
    [running ? rush.buyers : (buyers ?? "–"), "wider"],
    [payment === null ? "–" : `${payment} ms`, "wider"],
  ];
  return element(
    "tr",
    { title: `sale ${sale.sale}` },
    element("th", { scope: "row" }, (running && rush.lock) || sale.lock || "no orders"),
    element("td", {}, badge(verdict)),
    ...figures.map(([value, look]) => element("td", { class: `number ${look}` }, String(value))),
  );
}
