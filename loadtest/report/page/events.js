// The events of a buyer, in words: in the tip of its lane, and in the table of all buyers.

/** @import { Timeline } from "./data.js" */

import { element, words } from "../../../demo/static/assets/dom.js";
import { formatSeconds } from "./marks.js";

const MAX_EVENTS_IN_TIP = 12;

/** @type {Record<string, string>} The addition to a release's line, by its outcome if it failed. */
const RELEASE_REMARKS = { expired: ", and finds that it was not its own any more", unknown: ", and gets no answer" };

/** The addition to a commit's line, by its state: CommitState of lanes.py. */
const COMMIT_REMARKS = [", but its outcome is unknown", "", ": a stale write"];

/**
 * Return the events of a buyer as lines, in the order of time.
 * @param {Timeline} timeline
 * @param {number} lane
 * @returns {string[]}
 */
export function eventsOf(timeline, lane) {
  /** @type {[when: number, text: string][]} */
  const events = [];
  for (const [eventLane, sent, answered, outcome, order] of timeline.requests) {
    if (eventLane !== lane) continue;
    events.push([sent, "asks"]);
    if (answered === null) events.push([timeline.end, "has no answer"]);
    else events.push([answered, `is answered ${words(outcome)}${order ? `, order ${order}` : ""}`]);
  }
  for (const [eventLane, asked, start, end, fence, release] of timeline.holds) {
    if (eventLane !== lane) continue;
    const wait = asked === null ? "" : ` after ${(start - asked).toFixed(1)} ms`;
    events.push([start, `has the lock${wait}${fence === null ? "" : `, fence ${fence}`}`]);
    const isReleased = release !== "never released";
    events.push([end, isReleased ? `releases${RELEASE_REMARKS[release] || ""}` : "last event, without a release"]);
  }
  for (const [eventLane, read, when, amount, order, state] of timeline.commits) {
    if (eventLane !== lane) continue;
    if (amount !== null && read !== null) events.push([read, `reads a stock of ${amount}`]);
    events.push([when, `commits${order ? ` order ${order}` : ""}${COMMIT_REMARKS[state]}`]);
  }
  for (const [eventLane, start, end, other] of timeline.overlaps) {
    if (eventLane !== lane) continue;
    events.push([start, `two holders, with ${timeline.lanes[other][0]}, for ${(end - start).toFixed(1)} ms`]);
  }
  events.sort(([when], [later]) => when - later);
  return events.map(([when, text]) => `${formatSeconds(when)}  ${text}`);
}

/**
 * Return the tip of a lane: its buyer, and its first events.
 * @param {Timeline} timeline
 * @param {number} lane
 * @returns {HTMLElement}
 */
export function laneTip(timeline, lane) {
  const events = eventsOf(timeline, lane);
  const lines = events.slice(0, MAX_EVENTS_IN_TIP);
  if (events.length > MAX_EVENTS_IN_TIP) lines.push(`and ${events.length - MAX_EVENTS_IN_TIP} more`);
  const [buyer, node] = timeline.lanes[lane];
  const name = element("strong", {}, node ? `${buyer} (node ${node})` : buyer);
  return element("div", {}, name, ...lines.map((text) => element("div", {}, text)));
}
