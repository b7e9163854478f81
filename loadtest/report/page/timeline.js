// The chart of one run: a lane for each buyer above, the shelf (orders and stock) below, one time axis.

/** @import { Run, Timeline } from "./data.js" */

import { PATHS, css, stepLine } from "../../../demo/static/assets/dom.js";
import { laneTip } from "./events.js";
import { COMMIT_MARKS, MARKS, chartText, fontSize, markOfOutcome } from "./marks.js";

/** @typedef {Record<string, any>} Option A part of the options of ECharts. */

const TOP = 26; // pixels above the lanes, for the names of the faults
const GAP = 22; // pixels between the lanes and the shelf
const SHELF = 170; // pixels of orders and stock, with their axis
const SHELF_AXIS = 40; // pixels of that axis and its labels
const BOTTOM = 24; // pixels of the slider
const THIN_LANE = 8; // in a lane of fewer pixels, bars are drawn higher, to stay visible
const LABEL_PART = 0.12; // share of the time axis that the label of a fault takes on a phone
const ICON_SIZE = 24; // pixels of the paths of dom.js
/** Whether the reader has a touch screen, on which a drag must scroll the page. */
const COARSE = matchMedia("(pointer: coarse)");

/** Options of each series in the lanes. Not progressive: ECharts does not clip a series that it draws in parts. */
const LANE_SERIES = { type: "custom", encode: { x: 1, y: 0 }, silent: true, progressive: 0 };

/**
 * Return the height of the whole chart in pixels.
 * @param {number} lanesHeight
 * @returns {number}
 */
export function chartHeight(lanesHeight) {
  return TOP + lanesHeight + GAP + SHELF + BOTTOM;
}

/**
 * Return a series of bars, each in a lane from one time to another.
 * @param {string} name The name of a mark.
 * @param {(number | null)[][]} data Lane, start and end of each bar.
 * @param {Option} [more]
 * @returns {Option}
 */
function barSeries(name, data, more = {}) {
  const { color, bar = 1, hatched } = MARKS[name];
  const fill = css(color);
  /** @type {(params: any, api: any) => Option} */
  const renderItem = (_params, api) => {
    const [x, y] = api.coord([api.value(1), api.value(0)]);
    const [end] = api.coord([api.value(2), api.value(0)]);
    const band = api.size([0, 1])[1];
    const height = Math.max(1.5, band * (band < THIN_LANE ? Math.min(1, bar * 1.6) : bar));
    const shape = { x, y: y - height / 2, width: Math.max(1, end - x), height };
    const decal = { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 5], rotation: -0.7, color: fill };
    const hatch = { fill: css("--hatch"), stroke: fill, lineWidth: height > 8 ? 2 : 1, decal };
    return { type: "rect", shape, style: hatched ? hatch : { fill } };
  };
  return { ...LANE_SERIES, id: name, data, renderItem, clip: true, ...more };
}

/**
 * Return a series of signs, each in a lane at one time. A sign has at least 6 pixels, to stay visible.
 * @param {string} name The name of a mark.
 * @param {number[][]} data Lane and time of each sign.
 * @returns {Option}
 */
function signSeries(name, data) {
  const { color, sign = "cross", filled } = MARKS[name];
  const paint = css(color);
  /** @type {(params: any, api: any) => Option | null} */
  const renderItem = ({ coordSys: area }, api) => {
    const [x, y] = api.coord([api.value(1), api.value(0)]);
    // A sign at either end may be rounded to one pixel outside.
    const isInWidth = Math.abs(x - area.x - area.width / 2) <= area.width / 2 + 1;
    const isInHeight = Math.abs(y - area.y - area.height / 2) <= area.height / 2;
    if (!isInWidth || !isInHeight) return null;
    const size = Math.max(6, Math.min(16, api.size([0, 1])[1] * 0.72));
    const scale = size / (sign === "square" ? 12 : 14); // the pixels of the sign in its icon
    const style = filled
      ? { fill: paint, stroke: css("--card"), lineWidth: size > 8 ? 1.5 : 0 }
      : { fill: "none", stroke: paint, lineWidth: size > 8 ? 2.5 : 1.5 };
    const half = (ICON_SIZE / 2) * scale;
    const place = { x: x - half, y: y - half, scaleX: scale, scaleY: scale };
    return { type: "path", shape: { pathData: PATHS[sign] }, ...place, style: { ...style, strokeNoScale: true } };
  };
  // Not clipped by ECharts, so that a sign at either end of the time stays whole.
  return { ...LANE_SERIES, id: name, data, renderItem, clip: false, z: 5 };
}

/**
 * Return the lane and the time of each sign, by the name of its mark.
 * @param {Timeline} timeline
 * @returns {Record<string, number[][]>}
 */
function signsOf({ requests, commits, end }) {
  /** @type {Record<string, number[][]>} */
  const signs = {};
  /** @type {(mark: string, lane: number, when: number) => void} */
  const addSign = (mark, lane, when) => {
    signs[mark] ??= [];
    signs[mark].push([lane, when]);
  };
  for (const [lane, , answered, outcome] of requests) {
    const mark = markOfOutcome(answered === null ? "unknown" : outcome);
    if (mark) addSign(mark, lane, answered ?? end);
  }
  for (const [lane, , when, , , state] of commits) addSign(COMMIT_MARKS[state], lane, when);
  return signs;
}

/**
 * Return all series of the chart: those of the lanes, and the two curves of the shelf.
 * @param {Timeline} timeline
 * @param {Run} run
 * @returns {Option[]}
 */
function seriesOf(timeline, run) {
  const { requests, holds, commits, overlaps, faults, shelf, end } = timeline;
  const waits = requests.map(([lane, sent, answered]) => [lane, sent, answered ?? end]);
  const sections = commits.filter(([, read]) => read !== null);
  const signs = signsOf(timeline);
  const stockAtStart = dashedLines("--ink", [{ yAxis: run.initial_stock }], {
    position: "insideStartTop",
    formatter: `${run.initial_stock} at the start`,
  });
  return [
    barSeries("wait", waits, { markLine: faultLines(faults, end) }),
    barSeries("hold", holds.map(([lane, , start, stop]) => [lane, start, stop])),
    barSeries("section", sections.map(([lane, read, when]) => [lane, read, when])),
    barSeries("overlap", overlaps.map(([lane, start, stop]) => [lane, start, stop]), { z: 4 }),
    ...Object.keys(signs).map((mark) => signSeries(mark, signs[mark])),
    shelfLine("orders", shelf.map(([when, orders]) => [when, orders]), "--orders", "solid", { markLine: stockAtStart }),
    shelfLine("stock", shelf.map(([when, , stock]) => [when, stock]), "--stock", "dotted"),
  ];
}

/**
 * Return the lines of the faults. The label `fault` is above the lanes, and `healed` below them. Of
 * labels that would be printed over each other, only the first is shown.
 * @param {Timeline["faults"]} faults
 * @param {number} end
 * @returns {Option}
 */
function faultLines(faults, end) {
  /** @type {Record<string, [name: string, position: string]>} */
  const labels = { fire: ["fault", "start"], heal: ["healed", "end"] };
  /** @type {Record<string, number>} */
  const lastLabelled = {};
  const data = faults.map(([when, phase]) => {
    const [name, position] = labels[phase] || ["", "start"];
    const isFree = when - (lastLabelled[phase] ?? -Infinity) >= end * LABEL_PART;
    const show = Boolean(name) && isFree;
    if (show) lastLabelled[phase] = when;
    return { xAxis: when, name, label: { show, position } };
  });
  return dashedLines("--odd", data, { fontWeight: 600, formatter: "{b}" }); // {b} is the name
}

/**
 * Return a curve of the shelf.
 * @param {string} name
 * @param {number[][]} data Time and number of units.
 * @param {string} color A custom property.
 * @param {string} type Solid or dotted.
 * @param {Option} [more]
 * @returns {Option}
 */
function shelfLine(name, data, color, type, more = {}) {
  const line = stepLine(name, 1, color, type, 3, { fontWeight: 700, fontSize: fontSize() });
  return { ...line, id: name, data, xAxisIndex: 1, yAxisIndex: 1, silent: true, ...more };
}

/**
 * Return straight dashed lines across the chart.
 * @param {string} colorName A custom property.
 * @param {Option[]} data The time or the number of units of each line.
 * @param {Option} label
 * @returns {Option}
 */
function dashedLines(colorName, data, label) {
  const color = css(colorName);
  const lineStyle = { color, width: 1.5, type: "dashed" };
  return { silent: true, symbol: "none", lineStyle, label: { color, fontSize: fontSize(), ...label }, data };
}

/**
 * Return a time as text for the axis, in seconds, without zeros at the end.
 * @param {number} ms
 * @returns {string}
 */
function timeLabel(ms) {
  return `${Number((ms / 1000).toFixed(3))} s`;
}

/**
 * Return the zooms: a slider and the mouse for the time, and a slider for the lanes if there are many.
 * @param {number} laneCount
 * @param {number} height Pixels of all lanes.
 * @returns {Option[]}
 */
function zooms(laneCount, height) {
  const sliderLook = {
    filterMode: "none",
    textStyle: { color: css("--quiet") },
    borderColor: css("--line"),
    brushSelect: false,
    showDataShadow: false,
  };
  return [
    { id: "x", type: "slider", xAxisIndex: [0, 1], bottom: 4, height: 22, labelFormatter: timeLabel, ...sliderLook },
    {
      type: "inside",
      xAxisIndex: [0, 1],
      filterMode: "none",
      zoomOnMouseWheel: "ctrl",
      moveOnMouseMove: !COARSE.matches,
      preventDefaultMouseMove: !COARSE.matches,
    },
    { id: "y", type: "slider", show: laneCount > 40, yAxisIndex: 0, right: 6, width: 18, top: TOP, height, showDetail: false, ...sliderLook },
  ];
}

/**
 * Return the four axes: time and buyers above, time and units below.
 * @param {Timeline} timeline
 * @param {Run} run
 * @param {number} left Pixels to the left of the lanes.
 * @returns {{ xAxis: Option[], yAxis: Option[] }}
 */
function axes({ lanes, end, shelf }, run, left) {
  const line = { lineStyle: { color: css("--line") } };
  const value = { type: "value", min: 0, splitLine: { ...line, show: true }, axisPointer: { show: false } };
  const time = { ...value, max: end, axisLine: line, axisTick: line };
  const texts = { color: css("--quiet"), fontSize: fontSize(), hideOverlap: true };
  const maxUnits = Math.max(run.initial_stock, run.orders, ...shelf.map(([, , stock]) => stock), 1);
  return {
    xAxis: [
      { ...time, gridIndex: 0, axisLabel: { show: false } },
      { ...time, gridIndex: 1, axisLabel: { ...texts, formatter: timeLabel } },
    ],
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
      { ...value, gridIndex: 1, max: Math.ceil(maxUnits * 1.15), axisLabel: { ...texts, showMaxLabel: false }, splitNumber: 3 },
    ],
  };
}

/**
 * Return the options of the chart.
 * @param {Timeline} timeline
 * @param {Run} run
 * @param {number} width Pixels.
 * @param {number} height Pixels of all lanes.
 * @returns {Option}
 */
export function timelineOption(timeline, run, width, height) {
  const font = fontSize();
  const left = font * (width < 600 ? 6.2 : 7); // for the names of the buyers
  const right = font * 7.5; // for the names of the curves
  /** @type {(points: { value: number[] }[]) => HTMLElement} */
  const formatter = ([{ value }]) => laneTip(timeline, value[0]);
  return {
    animation: false,
    textStyle: chartText(),
    grid: [
      { left, right, top: TOP, height },
      { left, right, top: TOP + height + GAP, height: SHELF - SHELF_AXIS },
    ],
    ...axes(timeline, run, left),
    tooltip: {
      trigger: "axis",
      className: "tip",
      confine: true,
      transitionDuration: 0,
      backgroundColor: css("--card"),
      textStyle: { color: css("--ink"), fontSize: font },
      formatter,
    },
    dataZoom: zooms(timeline.lanes.length, height),
    series: seriesOf(timeline, run),
  };
}
