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
 * @property {string} why Why the verdict is unknown; empty for any other verdict.
 * @property {number} initial_stock
 * @property {number} stock_left
 * @property {number} orders
 * @property {boolean} oversold
 */

/** After a rush with more orders, the chart keeps the points of the polls. */
const MAX_DRAWN_ORDERS = 2000;

/** ECharts has no module: its script, which comes before this one, makes a global of it. */
const { echarts } = /** @type {any} */ (globalThis);

/** @type {any} */
let chart = null;
/** @type {number | null} */
let drawnSale = null; // its number
let drawnKey = ""; // sale, orders and stock of the chart; empty during a rush, or to draw it again
/**
 * One point for each poll during a rush.
 * @type {[seconds: number, orders: number, stock: number][]}
 */
let points = [];

/**
 * Draw a sale: during a rush from each poll, afterwards from its orders.
 * @param {Sale | null} sale
 * @param {boolean} isRushOn
 */
export function updateChart(sale, isRushOn) {
  if (!sale || !echarts) return;
  const key = isRushOn ? "" : `${sale.sale}: ${sale.orders}/${sale.stock_left}`;
  if (isRushOn) {
    // time begins with the last poll before the first order
    if (sale.sale !== drawnSale || !sale.orders) points = [];
    points.push([performance.now() / 1000, sale.orders, sale.stock_left]);
    const rows = points.map(([time, ...counts]) => [time - points[0][0], ...counts]);
    if (rows.length === 1) rows.push([1, sale.orders, sale.stock_left]); // a line needs two points
    drawChart(sale, rows);
  } else if (drawnKey !== key) {
    points = [];
    drawOrders(sale);
  }
  drawnSale = sale.sale;
  drawnKey = key;
}

/**
 * Draw the orders of a sale, unless another sale is shown by the time they arrive.
 * @param {Sale} sale
 */
async function drawOrders(sale) {
  if (sale.orders > MAX_DRAWN_ORDERS) return;
  const { status, body } = await ask(`/sales/${sale.sale}/curve`);
  if (status !== 200 || sale.sale !== drawnSale) return;
  /** @type {[seconds: number, stock: number | null][]} */
  const curve = body.curve;
  const orders = curve.map(([time, stock], index) => [time, index + 1, stock]);
  const end = orders.at(-1)?.[0] || 1; // an axis needs a length
  drawChart(sale, [[0, 0, null], ...orders, [end, orders.length, sale.stock_left]]);
}

/**
 * Draw the chart from its numbers.
 * @param {Sale} sale
 * @param {(number | null)[][]} rows Each: seconds, orders, stock; null if unknown.
 */
function drawChart(sale, rows) {
  const box = $("chart");
  if (!chart) {
    chart = echarts.init(box);
    new ResizeObserver(() => chart.resize()).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      drawnKey = ""; // the next poll draws the chart in the other colors
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
        max: Math.max(sale.initial_stock, sale.orders, 1) * 1.05,
        splitLine: { lineStyle: { color: css("--line") } },
      },
      series: [
        {
          ...stepLine("orders", 1, "--orders", "solid", 4, above),
          markLine: {
            silent: true,
            symbol: "none",
            lineStyle: { color: ink, width: 2, type: "dashed" },
            label: { position: "insideStartTop", formatter: `${sale.initial_stock} in stock at the start`, ...font },
            data: [{ yAxis: sale.initial_stock }],
          },
        },
        stepLine("stock", 2, "--stock", "dotted", 4, above),
      ],
    },
    { notMerge: true },
  );
  box.setAttribute(
    "aria-label",
    `Chart: ${sale.orders} orders against the line of ${sale.initial_stock} units; ` +
      `${sale.stock_left} left in stock.`,
  );
}
