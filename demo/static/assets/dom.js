// Elements, icons, verdicts and chart lines that the page and the report of a run share. Text is set
// as text, never as HTML. The page imports this module; the report contains it inline, without
// `export` (loadtest/report/page).

export const $ = (id) => document.getElementById(id);

// Return a colour of the palette. light-dark() is resolved only when a property uses it.
export function css(name) {
  const root = document.documentElement;
  root.style.outlineColor = `var(${name})`;
  return getComputedStyle(root).outlineColor;
}

export const count = (number, singular, plural = `${singular}s`) => `${number} ${number === 1 ? singular : plural}`;

const PATHS = {
  cross: "M5 5l14 14M19 5L5 19",
  tick: "M4 13l5 5L20 6",
  down: "M12 4v15m0 0l-6-6m6 6l6-6",
  dots: "M5 12h.01M12 12h.01M19 12h.01",
  dash: "M5 12h14",
  question: "M8 9a4 4 0 1 1 5.5 3.7c-1 .5-1.5 1-1.5 2.3m0 4h.01",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
  square: "M6 6h12v12H6z",
  circle: "M5 12a7 7 0 1 0 14 0a7 7 0 1 0-14 0z",
  diamond: "M12 5l7 7l-7 7l-7-7z",
  database: "M5 6c0-4 14-4 14 0v12c0 4-14 4-14 0zM5 6c0 4 14 4 14 0M5 12c0 4 14 4 14 0",
};

// Icon, look and, for a run, meaning of each verdict: color alone never distinguishes them.
export const VERDICTS = {
  exact: ["tick", "good", "as many orders as units"],
  oversold: ["cross", "bad", "more orders than units"],
  undersold: ["down", "odd", "fewer orders than the buyers and the stock allowed"],
  deadlock: ["lock", "odd", "no buyer could buy any more, though units were left"],
  unknown: ["question", "odd", "not shown: the fault did not fire, or evidence is missing"],
  not_run: ["dash", "calm", "a part that it needs is missing"],
  stopped: ["square", "odd"],
  open: ["dots", "calm"],
  closed: ["dash", "calm"],
  running: ["dots", "calm"],
  sold: ["tick", "calm"],
  sold_out: ["cross", "calm"],
};
const WORDS = { open: "on sale", running: "rush" };

export const words = (name) => name.replaceAll("_", " ");
export const signOf = (verdict) => (VERDICTS[verdict] || ["question"])[0];
export const lookOf = (verdict) => (VERDICTS[verdict] || ["", "odd"])[1];

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function icon(name) {
  const parsed = document.createElement("template");
  parsed.innerHTML = `<svg viewBox="0 0 24 24" class="icon" aria-hidden="true"><path d="${PATHS[name]}"/></svg>`;
  return parsed.content.firstChild;
}

export function badge(verdict, sign = signOf(verdict)) {
  const word = words(WORDS[verdict] || verdict).toUpperCase();
  return element("span", { class: `badge ${lookOf(verdict)}` }, icon(sign), word);
}

// Orders or stock in a chart, by a column of its data: in steps, with the last number at the end.
export function stepLine(name, column, color, type, width, font) {
  const paint = css(color);
  return {
    name,
    encode: { x: 0, y: column },
    type: "line",
    step: "end",
    showSymbol: false,
    lineStyle: { color: paint, width, type },
    itemStyle: { color: paint },
    endLabel: { show: true, formatter: ({ value }) => `${name} ${value[column]}`, ...font, color: paint },
    labelLayout: { moveOverlap: "shiftY" },
    emphasis: { disabled: true },
  };
}
