// The levels: a goal, the moves that reach it, and what happened. The moves that reach a goal are
// listed when the site is built (levels.py).

/** @import { Code, Source } from "../shared/code.js" */
/** @import { State, Turns } from "../shared/board.js" */

import { $, badge, count, element, icon, readFragment } from "../../../../demo/static/assets/dom.js";
import { readData } from "../../../../loadtest/report/page/data.js";
import { BUYERS, Board, FREE } from "../shared/board.js";
import { showCode } from "../shared/code.js";
import { listenToKeys } from "../shared/keys.js";
import { unpack } from "../shared/unpack.js";
import { askToPlay, isPlaying, keepTurns, untilPlayed } from "./live.js";
import { readProgress, rememberReached } from "./progress.js";
import { makeTimelineRows } from "./timeline.js";

/**
 * A level; the comment at the top of levels.toml explains most fields.
 * @typedef {object} Level
 * @property {string} slug
 * @property {string} title
 * @property {string} task
 * @property {string} world
 * @property {string[]} events
 * @property {string} hint
 * @property {string} why
 * @property {boolean} [impossible]
 * @property {string[]} reached The schedules that reach its goal, the shortest first.
 * @property {{ text: string, href: string }[]} links
 * @property {Code | null} [code] The code that decides, if it is not in the strategy's file.
 */

/**
 * @typedef {object} World
 * @property {string} strategy
 * @property {number} units The stock at the beginning.
 * @property {boolean} has_lock Whether a buyer ever believes to have a lock.
 * @property {boolean} fenced Whether the lock grants fences, and the database checks them.
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
 * @property {string} turns The turns of each world, packed.
 */

/** @type {Record<string, string>} Event -> the turn that ends it, whose button replaces the event's. */
const END_OF_EVENT = { P: "G" };
/** The turn in which a waiting buyer keeps waiting; worlds.py explains all letters. */
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
function makeFreePlay(name) {
  const { strategy, events } = data.worlds[name];
  const task = `Every recorded schedule of ${strategy}.`;
  return { slug: name, title: `Free play: ${name}`, task, world: name, events, reached: [], links: [], hint: "", why: "" };
}

/**
 * Return the turns, from the first, that have reached the goal; undefined if it was not reached.
 * @returns {string | undefined}
 */
function findReachedKey() {
  return level.reached.find((key) => board.key.startsWith(key));
}

/**
 * Return the state after the turns so far.
 * @returns {State}
 */
function currentState() {
  return board.turn.state ?? [data.worlds[level.world].units, 0, ""];
}

function show() {
  const [stock, orders, believers] = currentState();
  $("stock").textContent = stock;
  $("orders").textContent = orders;
  $("owner").textContent = board.turn.lock ?? FREE;
  $("believers").textContent = [...believers].join(" and ") || "nobody";
  board.showTracks();
  showEvents();
  $("order").textContent = board.key ? `So far: ${board.key}, ${count(board.key.length, "move")}` : "Nobody has moved";
  $("turns-key").textContent = explainLetters();
  // unlike `disabled`, ariaDisabled keeps the focus; a press without effect does no harm
  $("back").ariaDisabled = String(!board.key);
  $("again").ariaDisabled = String(!board.key);
  showVerdict(orders);
  showExplanation();
  $("announcement").textContent = `${board.sentence} ${$("verdict").textContent}`;
  history.replaceState(null, "", `#${level.slug}${board.key && `/${board.key}`}`);
}

/**
 * Return what the letters of the turns so far stand for.
 * @returns {string}
 */
function explainLetters() {
  if (!board.key) return "";
  const events = [...new Set(board.key)].filter((turn) => !BUYERS.includes(turn));
  return ["A, B: a buyer's move", ...events.map((turn) => `${turn}: ${data.buttons[turn]}`)].join("; ");
}

// --- the events of the world ---

/** Show a button for each event of the level, or for the end of an event that can end now. */
function showEvents() {
  const events = level.events.map((event) => {
    const end = END_OF_EVENT[event];
    return board.canMove(end) ? end : event;
  });
  if (board.canMove(WAIT)) events.push(WAIT);
  const focusedPlace = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.place;
  const buttons = events.map(makeEventButton);
  $("events").replaceChildren(...buttons);
  $("events").hidden = !buttons.length;
  showReasonAgainstEvent(events);
  if (focusedPlace !== undefined) (buttons[Number(focusedPlace)] ?? buttons.at(-1))?.focus();
}

/**
 * Show why no event is possible, if an event has a button that cannot be pressed.
 * @param {string[]} events The events with a button.
 */
function showReasonAgainstEvent(events) {
  const hasImpossibleEvent = board.turn.can.length > 0 && events.some((event) => !board.canMove(event));
  $("no-event").hidden = !hasImpossibleEvent || !board.turn.no_event_reason;
  $("no-event").textContent = board.turn.no_event_reason;
}

/**
 * Return the button of an event.
 * @param {string} event
 * @param {number} place Its index among the buttons, from 0. The reader's keys begin with 1.
 * @returns {HTMLButtonElement}
 */
function makeEventButton(event, place) {
  const attributes = { type: "button", class: "event", "data-event": event, "data-place": place, "aria-describedby": "no-event" };
  const text = `${place + 1}: ${data.buttons[event]}`;
  const button = element("button", { ...attributes, "aria-disabled": String(!board.canMove(event)) }, text);
  button.addEventListener("click", () => makeMove(event));
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
  $("verdict").replaceChildren(...oversold, describeStanding());
}

/**
 * Return how far the player is, for the line of the verdict.
 * @returns {string | Node}
 */
function describeStanding() {
  const key = findReachedKey();
  if (key) return element("span", { class: "won" }, describeWin(key));
  if (!board.key) return "Nobody has moved: press A or B.";
  if (board.turn.can.length) return `${board.standing}.`;
  const advice = level.reached.length ? "That is not the goal: go back, or start again." : "Nobody can move any more.";
  return `${board.standing}. ${advice}`;
}

/**
 * @param {string} key The turns that reached the goal.
 * @returns {string}
 */
function describeWin(key) {
  const fewest = level.reached[0].length;
  const comparison = key.length === fewest ? "the fewest possible" : `the fewest possible are ${fewest}`;
  const success = level.impossible ? "It cannot be done, and you have seen why" : "Reached";
  return `${success}, in ${key.length} moves: ${comparison}.`;
}

/** Show what happened, and the next level, if the goal was reached; hide them otherwise. */
function showExplanation() {
  const key = findReachedKey();
  $("after").hidden = !key;
  $("to-why").hidden = !key;
  $("ending").hidden = !key || level !== data.levels.at(-1);
  if (!key) return;
  if (rememberReached(level.slug, key.length)) showLevels();
  showEndingTitle();
  const [best] = level.reached;
  $("timeline").replaceChildren(...makeTimelineRows(board, key));
  $("why").textContent = level.why;
  $("links").replaceChildren(...level.links.map(({ text, href }) => element("li", {}, element("a", { href }, text))));
  $("best").hidden = key.length === best.length;
  $("best").href = `#${level.slug}/${best}`;
  $("best").textContent = `Show a way with ${best.length} moves`;
  $("next").hidden = level === data.levels.at(-1);
}

/** Show the number of levels that were reached as the title of the last words. */
function showEndingTitle() {
  const progress = readProgress();
  const reached = data.levels.filter(({ slug }) => slug in progress).length;
  $("ending-title").textContent = `${reached} of ${data.levels.length}. Is a lock enough?`;
}

/** Scroll to the explanation of what happened. */
function scrollToWhy() {
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
 * Return the level of an address; the first level if the address names none.
 * @param {string} name The slug of a level, or a world, for free play.
 * @returns {Level}
 */
function findLevel(name) {
  const levelWithSlug = data.levels.find(({ slug }) => slug === name);
  if (levelWithSlug) return levelWithSlug;
  return data.worlds[name] ? makeFreePlay(name) : data.levels[0];
}

/** @param {string} name */
function chooseLevel(name) {
  level = findLevel(name);
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

/** Choose the level in the address of the page, and play the schedule in it. */
async function playAddress() {
  await untilPlayed();
  const [name, schedule = ""] = readFragment().split("/");
  chooseLevel(name);
  play(schedule);
}

/** Play the new address, and give the title of a new level the focus, so that it is read next. */
async function followAddress() {
  const slugBefore = level.slug;
  await playAddress();
  if (level.slug !== slugBefore) $("level-title").focus();
}

function openNextLevel() {
  const next = data.levels[data.levels.findIndex(({ slug }) => slug === level.slug) + 1];
  if (next) location.hash = next.slug;
}

// --- the moves ---

/** @param {string} name A buyer, or an event of the world. */
function makeMove(name) {
  if (board.canMove(name) && isOffered(name)) play(board.key + name);
}

/** @param {string} schedule */
async function play(schedule) {
  if (data.live && !(await playLive(schedule))) return;
  board.follow(schedule);
  show();
}

/**
 * Let the server play a schedule, unless its turns are known. Return whether they are known now.
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
  button.addEventListener("click", () => makeMove(/** @type {HTMLElement} */ (button).dataset.buyer ?? ""));
}
$("back").addEventListener("click", () => play(board.previousKey));
$("again").addEventListener("click", () => play(""));
$("next").addEventListener("click", openNextLevel);
$("to-why").addEventListener("click", scrollToWhy);
const eventKeys = Object.fromEntries(
  [0, 1, 2, 3, 4, 5, 6, 7, 8].map((place) => [place + 1, () => $("events").children[place]?.click()]),
);
listenToKeys({
  ...eventKeys,
  a: () => makeMove("A"),
  b: () => makeMove("B"),
  r: () => play(""),
  n: openNextLevel,
  Backspace: () => play(board.previousKey),
});
addEventListener("hashchange", followAddress);
playAddress();
