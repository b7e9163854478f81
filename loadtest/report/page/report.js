// The page of a report: its sum, its verdicts, and the run that is open.

/** @import { ReportData, Run } from "./data.js" */

import { $, count, words } from "../../../demo/static/assets/dom.js";
import { fillDetail } from "./detail.js";
import { openLanes, watchWidth } from "./lanes.js";
import { verdictsIn } from "./tables.js";
import { fillVerdicts, takeFocus } from "./verdicts.js";

/**
 * Return the name of a run in the page's address, such as `token/pause`.
 * @param {Run} run
 * @returns {string}
 */
function addressOf({ lock, fault }) {
  return `${lock}/${fault}`;
}

/**
 * Return the number of the run with a name; -1 if there is none.
 * @param {Run[]} runs
 * @param {string | undefined} name
 * @returns {number}
 */
function numberOf(runs, name) {
  return runs.findIndex((run) => addressOf(run) === name);
}

/** @returns {string} */
function nameInAddress() {
  return decodeURIComponent(location.hash.slice(1));
}

/**
 * Return how well a run shows the race: oversold, with two holders for long; 0 without a timeline.
 * @param {Run} run
 * @returns {number}
 */
function scoreOf({ timeline, verdict }) {
  if (!timeline) return 0;
  if (verdict !== "oversold") return 1;
  return 1e9 + Math.max(0, ...timeline.overlaps.map(([, start, end]) => end - start));
}

/**
 * Return the number of the run to show first: that of the address, else that of the data, else the
 * one that shows the race best; -1 if no run has a timeline.
 * @param {ReportData} data
 * @returns {number}
 */
function firstRun({ runs, first }) {
  const named = [nameInAddress(), first].map((name) => numberOf(runs, name)).find((number) => number >= 0);
  if (named !== undefined) return named;
  const scores = runs.map(scoreOf);
  const best = Math.max(0, ...scores);
  return best ? scores.indexOf(best) : -1;
}

/**
 * Return the sum of all runs, or of all cells.
 * @param {ReportData} data
 * @returns {string}
 */
function sumOf({ runs, table }) {
  const size = count(runs.length, table ? "run" : "cell");
  const off = runs.filter((run) => !run.as_expected).length;
  const verdicts = verdictsIn(runs).map((name) => `${runs.filter((run) => run.verdict === name).length} ${words(name)}`);
  return `${size}: ${verdicts.join(", ")}; ${off ? `${off} not as expected` : "all as expected"}.`;
}

/**
 * Fill the page, and open a run.
 * @param {ReportData} data
 * @param {(run: Run) => void} [onOpen] Is called when a run is opened, before its timeline is drawn.
 */
export function showReport(data, onOpen = () => {}) {
  const { runs, faults } = data;
  let opened = -1;

  /** @type {(number: number, byReader: boolean) => void} */
  const open = (number, byReader) => {
    const run = runs[number];
    if (!run) return;
    opened = number;
    $("detail").hidden = false;
    fillDetail(run, faults);
    onOpen(run);
    for (const button of document.querySelectorAll(".opens")) {
      button.ariaCurrent = /** @type {HTMLElement} */ (button).dataset.run === String(number) ? "true" : null;
    }
    if (run.timeline) {
      openLanes(run, run.timeline); // on the screen with the next frame; then tests find data-drawn
      requestAnimationFrame(() => setTimeout(() => ($("lanes").dataset.drawn = String(number))));
    }
    if (!byReader) return;
    history.replaceState(null, "", `#${addressOf(run)}`);
    $("detail").scrollIntoView({ block: "start" });
    $("detail-title").focus({ preventScroll: true });
  };

  $("sum").textContent = sumOf(data);
  if (runs.length) fillVerdicts(data);
  watchWidth();
  $("verdicts-box").addEventListener("click", (/** @type {any} */ { target }) => {
    const button = target.closest(".opens");
    if (!button) return;
    takeFocus(button);
    open(Number(button.dataset.run), true);
  });
  $("detail").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const button = document.querySelector(`.opens[data-run="${opened}"]`);
    if (event.key === "Escape" && button) takeFocus(/** @type {HTMLElement} */ (button));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => open(opened, false));
  addEventListener("hashchange", () => open(numberOf(runs, nameInAddress()), true));
  open(firstRun(data), numberOf(runs, nameInAddress()) >= 0);
}
