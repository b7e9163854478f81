// Two buyers, one move at a time, from what was recorded: a key says who has moved so far, and its
// turn what the last move did. Nothing is computed here that the shop did not do.

const data = JSON.parse($("data").textContent);
const BUYERS = ["A", "B"];
const OUTCOMES = { sold: "has an order", sold_out: "is told: sold out", busy: "is told: try again", lost: "lost the lock: nothing sold" };
let lock = "none";
let so_far = "A";

const moves = () => data.moves[lock];
const turn = (key) => moves()[key] || { did: [], state: [1, 0, ""] };
const before = (key) => turn(key.slice(0, -1)).state;
const turns = () => [...so_far].map((_, n) => so_far.slice(0, n + 1)); // up to here
const other = (buyer) => (buyer === "A" ? "B" : "A");

// Where a buyer is: "new", "read" (and what it read), "written", "waits" or "ended".
function place(buyer) {
  const its = turns().flatMap((key) => turn(key).did).filter(([who]) => who === buyer);
  const found = { status: "new", read: null, outcome: null };
  for (const [, what, fact] of its) {
    if (what === "after_read") Object.assign(found, { status: "read", read: fact });
    if (what === "sends" && /^(UPDATE|INSERT|DELETE)/.test(fact) && found.read !== null) found.status = "written";
    if (what === "waits" && found.status !== "waits") Object.assign(found, { before: found.status, status: "waits" });
    if (what === "stops" && found.status === "waits") found.status = found.before;
    if (what === "ends") Object.assign(found, { status: "ended", outcome: fact });
  }
  return found;
}

function label(buyer) {
  const { status, read } = place(buyer);
  if (status === "ended") return `${buyer} is done`;
  if (status === "waits") return `${buyer} waits`;
  if (status === "new") return `${buyer}: read the stock`;
  if (status === "read") return read === 0 ? `${buyer}: leave` : `${buyer}: write`;
  return `${buyer}: commit`;
}

function sentence([buyer, what, fact], holder) {
  if (what === "acquired") return "has the lock";
  if (what === "after_read") return fact === 0 ? "reads 0: nothing left" : `reads ${fact}: there is one`;
  if (what === "released") return "gives the lock back";
  if (what === "unlocked_before_commit") return "gives the lock back before it has committed";
  if (what === "reserved") return "has reserved a unit in Redis";
  if (what === "ends") return OUTCOMES[fact] || `is told: ${words(fact)}`;
  if (what === "waits") return holder === other(buyer) ? `waits: the lock is ${other(buyer)}'s` : `waits: PostgreSQL keeps what ${other(buyer)} has not committed`;
  return null;
}

function line(event, holder) {
  const [, what, fact] = event;
  if (what === "sends") return element("li", { class: "sql" }, element("code", {}, fact));
  const text = sentence(event, holder);
  return text && element("li", { class: what === "ends" ? `end ${fact}` : "" }, text);
}

function show() {
  const [stock, orders, holder] = turn(so_far).state;
  $("stock").textContent = stock;
  $("orders").textContent = orders;
  $("holder").textContent = holder ? `${[...holder].join(" and ")}'s` : "free";
  $("lock-box").hidden = !Object.values(moves()).some(({ state }) => state[2]);
  for (const track of document.querySelectorAll(".track")) fillTrack(track, track.dataset.buyer);
  $("order").textContent = so_far ? `So far: ${so_far}` : "Nobody has moved";
  $("back").disabled = $("again").disabled = !so_far;
  $("finish").disabled = isOver();
  showVerdict(orders);
  say(orders, stock);
  history.replaceState(null, "", `#${lock}/${so_far}`);
}

function fillTrack(track, buyer) {
  const button = track.querySelector(".move");
  button.textContent = label(buyer);
  button.setAttribute("aria-disabled", String(!moves()[so_far + buyer]));
  const lines = turns().flatMap((key) => {
    const its = turn(key).did.filter(([who]) => who === buyer);
    const made = its.map((event) => line(event, before(key)[2])).filter(Boolean);
    if (key === so_far) made.forEach((one) => one.classList.add("new"));
    return made;
  });
  track.querySelector(".did").replaceChildren(...lines);
}

const isOver = () => BUYERS.every((buyer) => place(buyer).status === "ended");

// Where a buyer is, as a part of a sentence.
function standing(buyer) {
  const { status, read, outcome } = place(buyer);
  if (status === "new") return `${buyer} has not begun`;
  if (status === "read") return `${buyer} has read ${read}`;
  if (status === "written") return `${buyer} has written, but not committed`;
  if (status === "waits") return `${buyer} waits`;
  return `${buyer} ${OUTCOMES[outcome] || `is told: ${words(outcome)}`}`;
}

// What to press next: what leads to the end of the story, if there is a choice.
function advice() {
  const places = BUYERS.map((buyer) => place(buyer));
  const free = BUYERS.filter((buyer) => moves()[so_far + buyer]);
  if (free.length === 1) return `press ${free[0]}`;
  if (lock === "none" && so_far === "A") return "now press B: read the stock";
  if (places.every(({ read, status }) => read === 1 && status === "read")) return "now let them go on: Finish both";
  return "press A or B";
}

function showVerdict(orders) {
  const where = $("verdict");
  if (orders > 1) where.replaceChildren(badge("oversold"), " Two orders, one unit.");
  else if (isOver()) where.replaceChildren(badge("exact"), orders ? " One order, one unit; the other is told: sold out." : " Nobody bought.");
  else if (!so_far) where.replaceChildren("Nobody has moved: press A or B.");
  else where.replaceChildren(`${BUYERS.map(standing).join(", ")}: ${advice()}.`);
}

// One sentence for who hears the page: the last move, and what is left.
function say(orders, stock) {
  if (!so_far) return ($("said").textContent = "Nobody has moved.");
  const told = turn(so_far).did.map((event) => {
    const text = event[1] === "sends" ? `sends ${event[2]}` : sentence(event, before(so_far)[2]);
    return text && `${event[0]} ${text}`;
  });
  const sum = orders > 1 ? "Oversold: two orders, one unit." : isOver() ? "Exact: one order, one unit." : `Stock ${stock}, ${count(orders, "order")}.`;
  $("said").textContent = `${told.filter(Boolean).join(", ")}. ${sum}`;
}

const move = (buyer) => moves()[so_far + buyer] && play(so_far + buyer);

function finish() {
  while (!isOver()) {
    const next = BUYERS.find((buyer) => moves()[so_far + buyer] && place(buyer).status !== "waits");
    if (!next) break;
    so_far += next;
  }
  show();
}

// An order of the table, with its moves of buyers who wait or have ended passed over.
function play(order) {
  so_far = [...order].reduce((made, buyer) => (moves()[made + buyer] ? made + buyer : made), "");
  show();
}

function choose(name) {
  lock = name;
  $("lock").value = name;
  $("summary").textContent = data.strategies[name].summary;
  showCode($("code"), data.strategies[name]);
}

function fromAddress() {
  const [name, order] = decodeURIComponent(location.hash.slice(1)).split("/");
  choose(data.moves[name] ? name : "none");
  play(data.moves[name] && order !== undefined ? order : "A");
}

// A browser may refuse a page that was opened from a folder its storage.
function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // The choice lasts until the page is left.
  }
}

const KEYS = { a: () => move("A"), b: () => move("B"), f: finish, r: () => play(""), Backspace: () => play(so_far.slice(0, -1)) };

$("lock").append(...Object.entries(data.strategies).filter(([name]) => data.moves[name]).map(([name, { title }]) => element("option", { value: name }, `${name}: ${title}`)));
$("lock").addEventListener("change", () => {
  choose($("lock").value);
  play("A");
});
for (const button of document.querySelectorAll(".move")) button.addEventListener("click", () => move(button.dataset.buyer));
$("finish").addEventListener("click", finish);
$("back").addEventListener("click", () => play(so_far.slice(0, -1)));
$("again").addEventListener("click", () => play(""));
document.addEventListener("keydown", (event) => {
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (event.key.length === 1 && !$("letters").checked) return;
  if (!act || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select, textarea, input:not([type=checkbox])")) return;
  event.preventDefault();
  act();
});
$("letters").checked = stored("letters") !== "off";
$("letters").addEventListener("change", () => store("letters", $("letters").checked ? "on" : "off"));
addEventListener("hashchange", fromAddress);
fromAddress();
