// Finds the sections of the documents that have every word of the query.

import { $, count, element } from "../../../../demo/static/assets/dom.js";
import { readData } from "../../../../loadtest/report/page/data.js";
import { unpack } from "../shared/unpack.js";

/** @typedef {{ location: string, page: string, heading: string, text: string }} Section */

const MAX_RESULTS = 50;
const EXCERPT_LETTERS = 220;

/**
 * Return the sum of the weights of the fields that contain each word; 0 if no field contains a word.
 * @param {Section} section
 * @param {string[]} terms In lower case.
 * @returns {number}
 */
function scoreOf({ heading, page, text }, terms) {
  /** @type {[text: string, weight: number][]} */
  const fields = [
    [heading.toLowerCase(), 10],
    [page.toLowerCase(), 4],
    [text.toLowerCase(), 1],
  ];
  let sum = 0;
  for (const term of terms) {
    const weights = fields.filter(([field]) => field.includes(term)).map(([, weight]) => weight);
    if (!weights.length) return 0;
    for (const weight of weights) sum += weight;
  }
  return sum;
}

/**
 * Return the part of a text around its first word of the query.
 * @param {string} text
 * @param {string[]} terms In lower case.
 * @returns {string}
 */
function excerpt(text, terms) {
  const places = terms.map((term) => text.toLowerCase().indexOf(term)).filter((place) => place >= 0);
  const start = Math.max(0, Math.min(...places, text.length) - EXCERPT_LETTERS / 3);
  const from = start && text.indexOf(" ", start) + 1;
  const rest = text.slice(from);
  const shown = rest.length > EXCERPT_LETTERS ? `${rest.slice(0, EXCERPT_LETTERS).replace(/\s\S*$/, "")} ...` : rest;
  return from ? `... ${shown}` : shown;
}

/**
 * @param {Section} section
 * @param {string[]} terms In lower case.
 * @returns {HTMLElement}
 */
function resultOf({ location, page, heading, text }, terms) {
  const title = heading === page ? page : `${page}: ${heading}`;
  return element("li", {}, element("a", { href: location }, title), element("p", {}, excerpt(text, terms)));
}

/**
 * Return the number of results, in a sentence.
 * @param {number} number
 * @param {string} query
 * @returns {string}
 */
function sumOf(number, query) {
  if (!number) return `No section has “${query}”. Try fewer or shorter words.`;
  const shown = number > MAX_RESULTS ? `, the first ${MAX_RESULTS} are shown` : "";
  return `${count(number, "section")} with “${query}”${shown}.`;
}

async function search() {
  const query = new URLSearchParams(location.search).get("q") ?? "";
  /** @type {HTMLInputElement} */ (document.querySelector(".site-head input")).value = query;
  const terms = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!terms.length) {
    $("found").textContent = "Type one or more words into the field above.";
    return;
  }
  /** @type {Section[]} */
  const sections = await unpack(readData());
  const results = sections
    .map((section) => ({ section, score: scoreOf(section, terms) }))
    .filter(({ score }) => score)
    .toSorted((result, next) => next.score - result.score);
  $("found").textContent = sumOf(results.length, query);
  $("results").replaceChildren(...results.slice(0, MAX_RESULTS).map(({ section }) => resultOf(section, terms)));
}

search();
