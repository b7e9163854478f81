// The page of a report: a summary of all runs, their verdicts, and the run that is open.

/** @import { ReportData, Run } from "./data.js" */

import { $, count, readFragment, words } from "../../../demo/static/assets/dom.js";
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
 * Return the index of the run with this name in the address; -1 if there is none.
 * @param {Run[]} runs
 * @param {string | undefined} name
 * @returns {number}
 */
function indexOfRun(runs, name) {
  return runs.findIndex((run) => addressOf(run) === name);
}

/**
 * Return how well a run shows the race. An oversold run is above all others, and the longest time with
 * two holders decides between two of them. A run without a timeline has 0.
 * @param {Run} run
 * @returns {number}
 */
function scoreOf({ timeline, verdict }) {
  if (!timeline) return 0;
  if (verdict !== "oversold") return 1;
  // 1e9 ms are longer than any run.
  return 1e9 + Math.max(0, ...timeline.overlaps.map(([, start, end]) => end - start));
}

/**
 * Return the index of the run to show first: the one that the address names, else the one that the
 * data name, else the one that shows the race best; -1 if no run has a timeline.
 * @param {ReportData} data
 * @returns {number}
 */
function chooseFirstRun({ runs, first }) {
  const named = [readFragment(), first].map((name) => indexOfRun(runs, name)).find((index) => index >= 0);
  if (named !== undefined) return named;
  const scores = runs.map(scoreOf);
  const bestScore = Math.max(0, ...scores);
  return bestScore ? scores.indexOf(bestScore) : -1;
}

/**
 * Return one sentence on all runs: how many have each verdict, and how many an unexpected one.
 * @param {ReportData} data
 * @returns {string}
 */
function summarizeRuns({ runs, table }) {
  const size = count(runs.length, table ? "run" : "cell");
  const unexpected = runs.filter((run) => !run.as_expected).length;
  const verdicts = verdictsIn(runs).map((name) => `${runs.filter((run) => run.verdict === name).length} ${words(name)}`);
  return `${size}: ${verdicts.join(", ")}; ${unexpected ? `${unexpected} not as expected` : "all as expected"}.`;
}

/**
 * Fill the page, and open a run.
 * @param {ReportData} data
 * @param {(run: Run) => void} [onOpen] Is called when a run is opened, before its timeline is drawn.
 */
export function showReport(data, onOpen = () => {}) {
  const { runs, faults } = data;
  let openIndex = -1;

  /**
   * Open a run.
   * @param {number} index
   * @param {boolean} moveToRun Whether to put the run into the address, and to scroll to it.
   */
  const open = (index, moveToRun) => {
    const run = runs[index];
    if (!run) return;
    openIndex = index;
    $("detail").hidden = false;
    fillDetail(run, faults);
    onOpen(run);
    for (const button of document.querySelectorAll(".opens")) {
      button.ariaCurrent = /** @type {HTMLElement} */ (button).dataset.run === String(index) ? "true" : null;
    }
    if (run.timeline) {
      openLanes(run, run.timeline);
      // Tests wait for data-drawn, which is set after the frame that shows the lanes.
      requestAnimationFrame(() => setTimeout(() => ($("lanes").dataset.drawn = String(index))));
    }
    if (!moveToRun) return;
    history.replaceState(null, "", `#${addressOf(run)}`);
    $("detail").scrollIntoView({ block: "start" });
    $("detail-title").focus({ preventScroll: true });
  };

  $("sum").textContent = summarizeRuns(data);
  if (runs.length) fillVerdicts(data);
  watchWidth();
  $("verdicts-box").addEventListener("click", (/** @type {any} */ { target }) => {
    const button = target.closest(".opens");
    if (!button) return;
    takeFocus(button);
    open(Number(button.dataset.run), true);
  });
  $("detail").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const button = document.querySelector(`.opens[data-run="${openIndex}"]`);
    if (event.key === "Escape" && button) takeFocus(/** @type {HTMLElement} */ (button));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => open(openIndex, false));
  addEventListener("hashchange", () => open(indexOfRun(runs, readFragment()), true));
  open(chooseFirstRun(data), indexOfRun(runs, readFragment()) >= 0);
}
