// Finds the sections of the documents that have every word of the query.

import { $, count, element } from "../../../../demo/static/assets/dom.js";
import { readData } from "../../../../loadtest/report/page/data.js";
import { unpack } from "../shared/unpack.js";

/** @typedef {{ location: string, page: string, heading: string, text: string }} Section */

const MAX_RESULTS = 50;
/** An excerpt has at most this length, about three lines. */
const EXCERPT_LETTERS = 220;
/** The part of an excerpt before the first word of the query. */
const LETTERS_BEFORE_WORD = EXCERPT_LETTERS / 3;
/** How much a word counts in a field: a match in a title outweighs matches in the text. */
const HEADING_WEIGHT = 10;
const PAGE_WEIGHT = 4;
const TEXT_WEIGHT = 1;

/**
 * Return how well a section matches: the sum, over the words, of the weights of the fields with the
 * word; 0 if a word is in no field.
 * @param {Section} section
 * @param {string[]} terms In lower case.
 * @returns {number}
 */
function computeScore({ heading, page, text }, terms) {
  /** @type {[text: string, weight: number][]} */
  const fields = [
    [heading.toLowerCase(), HEADING_WEIGHT],
    [page.toLowerCase(), PAGE_WEIGHT],
    [text.toLowerCase(), TEXT_WEIGHT],
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
function makeExcerpt(text, terms) {
  const places = terms.map((term) => text.toLowerCase().indexOf(term)).filter((place) => place >= 0);
  const start = Math.max(0, Math.min(...places, text.length) - LETTERS_BEFORE_WORD);
  const wordStart = start > 0 ? text.indexOf(" ", start) + 1 : 0;
  const rest = text.slice(wordStart);
  const shown = rest.length > EXCERPT_LETTERS ? `${rest.slice(0, EXCERPT_LETTERS).replace(/\s\S*$/, "")} ...` : rest;
  return wordStart > 0 ? `... ${shown}` : shown;
}

/**
 * @param {Section} section
 * @param {string[]} terms In lower case.
 * @returns {HTMLElement}
 */
function makeResult({ location, page, heading, text }, terms) {
  const title = heading === page ? page : `${page}: ${heading}`;
  return element("li", {}, element("a", { href: location }, title), element("p", {}, makeExcerpt(text, terms)));
}

/**
 * Return the number of results, in a sentence.
 * @param {number} number
 * @param {string} query
 * @returns {string}
 */
function describeCount(number, query) {
  if (!number) return `No section has “${query}”. Try fewer or shorter words.`;
  const shown = number > MAX_RESULTS ? `, the first ${MAX_RESULTS} are shown` : "";
  return `${count(number, "section")} with “${query}”${shown}.`;
}

async function search() {
  const query = new URLSearchParams(location.search).get("q") ?? "";
  /** @type {HTMLInputElement} */ (document.querySelector(".site-head input")).value = query;
  const terms = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!terms.length) {
    $("result-count").textContent = "Type one or more words into the field above.";
    return;
  }
  /** @type {Section[]} */
  const sections = await unpack(readData());
  const results = sections
    .map((section) => ({ section, score: computeScore(section, terms) }))
    .filter(({ score }) => score)
    .toSorted((result, next) => next.score - result.score);
  $("result-count").textContent = describeCount(results.length, query);
  $("results").replaceChildren(...results.slice(0, MAX_RESULTS).map(({ section }) => makeResult(section, terms)));
}

search();
