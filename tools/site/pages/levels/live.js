// Schedules that a server (live_levels.py) plays on request.

/** @import { Turns } from "../shared/board.js" */

/**
 * The answer of the server.
 * @typedef {object} Play
 * @property {Turns} [turns]
 * @property {boolean} [differs] Whether the shop did something else than was recorded.
 * @property {string} [error]
 */

/** @type {Promise<Play> | null} The request that the server has not answered yet. */
let playing = null;

/** @returns {boolean} */
export function isPlaying() {
  return playing !== null;
}

/** Wait until the server has answered. */
export async function untilPlayed() {
  await playing;
}

/**
 * Let the server play a schedule of a world from its beginning.
 * @param {string} world
 * @param {string} schedule
 * @returns {Promise<Play>}
 */
export async function askToPlay(world, schedule) {
  playing = fetchPlay(new URLSearchParams({ world, schedule }));
  const play = await playing;
  playing = null;
  return play;
}

/**
 * @param {URLSearchParams} query
 * @returns {Promise<Play>}
 */
async function fetchPlay(query) {
  try {
    const response = await fetch(`turns?${query}`);
    return await response.json();
  } catch (error) {
    return { error: String(error) };
  }
}

/**
 * Add the turns of a play to those that are known. What is possible after a turn is known only of
 * the last one that was played.
 * @param {Turns} known
 * @param {Turns} turns
 * @param {string} schedule
 */
export function keepTurns(known, turns, schedule) {
  for (const [key, turn] of Object.entries(turns)) {
    if (!known[key]?.isPlayed) known[key] = { ...turn, isPlayed: key === schedule };
  }
}
