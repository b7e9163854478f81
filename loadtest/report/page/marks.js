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
  sold: { title: "committed", color: "--good", sign: "circle", filled: true },
  stale: { title: "stale write: it erased decrements", color: "--bad", sign: "diamond", filled: true },
  open: { title: "a commit that nobody knows of", color: "--odd", sign: "circle" },
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

// A bar, or a sign, as the legend has it.
function swatch({ color, bar, sign = "dash", filled, hatched }) {
  const svg = icon(sign);
  svg.setAttribute("viewBox", bar ? "5 8 14 8" : "2 2 20 20");
  svg.setAttribute("class", "swatch");
  Object.assign(svg.style, {
    fill: filled ? `var(${color})` : "none",
    stroke: filled ? "none" : `var(${color})`,
    strokeWidth: bar ? bar * 8 : 3,
    strokeDasharray: hatched ? "1.5 1" : "none",
  });
  return svg;
}

// The legend names the marks that the chart has, and no others.
function fillLegend(series) {
  const there = Object.keys(MARKS).filter((name) => series.some(({ id, data }) => id === name && data.length));
  $("legend").replaceChildren(...there.map((name) => element("li", {}, swatch(MARKS[name]), MARKS[name].title)));
}
