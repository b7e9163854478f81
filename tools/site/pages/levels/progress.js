// The levels that the reader has reached, each with its fewest moves.

import { readStored, store } from "../shared/storage.js";

/**
 * Return the fewest moves of each level that was reached, by its slug.
 * @returns {Record<string, number>}
 */
export function readProgress() {
  return JSON.parse(readStored("levels") ?? "{}");
}

/**
 * Store that a level was reached. Return whether this is the first time, or takes fewer moves than before.
 * @param {string} slug
 * @param {number} moves
 * @returns {boolean}
 */
export function rememberReached(slug, moves) {
  const progress = readProgress();
  if (progress[slug] <= moves) return false;
  store("levels", JSON.stringify({ ...progress, [slug]: moves }));
  return true;
}
