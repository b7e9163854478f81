// What the timeline is made of: one look for the chart and for its legend.

const seconds = (ms) => `${(ms / 1000).toFixed(3)} s`;
// Pixels of the charts' text: with the page's, which grows with the screen.
const fontSize = () => Math.round(parseFloat(getComputedStyle(document.documentElement).fontSize) * 0.78);
// A canvas does not inherit a font.
const chartText = () => ({ color: css("--ink"), fontSize: fontSize(), fontFamily: getComputedStyle(document.body).fontFamily });

const MARKS = {
  wait: { title: "waiting for an answer", color: "--wait", bar: 0.5 },
  hold: { title: "holding the lock", color: "--hold", bar: 0.86 },
  section: { title: "from the read to the commit", color: "--section", bar: 0.36 },
  sold: { title: "committed", color: "--good", sign: "circle" },
  stale: { title: "stale write: it erased decrements", color: "--bad", sign: "diamond" },
  open: { title: "a commit that nobody knows of", color: "--odd", sign: "ring" },
  refused: { title: "refused: sold out", color: "--quiet", sign: "cross" },
  turned: { title: "refused: busy, lost, full, unavailable", color: "--odd", sign: "cross" },
  unknown: { title: "no answer, or an open one", color: "--odd", sign: "square" },
  overlap: { title: "two holders at a time", color: "--bad", bar: 1, hatched: true },
};

// a commit's state is its place here: timeline.py
const COMMIT_STATES = ["open", "sold", "stale"];

function markOfOutcome(outcome) {
  if (outcome === "sold") return null; // the commit has a mark of its own
  if (outcome === "sold_out") return "refused";
  return outcome === "unknown" ? "unknown" : "turned";
}

// The path of a sign of this size around a point, as SVG has it.
function signPath(sign, x, y, size) {
  const r = size / 2;
  if (sign === "diamond") return `M${x} ${y - r}L${x + r} ${y}L${x} ${y + r}L${x - r} ${y}Z`;
  if (sign === "cross") return `M${x - r} ${y - r}L${x + r} ${y + r}M${x + r} ${y - r}L${x - r} ${y + r}`;
  if (sign === "square") return `M${x - r} ${y - r}H${x + r}V${y + r}H${x - r}Z`;
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${size} 0a${r} ${r} 0 1 0 ${-size} 0Z`;
}

const isHollow = (sign) => sign === "cross" || sign === "ring" || sign === "square";

// Which marks a timeline shows: the legend names these and no others.
function marksIn(timeline) {
  const there = new Set(["wait"]);
  if (timeline.holds.length) there.add("hold");
  for (const [, read, , , , state] of timeline.commits) {
    if (read !== null) there.add("section");
    there.add(COMMIT_STATES[state]);
  }
  for (const [, , answered, outcome] of timeline.requests) {
    const mark = markOfOutcome(answered === null ? "unknown" : outcome);
    if (mark) there.add(mark);
  }
  if (timeline.overlaps.length) there.add("overlap");
  return Object.keys(MARKS).filter((name) => there.has(name));
}

function swatch({ color, bar, sign, hatched }) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 28 16");
  svg.setAttribute("class", "swatch");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  const height = (bar || 0) * 16;
  path.setAttribute("d", bar ? `M1 ${8 - height / 2}h26v${height}h-26Z` : signPath(sign, 14, 8, 11));
  path.style.fill = hatched || isHollow(sign) ? "none" : `var(${color})`;
  path.style.stroke = hatched || isHollow(sign) ? `var(${color})` : "none";
  path.style.strokeWidth = "2.5";
  svg.append(path);
  if (hatched) {
    const lines = document.createElementNS(SVG, "path");
    lines.setAttribute("d", "M4 15L11 1M11 15L18 1M18 15L25 1");
    lines.style.stroke = `var(${color})`;
    lines.style.strokeWidth = "1.5";
    svg.append(lines);
  }
  return svg;
}

function fillLegend(timeline) {
  $("legend").replaceChildren(
    ...marksIn(timeline).map((name) => element("li", {}, swatch(MARKS[name]), MARKS[name].title)),
  );
}
