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

// A bar, or a sign, as the legend has it.
function swatch({ color, bar, sign, hatched }) {
  const svg = icon("dash");
  svg.setAttribute("viewBox", "0 0 28 16");
  svg.setAttribute("class", "swatch");
  const isLine = Boolean(bar) || isHollow(sign);
  svg.firstChild.setAttribute("d", bar ? "M1 8H27" : signPath(sign, 14, 8, 11));
  Object.assign(svg.firstChild.style, {
    fill: isLine ? "none" : `var(${color})`,
    stroke: isLine ? `var(${color})` : "none",
    strokeWidth: bar ? bar * 16 : 2.5,
    strokeDasharray: hatched ? "3 2" : "none",
  });
  return svg;
}

// The legend names the marks that the chart has, and no others.
function fillLegend(series) {
  const there = Object.keys(MARKS).filter((name) => series.some(({ id, data }) => id === name && data.length));
  $("legend").replaceChildren(...there.map((name) => element("li", {}, swatch(MARKS[name]), MARKS[name].title)));
}
