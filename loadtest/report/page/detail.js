// The facts of the open run, in words, next to its timeline.

/** @import { Run, Timeline } from "./data.js" */

import { $, badge, count, element, words } from "../../../demo/static/assets/dom.js";
import { eventsOf } from "./events.js";
import { NO_NUMBERS, expectedNote, nameOfRun, table } from "./tables.js";

/**
 * Return two sentences on a run: its orders, and the last answers of its buyers. If it was not made,
 * return only the reason.
 * @param {Run} run
 * @returns {string[]}
 */
function summarizeRun(run) {
  if (run.verdict === "not_run") return [run.why || run.missing || ""];
  const outcomes = Object.entries(run.outcomes || {}).filter(([, number]) => number);
  const answers = outcomes.map(([outcome, number]) => `${number} ${words(outcome)}`).join(", ");
  const lost = run.lost_updates ? `, ${count(run.lost_updates, "lost update")}` : "";
  const left = run.stock_left === null ? "" : `, ${run.stock_left} left on the shelf`;
  return [
    `${count(run.orders, "order")} for ${count(run.initial_stock, "unit")}${left}${lost}.`,
    `Last answers: ${answers}.`,
  ];
}

/**
 * Return the headings of a run's facts, each with its texts, of which it may have none.
 * @param {Run} run
 * @param {Record<string, string>} faults
 * @returns {[term: string, texts: string[]][]}
 */
function termsOf(run, faults) {
  const { target, missing, recovery_s: recovery } = run;
  /** @type {[term: string, texts: string[]][]} */
  const terms = [
    ["Fault", [faults[run.fault] ?? ""]],
    ["Seen", [run.evidence ?? ""]],
    ["Found", run.findings ?? []],
    ["Judged", target ? (run.judged ?? []) : []],
    ["Not judged", target ? (run.not_judged ?? []) : []],
    ["Missing", [run.verdict === "not_run" ? "" : (missing ?? "")]],
    ["Wrong", run.wrong ?? []],
    ["Recovery", [typeof recovery === "number" ? `${recovery.toFixed(2)} s until somebody bought again` : ""]],
  ];
  return terms.map(([term, texts]) => [term, texts.filter(Boolean)]);
}

/**
 * Show the summary of a run, and its facts.
 * @param {Run} run
 * @param {Record<string, string>} faults
 */
function fillFacts(run, faults) {
  const lines = summarizeRun(run).map((text, index) => element("p", { class: index === 0 ? "sum" : "quiet" }, text));
  const terms = termsOf(run, faults)
    .filter(([, texts]) => texts.length)
    .flatMap(([term, texts]) => [element("dt", {}, term), ...texts.map((text) => element("dd", {}, text))]);
  $("facts").replaceChildren(...lines, ...(terms.length ? [element("dl", {}, ...terms)] : []));
}

/**
 * Return a line of the story, whose time and event are separated by two spaces or more.
 * @param {string} text
 * @returns {HTMLElement}
 */
function storyLine(text) {
  const [when, ...rest] = text.trim().split(/ {2,}/);
  return element("li", {}, element("span", { class: "when" }, when), element("span", {}, rest.join(" ")));
}

/**
 * Return a table with the events of each buyer.
 * @param {Timeline} timeline
 * @returns {HTMLTableElement}
 */
function tableOfBuyers(timeline) {
  const rows = timeline.lanes.map(([buyer, node], lane) => {
    const items = eventsOf(timeline, lane).map((text) => element("li", {}, text));
    return [buyer, node, element("ul", {}, ...items)];
  });
  return table(["buyer", "node", "what happened"], rows, NO_NUMBERS);
}

/**
 * Offer the buyers of a run as a table, which is made when it is opened.
 * @param {Timeline | null} timeline
 */
function offerTable(timeline) {
  const details = $("as-table");
  const box = details.querySelector(".scroll");
  details.hidden = !timeline;
  details.open = false;
  box.replaceChildren();
  details.ontoggle = () => {
    if (timeline && details.open && !box.firstChild) box.append(tableOfBuyers(timeline));
  };
}

/**
 * Fill the section of the open run, all but its timeline.
 * @param {Run} run
 * @param {Record<string, string>} faults What each fault does, by its name.
 */
export function fillDetail(run, faults) {
  const underFault = faults[run.fault] ? ` under ${run.fault}` : "";
  const title = element("span", {}, `${nameOfRun(run)}${underFault} `, badge(run.verdict), expectedNote(run));
  $("detail-title").replaceChildren(title);
  fillFacts(run, faults);
  const story = run.story ?? [];
  $("story").hidden = !story.length;
  $("story-lines").replaceChildren(...story.map(storyLine));
  $("drawn").hidden = !run.timeline;
  $("no-lanes").hidden = Boolean(run.timeline);
  offerTable(run.timeline);
}
