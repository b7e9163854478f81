// The levels: a goal, the moves that reach it, and what happened. Which moves reach a goal was
// found when the site was built (levels.py).

/** @import { Code, Source } from "../shared/code.js" */
/** @import { State, Turns } from "../shared/board.js" */

import { $, badge, count, element, icon } from "../../../../demo/static/assets/dom.js";
import { readData } from "../../../../loadtest/report/page/data.js";
import { BUYERS, Board, FREE } from "../shared/board.js";
import { showCode } from "../shared/code.js";
import { listenToKeys } from "../shared/keys.js";
import { unpack } from "../shared/unpack.js";
import { askToPlay, isPlaying, keepTurns, untilPlayed } from "./live.js";
import { readProgress, remember } from "./progress.js";
import { timelineRows } from "./timeline.js";

/**
 * A level; levels.toml explains the fields.
 * @typedef {object} Level
 * @property {string} slug
 * @property {string} title
 * @property {string} task
 * @property {string} world
 * @property {string[]} events
 * @property {string} hint
 * @property {string} why
 * @property {boolean} [impossible]
 * @property {string[]} reached The moves that reach its goal, the shortest first.
 * @property {{ text: string, href: string }[]} links
 * @property {Code | null} [code] What decides, if the strategy's file does not.
 */

/**
 * @typedef {object} World
 * @property {string} strategy
 * @property {number} units
 * @property {boolean} has_lock
 * @property {boolean} fenced Whether the lock gives out fences.
 * @property {string[]} events
 * @property {string} recorded The machine and the day.
 */

/**
 * @typedef {object} LevelsData
 * @property {Level[]} levels
 * @property {Record<string, World>} worlds
 * @property {Record<string, Source>} strategies
 * @property {Record<string, string>} buttons The text of each event's button.
 * @property {boolean} live Whether a server plays each schedule.
 * @property {string} turns
 */

/** @type {Record<string, string>} Event -> its end, which takes the place of its button (worlds.py). */
const AFTER = { P: "G" };
const WAIT = "W";

/** @type {LevelsData} */
const data = readData();
/** @type {Record<string, Turns>} */
const turnsByWorld = await unpack(data.turns);
const board = new Board();
let level = data.levels[0];

/**
 * Return a recorded world as a level without a goal.
 * @param {string} name
 * @returns {Level}
 */
function freePlay(name) {
  const { strategy, events } = data.worlds[name];
  const task = `Every recorded schedule of ${strategy}.`;
  return { slug: name, title: `Free play: ${name}`, task, world: name, events, reached: [], links: [], hint: "", why: "" };
}

/**
 * Return the beginning of the moves so far that has reached the goal, if one has.
 * @returns {string | undefined}
 */
function reachedKey() {
  return level.reached.find((key) => board.key.startsWith(key));
}

/** @returns {State} */
function state() {
  return board.turn.state ?? [data.worlds[level.world].units, 0, ""];
}

function show() {
  const [stock, orders, believers] = state();
  $("stock").textContent = stock;
  $("orders").textContent = orders;
  $("owner").textContent = board.turn.lock ?? FREE;
  $("believers").textContent = [...believers].join(" and ") || "nobody";
  board.showTracks();
  showEvents();
  $("order").textContent = board.key ? `So far: ${board.key}, ${count(board.key.length, "move")}` : "Nobody has moved";
  $("turns-key").textContent = turnsKey();
  $("back").disabled = !board.key;
  $("again").disabled = !board.key;
  showVerdict(orders);
  showAfter();
  $("said").textContent = `${board.sentence} ${$("verdict").textContent}`;
  history.replaceState(null, "", `#${level.slug}${board.key && `/${board.key}`}`);
}

/**
 * Return what the letters of the moves so far stand for.
 * @returns {string}
 */
function turnsKey() {
  const events = [...new Set(board.key)].filter((turn) => !BUYERS.includes(turn));
  if (!board.key) return "";
  return ["A, B: a buyer's move", ...events.map((turn) => `${turn}: ${data.buttons[turn]}`)].join("; ");
}

// --- the events of the world ---

/** Show the events of the level; one that has begun gives its place to what follows it. */
function showEvents() {
  const events = level.events.map((event) => (board.canMove(AFTER[event]) ? AFTER[event] : event));
  if (board.canMove(WAIT)) events.push(WAIT);
  const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.place;
  const buttons = events.map(eventButton);
  $("events").replaceChildren(...buttons);
  $("events").hidden = !buttons.length;
  showReasonAgainstEvent(events);
  if (focused !== undefined) (buttons[Number(focused)] ?? buttons.at(-1))?.focus();
}

/**
 * Say why the events that are shown are not possible.
 * @param {string[]} events
 */
function showReasonAgainstEvent(events) {
  const isShut = board.turn.can.length > 0 && events.some((event) => !board.canMove(event));
  $("no-event").hidden = !isShut || !board.turn.no_event_reason;
  $("no-event").textContent = board.turn.no_event_reason;
}

/**
 * @param {string} event
 * @param {number} place
 * @returns {HTMLButtonElement}
 */
function eventButton(event, place) {
  const attributes = { type: "button", class: "event", "data-event": event, "data-place": place, "aria-describedby": "no-event" };
  const text = `${place + 1}: ${data.buttons[event]}`;
  const button = element("button", { ...attributes, "aria-disabled": String(!board.canMove(event)) }, text);
  button.addEventListener("click", () => move(event));
  return button;
}

/**
 * Return whether there is a button for a buyer's move or for an event.
 * @param {string} name
 * @returns {boolean}
 */
function isOffered(name) {
  return BUYERS.includes(name) || $("events").querySelector(`[data-event="${name}"]`) !== null;
}

// --- the verdict, and what happened once the goal is reached ---

/** @param {number} orders */
function showVerdict(orders) {
  const oversold = orders > data.worlds[level.world].units ? [badge("oversold"), " "] : [];
  $("verdict").replaceChildren(...oversold, standing());
}

/**
 * Return where the player is.
 * @returns {string | Node}
 */
function standing() {
  const key = reachedKey();
  if (key) return element("span", { class: "won" }, wonText(key));
  if (!board.key) return "Nobody has moved: press A or B.";
  if (board.turn.can.length) return `${board.standing}.`;
  const advice = level.reached.length ? "That is not the goal: go back, or start again." : "Nobody can move any more.";
  return `${board.standing}. ${advice}`;
}

/**
 * @param {string} key
 * @returns {string}
 */
function wonText(key) {
  const best = level.reached[0].length;
  const how = key.length === best ? "the fewest possible" : `the fewest possible are ${best}`;
  const reached = level.impossible ? "It cannot be done, and you have seen why" : "Reached";
  return `${reached}, in ${key.length} moves: ${how}.`;
}

function showAfter() {
  const key = reachedKey();
  $("after").hidden = !key;
  $("to-why").hidden = !key;
  $("ending").hidden = !key || level !== data.levels.at(-1);
  if (!key) return;
  if (remember(level.slug, key.length)) showLevels();
  showEndingTitle();
  const [best] = level.reached;
  $("timeline").replaceChildren(...timelineRows(board, key));
  $("why").textContent = level.why;
  $("links").replaceChildren(...level.links.map(({ text, href }) => element("li", {}, element("a", { href }, text))));
  $("best").hidden = key.length === best.length;
  $("best").href = `#${level.slug}/${best}`;
  $("best").textContent = `Show a way with ${best.length} moves`;
  $("next").hidden = level === data.levels.at(-1);
}

/** Show how many levels were reached, above what is left to say after the last one. */
function showEndingTitle() {
  const progress = readProgress();
  const reached = data.levels.filter(({ slug }) => slug in progress).length;
  $("ending-title").textContent = `${reached} of ${data.levels.length}. Is a lock enough?`;
}

/** Scroll to the explanation of what happened. */
function toWhy() {
  $("after").scrollIntoView({ block: "start" });
  $("after-title").focus({ preventScroll: true });
}

// --- the choice of a level ---

function showLevels() {
  const progress = readProgress();
  const items = data.levels.map(({ slug, title }, n) => {
    const isReached = slug in progress;
    const current = slug === level.slug ? { "aria-current": "true" } : {};
    const mark = isReached ? [icon("tick"), element("span", { class: "unseen" }, "reached")] : [];
    const attributes = { href: `#${slug}`, class: isReached ? "reached" : "", ...current };
    return element("li", {}, element("a", attributes, `${n + 1} ${title} `, ...mark));
  });
  $("levels").replaceChildren(...items);
  const current = /** @type {HTMLElement | null} */ ($("levels").querySelector("[aria-current]"));
  if (current) $("levels").scrollLeft = current.offsetLeft - ($("levels").clientWidth - current.offsetWidth) / 2;
}

/**
 * Return the level of an address.
 * @param {string} name Its slug, or a world.
 * @returns {Level}
 */
function levelOf(name) {
  const named = data.levels.find(({ slug }) => slug === name);
  if (named) return named;
  return data.worlds[name] ? freePlay(name) : data.levels[0];
}

/** @param {string} name */
function choose(name) {
  level = levelOf(name);
  board.turns = turnsByWorld[level.world];
  const world = data.worlds[level.world];
  const strategy = data.strategies[world.strategy];
  $("level-title").textContent = level.title;
  $("task").textContent = level.task;
  $("hint").textContent = level.hint;
  $("hint-box").open = false;
  $("hint-box").hidden = !level.hint;
  $("summary").textContent = `${world.strategy}: ${strategy.summary}`;
  $("recorded").textContent = data.live ? "Each press is played from the beginning on real servers." : `Recorded: ${world.recorded}.`;
  for (const box of document.querySelectorAll(".lock-state")) /** @type {HTMLElement} */ (box).hidden = !world.has_lock;
  $("fences-key").hidden = !world.fenced;
  showCode($("code"), level.code ?? strategy);
  showLevels();
}

async function playAddress() {
  await untilPlayed();
  const [name, schedule = ""] = decodeURIComponent(location.hash.slice(1)).split("/");
  choose(name);
  play(schedule);
}

/** Follow an address that was chosen on the page; a new level is read from its title on. */
async function followAddress() {
  const before = level.slug;
  await playAddress();
  if (level.slug !== before) $("level-title").focus();
}

function toNextLevel() {
  const next = data.levels[data.levels.findIndex(({ slug }) => slug === level.slug) + 1];
  if (next) location.hash = next.slug;
}

// --- the moves ---

/** @param {string} name A buyer, or an event of the world. */
function move(name) {
  if (board.canMove(name) && isOffered(name)) play(board.key + name);
}

/** @param {string} schedule */
async function play(schedule) {
  if (data.live && !(await playLive(schedule))) return;
  board.follow(schedule);
  show();
}

/**
 * Let the server play a schedule, unless this page has seen it. Return whether it was played.
 * @param {string} schedule
 * @returns {Promise<boolean>}
 */
async function playLive(schedule) {
  if (isPlaying()) return false;
  if (board.turns[schedule]?.isPlayed) return true;
  $("steps").setAttribute("aria-busy", "true");
  $("verdict").textContent = "Played on real servers ...";
  const { turns = {}, differs, error } = await askToPlay(level.world, schedule);
  $("steps").removeAttribute("aria-busy");
  if (differs) $("recorded").textContent = "The shop did something else now than was recorded.";
  if (error) $("verdict").textContent = `It was not played: ${error}.`;
  else keepTurns(board.turns, turns, schedule);
  return !error;
}

for (const button of document.querySelectorAll(".move")) {
  button.addEventListener("click", () => move(/** @type {HTMLElement} */ (button).dataset.buyer ?? ""));
}
$("back").addEventListener("click", () => play(board.previousKey));
$("again").addEventListener("click", () => play(""));
$("next").addEventListener("click", toNextLevel);
$("to-why").addEventListener("click", toWhy);
const eventKeys = Object.fromEntries(
  [...Array(9).keys()].map((place) => [place + 1, () => $("events").children[place]?.click()]),
);
listenToKeys({
  ...eventKeys,
  a: () => move("A"),
  b: () => move("B"),
  r: () => play(""),
  n: toNextLevel,
  Backspace: () => play(board.previousKey),
});
addEventListener("hashchange", followAddress);
playAddress();
