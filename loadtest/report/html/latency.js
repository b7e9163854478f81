// How long buyers waited, by strategy: a box each.

let waitsChart = null;

function drawWaits(latency) {
  const box = $("waits");
  const steps = latency.map(([, , at]) => at);
  const slowest = Math.max(...steps.map((at) => at[5]));
  const fastest = Math.max(1, Math.min(...steps.map((at) => at[0])));
  const wide = slowest / fastest > 200; // a fault makes some wait for seconds, others for nothing
  const quiet = css("--quiet");
  const font = fontSize();
  const line = { lineStyle: { color: css("--line") } };
  const held = (at) => at.map((ms) => Math.max(ms, fastest));
  box.style.height = `${70 + latency.length * 34}px`;
  if (!waitsChart) {
    waitsChart = echarts.init(box);
    new ResizeObserver(() => waitsChart.resize()).observe(box);
  }
  waitsChart.setOption(
    {
      animation: false,
      textStyle: chartText(),
      grid: { left: 8, right: 28, top: 8, bottom: font * 2, containLabel: true },
      xAxis: {
        type: wide ? "log" : "value",
        min: wide ? "dataMin" : 0,
        name: "milliseconds",
        nameLocation: "middle",
        nameGap: font * 2,
        nameTextStyle: { color: quiet, fontSize: font },
        axisLabel: { color: quiet, fontSize: font, hideOverlap: true },
        splitLine: { ...line, show: true },
      },
      yAxis: {
        type: "category",
        inverse: true,
        data: latency.map(([lock]) => lock),
        axisLabel: { color: css("--ink"), fontSize: font, interval: 0 },
        axisTick: { show: false },
        axisLine: line,
      },
      series: [
        {
          type: "boxplot",
          data: steps.map((at) => held(at).slice(0, 5)),
          boxWidth: [10, 20],
          itemStyle: { color: css("--wait"), borderColor: css("--accent"), borderWidth: 2 },
          silent: true,
        },
        {
          type: "scatter",
          data: steps.map((at, index) => [Math.max(at[5], fastest), index]),
          symbolSize: 7,
          itemStyle: { color: css("--accent") },
          silent: true,
        },
      ],
    },
    { notMerge: true },
  );
  const slow = latency.map(([lock, , at]) => `${lock} ${Math.round(at[2])} ms`).join(", ");
  box.setAttribute("aria-label", `Box plot. Medians: ${slow}.`);
}

function fillWaits(latency) {
  const rows = latency.map(([lock, buyers, at]) => [lock, buyers, ...at].map(String));
  const heads = ["lock", "buyers", "fastest", "p25", "median", "p75", "p95", "slowest"];
  $("waits-table").querySelector(".scroll").replaceChildren(table(heads, rows, 1));
}
