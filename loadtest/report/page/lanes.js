// The timeline of the open run on the page: drawn, drawn again in another width, zoomed by buttons.

/** @import { Run, Timeline } from "./data.js" */

import { $, count } from "../../../demo/static/assets/dom.js";
import { fillLegend } from "./marks.js";
import { chartHeight, timelineOption } from "./timeline.js";

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
    if (redraw && drawnWidth && width !== drawnWidth) redraw();
    drawnWidth = width;
  }).observe($("lanes"));
}

/**
 * Draw the timeline of a run, in the place of another one.
 * @param {Run} run
 * @param {Timeline} timeline That of the run, which is not null.
 */
export function openLanes(run, timeline) {
  const box = $("lanes");
  const maxHeight = Math.max(420, Math.min(innerHeight * 0.68, 900));
  const height = Math.round(Math.min(maxHeight, Math.max(160, timeline.lanes.length * 22)));
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
 * Let the button zoom to one overlap after the other.
 * @param {Timeline} timeline
 * @param {any} chart
 */
function walkOverlaps(timeline, chart) {
  const overlaps = timeline.overlaps.filter((_, index) => index % 2 === 0); // each is in two lanes
  const button = $("to-mark");
  let shown = -1;
  button.hidden = !overlaps.length;
  button.textContent = overlaps.length === 1 ? "To the overlap" : `To the overlaps (${overlaps.length})`;
  button.onclick = () => {
    shown = (shown + 1) % overlaps.length;
    zoomTo(overlaps[shown], timeline, chart);
    button.textContent = `Overlap ${shown + 1} of ${overlaps.length}`;
  };
}

/**
 * @param {Timeline["overlaps"][number]} overlap
 * @param {Timeline} timeline
 * @param {any} chart
 */
function zoomTo([lane, start, end, other], timeline, chart) {
  const around = Math.max(5, (end - start) * 0.75);
  // how many lanes are shown above and below the two
  const spare = Math.max(3, 12 - Math.abs(lane - other));
  const x = { startValue: Math.max(0, start - around), endValue: Math.min(timeline.end, end + around) };
  const y = {
    startValue: Math.max(0, Math.min(lane, other) - spare),
    endValue: Math.min(timeline.lanes.length - 1, Math.max(lane, other) + spare),
  };
  chart.dispatchAction({ type: "dataZoom", batch: [{ dataZoomId: "x", ...x }, { dataZoomId: "y", ...y }] });
}
