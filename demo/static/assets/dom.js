// Elements, icons, verdicts and chart lines that the page, the report of a run and the site share.
// Text is set as text, never as HTML.

/**
 * Return the element with an id; its kind is known to the caller, who wrote the page.
 * @param {string} id
 * @returns {any}
 */
export function $(id) {
  return document.getElementById(id);
}

/**
 * Return the fragment of the page's address, without `#`; empty if it is malformed.
 * @returns {string}
 */
export function readFragment() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

/**
 * Return a color of the palette. light-dark() is resolved only when a property uses it.
 * @param {string} name A custom property, such as `--ink`.
 * @returns {string}
 */
export function css(name) {
  const root = document.documentElement;
  root.style.outlineColor = `var(${name})`;
  return getComputedStyle(root).outlineColor;
}

/**
 * Return a number with its noun.
 * @param {number} number
 * @param {string} singular
 * @param {string} [plural]
 * @returns {string}
 */
export function count(number, singular, plural = `${singular}s`) {
  return `${number} ${number === 1 ? singular : plural}`;
}

/** The path of each icon, in a square of 24 pixels. */
export const PATHS = {
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

/**
 * Icon, look and, for a run, meaning of each verdict, and of the outcomes sold and sold_out. Color
 * alone never distinguishes them.
 * @type {Record<string, string[]>}
 */
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

/**
 * Verdicts whose badge has another text.
 * @type {Record<string, string>}
 */
const BADGE_TEXTS = { open: "on sale", running: "rush" };

/**
 * Return a verdict or an outcome in words.
 * @param {string} name
 * @returns {string}
 */
export function words(name) {
  return name.replaceAll("_", " ");
}

/**
 * Return the name of a verdict's icon.
 * @param {string} verdict
 * @returns {string}
 */
export function signOf(verdict) {
  return (VERDICTS[verdict] || ["question"])[0];
}

/**
 * Return the CSS class of a verdict's look.
 * @param {string} verdict
 * @returns {string}
 */
export function lookOf(verdict) {
  return (VERDICTS[verdict] || ["", "odd"])[1];
}

/**
 * Return a new element.
 * @param {string} name
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | number | null | undefined)} children Null and undefined are left out.
 * @returns {any}
 */
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(.../** @type {(Node | string)[]} */ (children.filter((child) => child !== null && child !== undefined)));
  return node;
}

/**
 * Return an icon of PATHS.
 * @param {string} name
 * @returns {SVGElement}
 */
export function icon(name) {
  const parsed = document.createElement("template");
  const path = PATHS[/** @type {keyof typeof PATHS} */ (name)];
  parsed.innerHTML = `<svg viewBox="0 0 24 24" class="icon" aria-hidden="true"><path d="${path}"/></svg>`;
  return /** @type {SVGElement} */ (parsed.content.firstChild);
}

/**
 * Return a verdict as a badge: its icon and its word.
 * @param {string} verdict
 * @param {string} [sign] The name of another icon.
 * @returns {HTMLElement}
 */
export function badge(verdict, sign = signOf(verdict)) {
  const word = words(BADGE_TEXTS[verdict] || verdict).toUpperCase();
  return element("span", { class: `badge ${lookOf(verdict)}` }, icon(sign), word);
}

/**
 * Return the series of orders or stock in a chart: in steps, with the last number at the end.
 * @param {string} name
 * @param {number} column The column of the chart's data that has its numbers.
 * @param {string} color A custom property, such as `--orders`.
 * @param {string} type The type of its line: solid, dotted or dashed.
 * @param {number} width The width of its line, in pixels.
 * @param {Record<string, any>} font The look of the number at the end.
 * @returns {Record<string, any>}
 */
export function stepLine(name, column, color, type, width, font) {
  const paint = css(color);
  /** @type {(point: { value: number[] }) => string} */
  const formatter = ({ value }) => `${name} ${value[column]}`;
  return {
    name,
    encode: { x: 0, y: column },
    type: "line",
    step: "end",
    showSymbol: false,
    lineStyle: { color: paint, width, type },
    itemStyle: { color: paint },
    endLabel: { show: true, formatter, ...font, color: paint },
    labelLayout: { moveOverlap: "shiftY" },
    emphasis: { disabled: true },
  };
}
