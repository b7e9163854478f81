// The timeline of the open run: draw it, draw it again in another width, and zoom by buttons.

/** @import { Run, Timeline } from "./data.js" */

import { $, count } from "../../../demo/static/assets/dom.js";
import { fillLegend } from "./marks.js";
import { chartHeight, timelineOption } from "./timeline.js";

const LANE_HEIGHT = 22; // pixels
const MIN_HEIGHT = 160; // pixels of all lanes
/** The lanes are at most as high as this part of the window, which counts as 420 to 900 pixels. */
const WINDOW_PART = 0.68;

/** ECharts has no module: its script, which comes before this one, makes a global of it. */
const { echarts } = /** @type {any} */ (globalThis);

/** @type {(() => void) | null} Draws the open run in the present width. */
let redraw = null;

/** Draw the open run again whenever its box gets another width. */
export function watchWidth() {
  let drawnWidth = 0;
  new ResizeObserver(([{ contentRect }]) => {
    const { width } = contentRect;
    if (!width) return; // hidden: there is no box to draw in
    if (redraw && drawnWidth && width !== drawnWidth) redraw(); // openLanes() has drawn the first width
    drawnWidth = width;
  }).observe($("lanes"));
}

/**
 * Draw the timeline of a run, in the place of another one.
 * @param {Run} run
 * @param {Timeline} timeline The timeline of the run.
 */
export function openLanes(run, timeline) {
  const box = $("lanes");
  const maxHeight = Math.max(420, Math.min(innerHeight * WINDOW_PART, 900));
  const wantedHeight = Math.max(MIN_HEIGHT, timeline.lanes.length * LANE_HEIGHT);
  const height = Math.round(Math.min(maxHeight, wantedHeight));
  box.style.height = `${chartHeight(height)}px`;
  echarts.getInstanceByDom(box)?.dispose();
  const chart = echarts.init(box);
  redraw = () => {
    chart.resize();
    const option = timelineOption(timeline, run, box.clientWidth, height);
    chart.setOption(option, { notMerge: true });
    fillLegend(option.series);
  };
  $("to-all").onclick = () => openLanes(run, timeline);
  walkOverlaps(timeline, chart);
  box.setAttribute("aria-label", `Timeline of ${count(timeline.lanes.length, "buyer")} under ${run.lock}, ${run.fault}`);
  redraw();
}

/**
 * Have the button zoom to the next overlap each time, and hide it if there is none.
 * @param {Timeline} timeline
 * @param {any} chart
 */
function walkOverlaps(timeline, chart) {
  const overlaps = timeline.overlaps.filter((_, index) => index % 2 === 0); // each is in two lanes
  const button = $("to-mark");
  let shownIndex = -1;
  button.hidden = !overlaps.length;
  button.textContent = overlaps.length === 1 ? "To the overlap" : `To the overlaps (${overlaps.length})`;
  button.onclick = () => {
    shownIndex = (shownIndex + 1) % overlaps.length;
    zoomTo(overlaps[shownIndex], timeline, chart);
    button.textContent = `Overlap ${shownIndex + 1} of ${overlaps.length}`;
  };
}

/**
 * Zoom the chart to an overlap, with some time and some lanes around it.
 * @param {Timeline["overlaps"][number]} overlap
 * @param {Timeline} timeline
 * @param {any} chart
 */
function zoomTo([lane, start, end, other], timeline, chart) {
  const marginMs = Math.max(5, (end - start) * 0.75);
  const marginLanes = Math.max(3, 12 - Math.abs(lane - other)); // above and below
  const x = { startValue: Math.max(0, start - marginMs), endValue: Math.min(timeline.end, end + marginMs) };
  const y = {
    startValue: Math.max(0, Math.min(lane, other) - marginLanes),
    endValue: Math.min(timeline.lanes.length - 1, Math.max(lane, other) + marginLanes),
  };
  chart.dispatchAction({ type: "dataZoom", batch: [{ dataZoomId: "x", ...x }, { dataZoomId: "y", ...y }] });
}
