// Moving about in the timeline: zoom, the lane under the pointer or the keyboard, what it says.

const MOST_SAID = 12;
let lanesChart = null;

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
  return said.sort((one, other) => one[0] - other[0]);
}

function nameOf(timeline, lane) {
  const [buyer, node] = timeline.lanes[lane];
  return node ? `${buyer} (node ${node})` : buyer;
}

function openLanes(run) {
  closeLanes();
  const { timeline } = run;
  const box = $("lanes");
  const frame = $("lanes-frame");
  const height = lanesHeight(timeline.lanes.length);
  box.style.height = `${26 + height + 22 + SHELF + 24}px`;
  const chart = echarts.init(box, null, { renderer: "canvas" });
  const draw = () => chart.setOption(timelineOption(timeline, run, box.clientWidth, height), { notMerge: true });
  let lane = -1;
  let mark = -1;

  function hide() {
    $("tip").hidden = $("cursor").hidden = true;
  }

  function say(number, x, y) {
    lane = number;
    const lines = saidOf(timeline, lane);
    const shown = lines.slice(0, MOST_SAID).map(([when, text]) => `${seconds(when)}  ${text}`);
    if (lines.length > MOST_SAID) shown.push(`and ${lines.length - MOST_SAID} more`);
    const tip = $("tip");
    tip.replaceChildren(element("strong", {}, nameOf(timeline, lane)), ...shown.map((text) => element("div", {}, text)));
    tip.hidden = false;
    const room = frame.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 18, room.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > room.height ? Math.max(4, y - tip.offsetHeight - 14) : y + 18}px`;
    const [, middle] = chart.convertToPixel({ gridIndex: 0 }, [0, lane]);
    const [, next] = chart.convertToPixel({ gridIndex: 0 }, [0, lane + 1]);
    const band = Math.max(2, Math.abs(next - middle));
    const cursor = $("cursor");
    cursor.hidden = false;
    cursor.style.top = `${middle - band / 2}px`;
    cursor.style.height = `${band}px`;
    return `${nameOf(timeline, lane)}: ${shown.join("; ")}`;
  }

  chart.getZr().on("mousemove", ({ offsetX: x, offsetY: y }) => {
    if (!chart.containPixel({ gridIndex: 0 }, [x, y])) return hide();
    const [, under] = chart.convertFromPixel({ gridIndex: 0 }, [x, y]);
    if (timeline.lanes[under]) say(under, x, y);
  });
  chart.getZr().on("globalout", hide);
  chart.on("datazoom", hide);

  function range() {
    const { start, end } = chart.getOption().dataZoom[0];
    return [start, end];
  }

  function show(start, end) {
    const width = Math.min(100, Math.max(0.02, end - start));
    const from = Math.max(0, Math.min(start, 100 - width));
    chart.dispatchAction({ type: "dataZoom", dataZoomId: "x", start: from, end: from + width });
  }

  const act = {
    in: () => act.scale(0.5),
    out: () => act.scale(2),
    scale(factor) {
      const [start, end] = range();
      const half = ((end - start) / 2) * factor;
      show((start + end) / 2 - half, (start + end) / 2 + half);
    },
    pan(by) {
      const [start, end] = range();
      show(start + by * (end - start), end + by * (end - start));
    },
    all() {
      mark = -1;
      chart.dispatchAction({ type: "dataZoom", batch: ["x", "y"].map((id) => ({ dataZoomId: id, start: 0, end: 100 })) });
    },
    mark() {
      const pairs = timeline.overlaps.filter((_, index) => index % 2 === 0);
      if (!pairs.length) return;
      mark = (mark + 1) % pairs.length;
      const [one, start, end, other] = pairs[mark];
      const around = Math.max(5, (end - start) * 0.75);
      const spare = Math.max(3, 12 - Math.abs(one - other));
      chart.dispatchAction({
        type: "dataZoom",
        batch: [
          { dataZoomId: "x", startValue: Math.max(0, start - around), endValue: Math.min(timeline.end, end + around) },
          {
            dataZoomId: "y",
            startValue: Math.max(0, Math.min(one, other) - spare),
            endValue: Math.min(timeline.lanes.length - 1, Math.max(one, other) + spare),
          },
        ],
      });
      $("to-mark").textContent = `Overlap ${mark + 1} of ${pairs.length}`;
    },
    lane(by) {
      const next = Math.max(0, Math.min(timeline.lanes.length - 1, lane + by));
      const [, y] = chart.convertToPixel({ gridIndex: 0 }, [0, next]);
      $("lane-said").textContent = say(next, 110, y);
    },
    hide,
    resize() {
      hide();
      chart.resize();
      draw();
    },
  };
  box.setAttribute("aria-label", `Timeline of ${count(timeline.lanes.length, "buyer")} under ${run.lock}, ${run.fault}`);
  draw();
  lanesChart = { chart, act };
  return lanesChart;
}

function closeLanes() {
  if (!lanesChart) return;
  lanesChart.act.hide();
  lanesChart.chart.dispose();
  lanesChart = null;
}

const KEYS = {
  ArrowUp: (act) => act.lane(-1),
  ArrowDown: (act) => act.lane(1),
  ArrowLeft: (act) => act.pan(-0.2),
  ArrowRight: (act) => act.pan(0.2),
  "+": (act) => act.in(),
  "=": (act) => act.in(),
  "-": (act) => act.out(),
  0: (act) => act.all(),
  o: (act) => act.mark(),
};

function watchLanes() {
  $("lanes").addEventListener("keydown", (event) => {
    const what = KEYS[event.key];
    if (!what || !lanesChart || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    what(lanesChart.act);
  });
  $("lanes").addEventListener("blur", () => lanesChart && lanesChart.act.hide());
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => lanesChart && lanesChart.act[button.dataset.zoom]());
  }
  let wide = 0;
  new ResizeObserver(([{ contentRect }]) => {
    const { width } = contentRect;
    if (!width) return; // not laid out just now: there is nothing to draw on
    if (lanesChart && wide && width !== wide) lanesChart.act.resize();
    wide = width;
  }).observe($("lanes"));
}
