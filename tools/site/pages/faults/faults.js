// Every fault: the report of a run. The opened cell comes first, with the code that decides next to
// its facts.

/** @import { ReportData, Timeline } from "../../../../loadtest/report/page/data.js" */
/** @import { Source } from "../shared/code.js" */

import { $ } from "../../../../demo/static/assets/dom.js";
import { readData } from "../../../../loadtest/report/page/data.js";
import { showReport } from "../../../../loadtest/report/page/report.js";
import { showCode } from "../shared/code.js";

const LINES_ABOVE_MARK = 2;

/**
 * Show a strategy's code, with the line that decides near the upper edge of its box.
 * @param {Source} source
 */
function showSource(source) {
  const code = $("source-code");
  showCode(code, source);
  $("source").hidden = false;
  const mark = code.querySelector("mark");
  code.parentElement.scrollTop = mark ? mark.offsetTop - LINES_ABOVE_MARK * mark.offsetHeight : 0;
}

/**
 * Return the rows of a table that has a list for each column.
 * @param {unknown[][]} columns
 * @returns {unknown[][]}
 */
function rowsOf(columns) {
  const [firstColumn = []] = columns;
  return firstColumn.map((_, row) => columns.map((column) => column[row]));
}

/**
 * Return a timeline whose tables have rows: pages.py has written them as columns.
 * @param {Record<string, any>} timeline
 * @returns {Timeline}
 */
function withRows(timeline) {
  const entries = Object.entries(timeline).map(([name, table]) => [
    name,
    Array.isArray(table) ? rowsOf(table) : table,
  ]);
  return Object.fromEntries(entries);
}

/** @type {ReportData & { sources: Record<string, Source> }} */
const data = readData();
for (const run of data.runs) {
  run.timeline = run.timeline && withRows(run.timeline);
}
$("verdicts").before($("detail"));
$("facts").after($("source"));
showReport(data, ({ lock }) => showSource(data.sources[lock]));
