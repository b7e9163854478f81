// The data of the report, as html_report.py and lanes.py write it. Times are milliseconds since the
// first buyer asked; a lane is the index of a buyer in `lanes`.

import { $ } from "../../../demo/static/assets/dom.js";

/**
 * The timeline of a run. `shelf` has the two curves below the lanes.
 * @typedef {object} Timeline
 * @property {[buyer: string, node: string][]} lanes
 * @property {[lane: number, sent: number, answered: number | null, outcome: string, order: string | number | null][]} requests
 * @property {[lane: number, asked: number | null, start: number, end: number, fence: number | null, release: string][]} holds
 * @property {[lane: number, read: number | null, when: number, amount: number | null, order: string | number | null, state: number][]} commits
 * @property {[lane: number, start: number, end: number, other: number][]} overlaps
 * @property {[when: number, phase: string, type: string, what: string][]} faults
 * @property {[when: number, orders: number, stock: number][]} shelf
 * @property {number} end
 */

/**
 * A run, as summary.json has it, and its timeline, which is null if nothing was recorded.
 * @typedef {object} Run
 * @property {string} lock
 * @property {string} fault
 * @property {string} verdict
 * @property {string} expected
 * @property {boolean} as_expected
 * @property {Record<string, number>} [outcomes]
 * @property {number} orders
 * @property {number} initial_stock
 * @property {number | null} stock_left
 * @property {number} [lost_updates]
 * @property {string} [why]
 * @property {string} [missing]
 * @property {string} [evidence]
 * @property {string[]} [findings]
 * @property {string} [target]
 * @property {string[]} [judged]
 * @property {string[]} [not_judged]
 * @property {string[]} [wrong]
 * @property {number | null} [recovery_s]
 * @property {string[]} [story]
 * @property {Timeline | null} timeline
 */

/**
 * The table of a report: its column heads, and a row of texts for each run.
 * @typedef {object} Figures
 * @property {string[]} heads
 * @property {string[][]} rows
 */

/**
 * All data of a report. Without `table` it is a grid of strategies by faults.
 * @typedef {object} ReportData
 * @property {Run[]} runs
 * @property {Record<string, string>} faults What each fault does, by its name.
 * @property {Figures} [table]
 * @property {string} [first] The run to open first, such as `token/pause`.
 */

/**
 * Return the data of this page.
 * @returns {any}
 */
export function readData() {
  return JSON.parse($("data").textContent);
}
