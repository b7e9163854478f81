// A chart of orders and stock, with a line for the initial stock. During a rush its points come from
// the polls; afterwards from the orders themselves.

import { $, css, stepLine } from "../assets/dom.js";
import { ask } from "./ask.js";

/**
 * A sale, as GET /state reports it.
 * @typedef {object} Sale
 * @property {number} sale Its number.
 * @property {string} lock The name of its strategy; empty without an order.
 * @property {string} verdict
 * @property {number} initial_stock
 * @property {number} stock_left
 * @property {number} orders
 * @property {boolean} oversold
 */

const MAX_DRAWN_ORDERS = 2000;

/** ECharts has no module: its script, which comes before this one, makes a global of it. */
const { echarts } = /** @type {any} */ (globalThis);

/** @type {any} */
let chart = null;
/** @type {number | null} */
let sale = null;
let drawn = "";
/** @type {[seconds: number, orders: number, stock: number][]} */
let points = [];

/**
 * Draw a sale: as it goes on during a rush, from its orders afterwards.
 * @param {Sale | null} report
 * @param {boolean} rushIsOn
 */
export function follow(report, rushIsOn) {
  if (!report || !echarts) return;
  const key = rushIsOn ? "" : `${report.sale}: ${report.orders}/${report.stock_left}`;
  if (rushIsOn) {
    // time begins with the last poll before the first order
    if (report.sale !== sale || !report.orders) points = [];
    points.push([performance.now() / 1000, report.orders, report.stock_left]);
    const rows = points.map(([time, ...counts]) => [time - points[0][0], ...counts]);
    if (rows.length === 1) rows.push([1, report.orders, report.stock_left]); // a line has two ends
    draw(report, rows);
  } else if (drawn !== key) {
    points = [];
    drawOrders(report);
  }
  sale = report.sale;
  drawn = key;
}

/** @param {Sale} report */
async function drawOrders(report) {
  if (report.orders > MAX_DRAWN_ORDERS) return;
  const { status, body } = await ask(`/sales/${report.sale}/curve`);
  if (status !== 200 || report.sale !== sale) return;
  /** @type {[seconds: number, stock: number | null][]} */
  const curve = body.curve;
  const orders = curve.map(([time, stock], index) => [time, index + 1, stock]);
  const end = orders.at(-1)?.[0] || 1; // one moment is no axis
  draw(report, [[0, 0, null], ...orders, [end, orders.length, report.stock_left]]);
}

/**
 * @param {Sale} report
 * @param {(number | null)[][]} rows Each: seconds, orders, stock; null if unknown.
 */
function draw(report, rows) {
  const box = $("chart");
  if (!chart) {
    chart = echarts.init(box);
    new ResizeObserver(() => chart.resize()).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      drawn = "";
    });
  }
  const ink = css("--ink");
  const size = Math.max(13, Math.min(22, box.clientWidth / 45));
  const font = { color: ink, fontSize: size };
  const quiet = { color: css("--quiet"), fontSize: size };
  const axis = { type: "value", axisLabel: { ...quiet, showMaxLabel: false } };
  const above = { ...font, offset: [0, -size / 2] };
  chart.setOption(
    {
      animation: false,
      dataset: { source: rows },
      grid: { left: 4, right: size * 7, top: size * 2.2, bottom: size * 2, containLabel: true },
      xAxis: {
        ...axis,
        max: "dataMax",
        name: "seconds",
        nameLocation: "middle",
        nameGap: size * 1.9,
        nameTextStyle: quiet,
        splitLine: { show: false },
      },
      yAxis: {
        ...axis,
        max: Math.max(report.initial_stock, report.orders, 1) * 1.05,
        splitLine: { lineStyle: { color: css("--line") } },
      },
      series: [
        {
          ...stepLine("orders", 1, "--orders", "solid", 4, above),
          markLine: {
            silent: true,
            symbol: "none",
            lineStyle: { color: ink, width: 2, type: "dashed" },
            label: { position: "insideStartTop", formatter: `${report.initial_stock} in stock at the start`, ...font },
            data: [{ yAxis: report.initial_stock }],
          },
        },
        stepLine("stock", 2, "--stock", "dotted", 4, above),
      ],
    },
    { notMerge: true },
  );
  box.setAttribute(
    "aria-label",
    `Chart: ${report.orders} orders against the line of ${report.initial_stock} units; ` +
      `${report.stock_left} left in stock.`,
  );
}
