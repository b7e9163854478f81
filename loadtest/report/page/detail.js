// The facts of the open run, in words, next to its timeline.

/** @import { Run, Timeline } from "./data.js" */

import { $, badge, count, element, words } from "../../../demo/static/assets/dom.js";
import { eventsOf } from "./events.js";
import { nameOfRun, surprise, table } from "./tables.js";

/**
 * Return the sum of a run: its orders, and the last answers of its buyers.
 * @param {Run} run
 * @returns {string[]}
 */
function sumOf(run) {
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
 * Return the terms of a run with the texts of each.
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
 * @param {Run} run
 * @param {Record<string, string>} faults
 */
function fillFacts(run, faults) {
  const lines = sumOf(run).map((text, place) => element("p", { class: place ? "quiet" : "sum" }, text));
  const terms = termsOf(run, faults)
    .filter(([, texts]) => texts.length)
    .flatMap(([term, texts]) => [element("dt", {}, term), ...texts.map((text) => element("dd", {}, text))]);
  $("facts").replaceChildren(...lines, ...(terms.length ? [element("dl", {}, ...terms)] : []));
}

/**
 * Return a line of the story: its time, which is followed by two spaces, and the rest beside it.
 * @param {string} text
 * @returns {HTMLElement}
 */
function storyLine(text) {
  const [when, ...rest] = text.trim().split(/ {2,}/);
  return element("li", {}, element("span", { class: "when" }, when), element("span", {}, rest.join(" ")));
}

/**
 * @param {Timeline} timeline
 * @returns {HTMLTableElement}
 */
function tableOfBuyers(timeline) {
  const rows = timeline.lanes.map(([buyer, node], lane) => {
    const items = eventsOf(timeline, lane).map((text) => element("li", {}, text));
    return [buyer, node, element("ul", {}, ...items)];
  });
  return table(["buyer", "node", "what happened"], rows, Infinity);
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
 * @param {Record<string, string>} faults The effect of each fault.
 */
export function fillDetail(run, faults) {
  const under = faults[run.fault] ? ` under ${run.fault}` : "";
  const title = element("span", {}, `${nameOfRun(run)}${under} `, badge(run.verdict), surprise(run));
  $("detail-title").replaceChildren(title);
  fillFacts(run, faults);
  const story = run.story ?? [];
  $("story").hidden = !story.length;
  $("story-lines").replaceChildren(...story.map(storyLine));
  $("drawn").hidden = !run.timeline;
  $("no-lanes").hidden = Boolean(run.timeline);
  offerTable(run.timeline);
}
