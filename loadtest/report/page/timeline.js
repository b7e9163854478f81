// The chart of one run: a lane for each buyer above, orders and stock below, one time axis.

const SHELF = 170; // pixels, with its axis
const THIN = 8; // pixels of a lane below which its bars fill it
const LABEL_PART = 0.12; // of the time axis, which one label of a fault takes on a phone
const COARSE = matchMedia("(pointer: coarse)");

// Drawn at once: of a series that comes in parts ECharts clips nothing.
const LANES = { type: "custom", encode: { x: 1, y: 0 }, silent: true, progressive: 0 };

// A bar in a lane, from one time to another.
function barSeries(name, data, more = {}) {
  const { color, bar, hatched } = MARKS[name];
  const fill = css(color);
  const renderItem = (params, api) => {
    const [x, y] = api.coord([api.value(1), api.value(0)]);
    const [end] = api.coord([api.value(2), api.value(0)]);
    const band = api.size([0, 1])[1];
    const height = Math.max(1.5, band * (band < THIN ? Math.min(1, bar * 1.6) : bar));
    const shape = { x, y: y - height / 2, width: Math.max(1, end - x), height };
    const decal = { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 5], rotation: -0.7, color: fill };
    const hatch = { fill: css("--hatch"), stroke: fill, lineWidth: height > 8 ? 2 : 1, decal };
    return { type: "rect", shape, style: hatched ? hatch : { fill } };
  };
  return { ...LANES, id: name, data, renderItem, clip: true, ...more };
}

// A sign in a lane, at one time. It never gets smaller than can be seen.
function signSeries(name, data) {
  const { color, sign, filled } = MARKS[name];
  const paint = css(color);
  const renderItem = ({ coordSys: shown }, api) => {
    const [x, y] = api.coord([api.value(1), api.value(0)]);
    const isInside = Math.abs(x - shown.x - shown.width / 2) <= shown.width / 2 + 1;
    if (!isInside || Math.abs(y - shown.y - shown.height / 2) > shown.height / 2) return null;
    const size = Math.max(6, Math.min(16, api.size([0, 1])[1] * 0.72));
    const scale = size / (sign === "square" ? 12 : 14); // of an icon of 24 pixels
    const style = filled
      ? { fill: paint, stroke: css("--card"), lineWidth: size > 8 ? 1.5 : 0 }
      : { fill: "none", stroke: paint, lineWidth: size > 8 ? 2.5 : 1.5 };
    const place = { x: x - 12 * scale, y: y - 12 * scale, scaleX: scale, scaleY: scale };
    return { type: "path", shape: { pathData: PATHS[sign] }, ...place, style: { ...style, strokeNoScale: true } };
  };
  return { ...LANES, id: name, data, renderItem, clip: false, z: 5 }; // at both ends it is whole
}

function seriesOf(timeline, run) {
  const { requests, holds, commits, overlaps, faults, shelf, end } = timeline;
  const signs = {};
  const put = (name, lane, when) => (signs[name] = signs[name] || []).push([lane, when]);
  for (const [lane, , answered, outcome] of requests) {
    const mark = markOfOutcome(answered === null ? "unknown" : outcome);
    if (mark) put(mark, lane, answered === null ? end : answered);
  }
  for (const [lane, , when, , , state] of commits) put(COMMIT_STATES[state], lane, when);
  return [
    barSeries("wait", requests.map(([lane, sent, answered]) => [lane, sent, answered ?? end]), {
      markLine: faultLines(faults, end),
    }),
    barSeries("hold", holds.map(([lane, , start, stop]) => [lane, start, stop])),
    barSeries("section", commits.filter((c) => c[1] !== null).map(([lane, read, when]) => [lane, read, when])),
    barSeries("overlap", overlaps.map(([lane, start, stop]) => [lane, start, stop]), { z: 4 }),
    ...Object.entries(signs).map(([name, data]) => signSeries(name, data)),
    shelfLine("orders", shelf.map(([when, orders]) => [when, orders]), "--orders", "solid", {
      markLine: dashed("--ink", [{ yAxis: run.initial_stock }], {
        position: "insideStartTop",
        formatter: `${run.initial_stock} at the start`,
      }),
    }),
    shelfLine("stock", shelf.map(([when, , stock]) => [when, stock]), "--stock", "dotted"),
  ];
}

// A fault is named above the lanes and its end below them; of names that would be printed over each
// other the first one stays.
function faultLines(faults, end) {
  const said = { fire: ["fault", "start"], heal: ["healed", "end"] };
  const named = {};
  const data = faults.map(([when, phase]) => {
    const [name, position] = said[phase] || ["", "start"];
    const show = Boolean(name) && !(when - named[phase] < end * LABEL_PART);
    if (show) named[phase] = when;
    return { xAxis: when, name, label: { show, position } };
  });
  return dashed("--odd", data, { fontWeight: 600, formatter: ({ name }) => name });
}

function shelfLine(name, data, color, type, more = {}) {
  const line = stepLine(name, 1, color, type, 3, { fontWeight: 700, fontSize: fontSize() });
  return { ...line, id: name, data, xAxisIndex: 1, yAxisIndex: 1, silent: true, ...more };
}

function dashed(name, data, label) {
  const color = css(name);
  const lineStyle = { color, width: 1.5, type: "dashed" };
  return { silent: true, symbol: "none", lineStyle, label: { color, fontSize: fontSize(), ...label }, data };
}

function timelineOption(timeline, run, width, height) {
  const { lanes, end, shelf } = timeline;
  const font = fontSize();
  const left = font * (width < 600 ? 6.2 : 7);
  const right = font * 7.5;
  const quiet = css("--quiet");
  const line = { lineStyle: { color: css("--line") } };
  const value = { type: "value", min: 0, splitLine: { ...line, show: true }, axisPointer: { show: false } };
  const time = { ...value, max: end, axisLine: line, axisTick: line };
  const texts = { color: quiet, fontSize: font, hideOverlap: true };
  const label = (ms) => `${Number((ms / 1000).toFixed(3))} s`;
  const zoom = { filterMode: "none", textStyle: { color: quiet }, borderColor: css("--line"), brushSelect: false, showDataShadow: false };
  const most = Math.max(run.initial_stock, run.orders, ...shelf.map(([, , stock]) => stock), 1);
  return {
    animation: false,
    textStyle: chartText(),
    grid: [
      { left, right, top: 26, height },
      { left, right, top: 26 + height + 22, height: SHELF - 40 },
    ],
    xAxis: [
      { ...time, gridIndex: 0, axisLabel: { show: false } },
      { ...time, gridIndex: 1, axisLabel: { ...texts, formatter: label } },
    ],
    tooltip: {
      trigger: "axis",
      className: "tip",
      confine: true,
      transitionDuration: 0,
      backgroundColor: css("--card"),
      textStyle: { color: css("--ink"), fontSize: font },
      formatter: ([{ value }]) => laneTip(timeline, value[0]),
    },
    yAxis: [
      {
        type: "category",
        inverse: true,
        axisPointer: { show: true, type: "shadow", label: { show: false } },
        data: lanes.map(([buyer]) => buyer),
        axisLabel: { ...texts, width: left - 8, overflow: "truncate" },
        axisTick: { show: false },
        axisLine: line,
      },
      { ...value, gridIndex: 1, max: Math.ceil(most * 1.15), axisLabel: { ...texts, showMaxLabel: false }, splitNumber: 3 },
    ],
    dataZoom: [
      { id: "x", type: "slider", xAxisIndex: [0, 1], bottom: 4, height: 22, labelFormatter: label, ...zoom },
      {
        type: "inside",
        xAxisIndex: [0, 1],
        filterMode: "none",
        zoomOnMouseWheel: "ctrl",
        moveOnMouseMove: !COARSE.matches,
        preventDefaultMouseMove: !COARSE.matches,
      },
      { id: "y", type: "slider", show: lanes.length > 40, yAxisIndex: 0, right: 6, width: 18, top: 26, height, showDetail: false, ...zoom },
    ],
    series: seriesOf(timeline, run),
  };
}
