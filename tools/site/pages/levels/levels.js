// The levels: a goal, the moves that reach it, and what happened. Which moves reach a goal was
// found when the site was built (levels.py).

const data = JSON.parse($("data").textContent);
const turnsByWorld = await unpack(data.turns);
const AFTER = { P: "G" }; // what takes the place of an event's button
let level = data.levels[0];
let playing = null; // what the server is asked for, if the page is live

// Any recorded world can be played by its name, without a goal.
function freePlay(name) {
  const { strategy, events } = data.worlds[name];
  const task = `Every recorded schedule of ${strategy}.`;
  return { slug: name, title: `Free play: ${name}`, task, world: name, events, reached: [], links: [], hint: "", why: "" };
}

const reachedKey = () => level.reached.find((key) => board.key.startsWith(key));
const progress = () => JSON.parse(stored("levels") ?? "{}");
const state = () => turnNow().state ?? [data.worlds[level.world].units, 0, "", ""];
const names = (buyers) => [...buyers].join(" and ") || "nobody";

function show() {
  const [stock, orders, believers, owner] = state();
  $("stock").textContent = stock;
  $("orders").textContent = orders;
  $("owner").textContent = owner ? `${owner}'s` : "free";
  $("believers").textContent = names(believers);
  showTracks();
  showEvents();
  $("order").textContent = board.key ? `So far: ${board.key}, ${count(board.key.length, "move")}` : "Nobody has moved";
  $("back").disabled = $("again").disabled = !board.key;
  showVerdict(orders);
  showAfter();
  $("said").textContent = `${lastTurnInWords()} ${$("verdict").textContent}`;
  history.replaceState(null, "", `#${level.slug}${board.key && `/${board.key}`}`);
}

// The events of the level; an event that has begun gives its place to what follows it.
function showEvents() {
  const events = level.events.map((event) => (canMove(AFTER[event]) ? AFTER[event] : event));
  const shown = canMove("W") ? [...events, "W"] : events;
  const focused = document.activeElement?.dataset?.place;
  const buttons = shown.map((event, place) => eventButton(event, place));
  $("events").replaceChildren(...buttons);
  $("events").hidden = !buttons.length;
  if (focused !== undefined) (buttons[focused] ?? buttons.at(-1))?.focus();
}

function eventButton(event, place) {
  const attributes = { type: "button", class: "event", "data-event": event, "data-place": place, "aria-disabled": String(!canMove(event)) };
  const button = element("button", attributes, `${place + 1}: ${data.buttons[event]}`);
  button.addEventListener("click", () => move(event));
  return button;
}

function showVerdict(orders) {
  const key = reachedKey();
  const parts = [];
  if (orders > data.worlds[level.world].units) parts.push(badge("oversold"), " ");
  if (key) parts.push(element("span", { class: "won" }, wonText(key)));
  else if (!board.key) parts.push("Nobody has moved: press A or B.");
  else if (!turnNow().can.length) parts.push(`${standing()}. ${level.reached.length ? "That is not the goal: go back, or start again." : "Nobody can move any more."}`);
  else parts.push(`${standing()}.`);
  $("verdict").replaceChildren(...parts);
}

function wonText(key) {
  const best = level.reached[0].length;
  const how = key.length === best ? "the fewest possible" : `the fewest possible are ${best}`;
  const reached = level.impossible ? "It cannot be done, and you have seen why" : "Reached";
  return `${reached}, in ${key.length} moves: ${how}.`;
}

function showAfter() {
  const key = reachedKey();
  $("after").hidden = !key;
  if (!key) return;
  remember(key.length);
  $("timeline").replaceChildren(...timelineRows(key));
  $("why").textContent = level.why;
  $("links").replaceChildren(...level.links.map(({ text, href }) => element("li", {}, element("a", { href }, text))));
  const [best] = level.reached;
  $("best").hidden = key.length === best.length;
  $("best").href = `#${level.slug}/${best}`;
  $("best").textContent = `Show a way with ${best.length} moves`;
  $("next").hidden = level === data.levels.at(-1);
}

// A row for each buyer and for the lock on the server, a column for each move.
function timelineRows(key) {
  const keys = [...key].map((_, n) => key.slice(0, n + 1));
  const head = element("tr", {}, element("td"), ...keys.map((_, n) => element("th", { scope: "col" }, String(n + 1))));
  const buyers = BUYERS.map((buyer) => timelineRow(buyer, keys, (at) => buyerCell(buyer, at)));
  const events = timelineRow("The world", keys, (at) => element("td", {}, textsOf("", at)));
  const hasEvent = keys.some((at) => textsOf("", at));
  const hasLock = keys.some((at) => turnAt(at).state[2]);
  const lock = timelineRow("Lock on the server", keys, (at) => lockCell(at));
  const shelf = timelineRow("Stock, orders", keys, (at) => element("td", {}, turnAt(at).state.slice(0, 2).join(", ")));
  return [head, ...buyers, ...(hasEvent ? [events] : []), ...(hasLock ? [lock] : []), shelf];
}

const timelineRow = (name, keys, cellAt) => element("tr", {}, element("th", { scope: "row" }, name), ...keys.map(cellAt));

// What a buyer, or the world, did in a turn; of a statement its first word.
function textsOf(name, key) {
  const lines = turnAt(key).lines.filter(([buyer]) => buyer === name);
  return lines.map(([, kind, text]) => (kind === "sql" ? text.split(" ")[0] : text)).join(", ");
}

function buyerCell(buyer, key) {
  const [, , believers] = turnAt(key).state;
  const looks = [believers.includes(buyer) ? "holds" : "", believers.length > 1 && believers.includes(buyer) ? "both" : ""];
  const remark = believers.length > 1 && believers.includes(buyer) ? element("span", { class: "unseen" }, "Both believe to have the lock. ") : null;
  return element("td", { class: looks.join(" ").trim() }, remark, textsOf(buyer, key));
}

function lockCell(key) {
  const owner = turnAt(key).state[3];
  return element("td", { class: owner ? "holds" : "" }, owner ? `${owner}'s` : "free");
}

function remember(moves) {
  const reached = progress();
  if (reached[level.slug] <= moves) return;
  store("levels", JSON.stringify({ ...reached, [level.slug]: moves }));
  showLevels();
}

function showLevels() {
  const reached = progress();
  const items = data.levels.map(({ slug, title }, n) => {
    const isReached = slug in reached;
    const current = slug === level.slug ? { "aria-current": "true" } : {};
    const mark = isReached ? [icon("tick"), element("span", { class: "unseen" }, "reached")] : [];
    return element("li", {}, element("a", { href: `#${slug}`, class: isReached ? "reached" : "", ...current }, `${n + 1} ${title} `, ...mark));
  });
  $("levels").replaceChildren(...items);
}

function choose(name) {
  level = data.levels.find(({ slug }) => slug === name) ?? (data.worlds[name] ? freePlay(name) : data.levels[0]);
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
  for (const box of document.querySelectorAll(".lock-state")) box.hidden = !world.has_lock;
  showCode($("code"), strategy);
  showLevels();
  document.querySelector("#levels [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

async function fromAddress() {
  await playing;
  const [name, schedule = ""] = decodeURIComponent(location.hash.slice(1)).split("/");
  choose(name);
  play(schedule);
}

async function play(schedule) {
  if (data.live && !(await playLive(schedule))) return;
  follow(schedule);
  show();
}

// Let the server play a schedule from its beginning, unless this page has seen it.
async function playLive(schedule) {
  if (playing) return false;
  if (board.turns[schedule]?.isPlayed) return true;
  $("steps").setAttribute("aria-busy", "true");
  $("verdict").textContent = "Played on real servers ...";
  const query = new URLSearchParams({ world: level.world, schedule });
  playing = fetch(`turns?${query}`).then((response) => response.json(), (error) => ({ error: String(error) }));
  const answer = await playing;
  playing = null;
  $("steps").removeAttribute("aria-busy");
  if (answer.error) $("verdict").textContent = `It was not played: ${answer.error}.`;
  else keepTurns(answer.turns, schedule);
  if (answer.differs) $("recorded").textContent = "The shop did something else now than was recorded.";
  return !answer.error;
}

// What is possible after a turn is known only of the last one that was played.
function keepTurns(turns, schedule) {
  for (const [key, turn] of Object.entries(turns)) {
    if (!board.turns[key]?.isPlayed) board.turns[key] = { ...turn, isPlayed: key === schedule };
  }
}

const move = (name) => canMove(name) && isOffered(name) && play(board.key + name);
const isOffered = (name) => BUYERS.includes(name) || [...$("events").children].some((button) => button.dataset.event === name);

function toNextLevel() {
  const next = data.levels[data.levels.findIndex(({ slug }) => slug === level.slug) + 1];
  if (next) location.hash = next.slug;
}

for (const button of document.querySelectorAll(".move")) button.addEventListener("click", () => move(button.dataset.buyer));
$("back").addEventListener("click", () => play(board.key.slice(0, -1)));
$("again").addEventListener("click", () => play(""));
$("next").addEventListener("click", toNextLevel);
const eventKeys = Object.fromEntries([...Array(9).keys()].map((place) => [String(place + 1), () => $("events").children[place]?.click()]));
listenToKeys({ ...eventKeys, a: () => move("A"), b: () => move("B"), r: () => play(""), n: toNextLevel, Backspace: () => play(board.key.slice(0, -1)) });
addEventListener("hashchange", fromAddress);
fromAddress();
