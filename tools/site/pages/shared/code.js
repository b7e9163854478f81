import { $, element } from "../../../../demo/static/assets/dom.js";

/**
 * A strategy's code, and texts of the lines that decide.
 * @typedef {object} Source
 * @property {string} file
 * @property {string} code
 * @property {string[]} marks
 * @property {string} title
 * @property {string} summary
 */

/**
 * Show code, with the first line of each text that decides marked.
 * @param {HTMLElement} place Its data-file is the id of the element that names the file.
 * @param {Source} source
 */
export function showCode(place, { file, code, marks }) {
  const lines = code.split("\n");
  const decisive = new Set(marks.map((mark) => lines.findIndex((line) => line.includes(mark))));
  place.replaceChildren(...lines.flatMap((line, n) => [decisive.has(n) ? element("mark", {}, line) : line, "\n"]));
  $(place.dataset.file ?? "").textContent = file;
}
