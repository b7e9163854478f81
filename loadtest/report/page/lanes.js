// What each lane of the timeline says, and moving about in it by buttons.

const MOST_SAID = 12;
let redraw = null; // draws the run that is open, in the present width

// What a buyer did, as lines in the order of time.
function saidOf(timeline, lane) {
  const said = [];
  const add = (when, text) => when !== null && said.push([when, text]);
  const of = (rows) => rows.filter((row) => row[0] === lane);
  for (const [, sent, answered, outcome, order] of of(timeline.requests)) {
    add(sent, "asks");
    add(answered, `is answered ${words(outcome)}${order ? `, order ${order}` : ""}`);
    if (answered === null) add(timeline.end, "has no answer");
  }
  for (const [, asked, start, end, fence, found] of of(timeline.holds)) {
    const waited = asked === null ? "" : ` after ${(start - asked).toFixed(1)} ms`;
    add(start, `has the lock${waited}${fence === null ? "" : `, fence ${fence}`}`);
    const also = { expired: ", and finds that it was not its own any more", unknown: ", and gets no answer" };
    add(end, found === "never released" ? "its last sign, still holding" : `releases${also[found] || ""}`);
  }
  for (const [, read, when, amount, order, state] of of(timeline.commits)) {
    if (amount !== null) add(read, `reads a stock of ${amount}`);
    const harm = state === 2 ? ": a stale write" : state === 0 ? ", nobody knows whether" : "";
    add(when, `commits${order ? ` order ${order}` : ""}${harm}`);
  }
  for (const [, start, end, other] of of(timeline.overlaps)) {
    add(start, `two holders, with ${timeline.lanes[other][0]}, for ${(end - start).toFixed(1)} ms`);
  }
  return said.sort((one, other) => one[0] - other[0]).map(([when, text]) => `${seconds(when)}  ${text}`);
}

function laneTip(timeline, lane) {
  const lines = saidOf(timeline, lane);
  const shown = lines.slice(0, MOST_SAID);
  if (lines.length > MOST_SAID) shown.push(`and ${lines.length - MOST_SAID} more`);
  const [buyer, node] = timeline.lanes[lane];
  const name = element("strong", {}, node ? `${buyer} (node ${node})` : buyer);
  return element("div", {}, name, ...shown.map((text) => element("div", {}, text)));
}

function openLanes(run) {
  const { timeline } = run;
  const box = $("lanes");
  const room = Math.max(420, Math.min(innerHeight * 0.68, 900));
  const height = Math.round(Math.min(room, Math.max(160, timeline.lanes.length * 22)));
  box.style.height = `${26 + height + 22 + SHELF + 24}px`;
  echarts.getInstanceByDom(box)?.dispose();
  const chart = echarts.init(box);
  redraw = () => {
    chart.resize();
    const option = timelineOption(timeline, run, box.clientWidth, height);
    chart.setOption(option, { notMerge: true });
    fillLegend(option.series);
  };
  const pairs = timeline.overlaps.filter((_, index) => index % 2 === 0);
  let mark = -1;
  $("to-all").onclick = () => openLanes(run);
  $("to-mark").hidden = !pairs.length;
  $("to-mark").textContent = pairs.length === 1 ? "To the overlap" : `To the overlaps (${pairs.length})`;
  $("to-mark").onclick = () => {
    mark = (mark + 1) % pairs.length;
    const [one, start, end, other] = pairs[mark];
    const around = Math.max(5, (end - start) * 0.75);
    const spare = Math.max(3, 12 - Math.abs(one - other));
    const x = { startValue: Math.max(0, start - around), endValue: Math.min(timeline.end, end + around) };
    const y = {
      startValue: Math.max(0, Math.min(one, other) - spare),
      endValue: Math.min(timeline.lanes.length - 1, Math.max(one, other) + spare),
    };
    chart.dispatchAction({ type: "dataZoom", batch: [{ dataZoomId: "x", ...x }, { dataZoomId: "y", ...y }] });
    $("to-mark").textContent = `Overlap ${mark + 1} of ${pairs.length}`;
  };
  box.setAttribute("aria-label", `Timeline of ${count(timeline.lanes.length, "buyer")} under ${run.lock}, ${run.fault}`);
  redraw();
}

// Drawn again in another width.
let wide = 0;
new ResizeObserver(([{ contentRect: { width } }]) => {
  if (!width) return; // not laid out just now: there is nothing to draw on
  if (redraw && wide && width !== wide) redraw();
  wide = width;
}).observe($("lanes"));
