// Schedules that a server (live_levels.py) plays on request.

/** @import { Turns } from "../shared/board.js" */

/**
 * The answer of the server.
 * @typedef {object} Play
 * @property {Turns} [turns]
 * @property {boolean} [differs] Whether the shop did something else than was recorded.
 * @property {string} [error]
 */

/** @type {Promise<Play> | null} The answer that the server has not sent yet. */
let pendingPlay = null;

/**
 * Return whether the server plays a schedule now.
 * @returns {boolean}
 */
export function isPlaying() {
  return pendingPlay !== null;
}

/** Wait until the server has answered. */
export async function untilPlayed() {
  await pendingPlay;
}

/**
 * Let the server play a schedule of a world from its beginning.
 * @param {string} world
 * @param {string} schedule
 * @returns {Promise<Play>}
 */
export async function askToPlay(world, schedule) {
  pendingPlay = fetchPlay(new URLSearchParams({ world, schedule }));
  const play = await pendingPlay;
  pendingPlay = null;
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
 * Add the turns of a play to `known`. The server says what is possible next only after the last turn
 * of the schedule, so only this turn becomes `isPlayed`.
 * @param {Turns} known
 * @param {Turns} turns
 * @param {string} schedule
 */
export function keepTurns(known, turns, schedule) {
  for (const [key, turn] of Object.entries(turns)) {
    if (!known[key]?.isPlayed) known[key] = { ...turn, isPlayed: key === schedule };
  }
}
