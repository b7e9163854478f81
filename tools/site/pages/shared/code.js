import { $, element } from "../../../../demo/static/assets/dom.js";

/**
 * Code, and texts of the lines that decide.
 * @typedef {object} Code
 * @property {string} file
 * @property {string} code
 * @property {string[]} marks
 */

/** @typedef {Code & { title: string, summary: string }} Source A strategy's code. */

/**
 * Show code, with the first line of each text that decides marked.
 * @param {HTMLElement} place Its data-file is the id of the element that names the file.
 * @param {Code} source
 */
export function showCode(place, { file, code, marks }) {
  const lines = code.split("\n");
  const decisive = new Set(marks.map((mark) => lines.findIndex((line) => line.includes(mark))));
  place.replaceChildren(...lines.flatMap((line, n) => [decisive.has(n) ? element("mark", {}, line) : line, "\n"]));
  $(place.dataset.file ?? "").textContent = file;
}
