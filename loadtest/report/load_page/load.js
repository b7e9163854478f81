// Fills the report of a load run: verdicts, time to answer by second, and of all buyers.

const data = JSON.parse($("data").textContent);
// A strategy keeps its look in the chart: a colour, and a sign for those who see none.
const LOOKS = [
  ["--accent", "circle"],
  ["--bad", "diamond"],
  ["--good", "rect"],
  ["--odd", "triangle"],
  ["--ink", "emptyCircle"],
  ["--quiet", "emptyRect"],
];
let overChart = null;

function drawOver(seconds) {
  const box = $("over");
  const font = fontSize();
  const quiet = css("--quiet");
  const line = { lineStyle: { color: css("--line") } };
  const names = Object.keys(seconds);
  const all = Object.values(seconds).flatMap((rows) => rows.map((row) => row[3]));
  const wide = Math.max(...all) / Math.max(1, Math.min(...all)) > 50;
  const ms = (value) => (wide ? Math.max(1, value) : value);
  const axis = (name, gap, more) => ({
    name,
    nameLocation: "middle",
    nameGap: gap,
    nameTextStyle: { color: quiet, fontSize: font },
    axisLabel: { color: quiet, fontSize: font, hideOverlap: true },
    axisLine: line,
    splitLine: { ...line, show: true },
    ...more,
  });
  const lineOf = (name, place, column, dotted) => {
    const [color, sign] = LOOKS[place % LOOKS.length];
    return {
      name,
      type: "line",
      data: seconds[name].map((row) => [row[0], ms(row[column])]),
      symbol: dotted ? "none" : sign,
      symbolSize: 8,
      lineStyle: { color: css(color), width: dotted ? 1.5 : 2.5, type: dotted ? "dotted" : "solid" },
      itemStyle: { color: css(color) },
      silent: true,
    };
  };
  box.style.height = `${font * 26}px`;
  if (!overChart) {
    overChart = echarts.init(box);
    new ResizeObserver(() => overChart.resize()).observe(box);
  }
  overChart.setOption(
    {
      animation: false,
      textStyle: chartText(),
      legend: { top: 0, data: names, textStyle: { color: css("--ink"), fontSize: font }, type: "scroll" },
      grid: { left: font * 2.5, right: 28, top: font * 3, bottom: font * 2.5, containLabel: true },
      xAxis: axis("seconds", font * 2, { type: "value", minInterval: 1, max: "dataMax" }),
      yAxis: axis("milliseconds", font * 4.5, { type: wide ? "log" : "value" }),
      series: names.flatMap((name, place) => [lineOf(name, place, 3, false), lineOf(name, place, 2, true)]),
    },
    { notMerge: true },
  );
  const last = (name) => seconds[name].at(-1);
  const said = names.filter(last).map((name) => `${name} ${Math.round(last(name)[3])} ms`);
  box.setAttribute("aria-label", `Lines. The p99 in the last second: ${said.join(", ")}.`);
}

function fillOver(seconds) {
  const rows = Object.entries(seconds).flatMap(([name, those]) => those.map((row) => [name, ...row.map(String)]));
  const heads = ["lock", "second", "sold", "p50 ms", "p99 ms"];
  $("over-table").querySelector(".scroll").replaceChildren(table(heads, rows, 1));
}

// As `badge`, with the word of a sale that lost decrements before it ran out.
function verdictOf(row) {
  const shown = row.said === "LOST UPDATES" ? "oversold" : row.verdict;
  const made = badge(shown);
  made.lastChild.textContent = row.said;
  const surprise = row.as_expected ? null : element("span", {}, ` expected ${row.expected}`);
  return element("span", {}, made, surprise);
}

function start() {
  const { rows, heads, seconds, latency, notes, legend } = data;
  const off = rows.filter((row) => !row.as_expected).length;
  $("title").textContent = data.title;
  $("where").textContent = data.where;
  $("sum").textContent = `${count(rows.length, "strategy", "strategies")}: ${off ? `${off} not as expected` : "all as expected"}.`;
  $("verdicts-box").replaceChildren(
    table(["lock", "verdict", ...heads], rows.map((row) => [row.lock, verdictOf(row), ...row.figures]), 2),
  );
  $("notes").replaceChildren(...notes.map((note) => element("li", {}, note)));
  $("notes").hidden = !notes.length;
  $("legend").replaceChildren(...legend.map((line) => element("li", {}, line)));
  fillOver(seconds);
  fillWaits(latency);
  const draw = () => {
    if (Object.values(seconds).some((those) => those.length)) drawOver(seconds);
    if (latency.length) drawWaits(latency);
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
  $("over").dataset.drawn = "yes";
}

start();
