// The step-through: any strategy, any order of two buyers' moves.

const data = JSON.parse($("data").textContent);
const turnsByLock = await unpack(data.turns);
const START = [1, 0, ""];
let lock = "none";

const isOver = () => BUYERS.every((buyer) => turnNow().phases[buyer] === "ended");

function show() {
  const [stock, orders, holder] = turnNow().state ?? START;
  $("stock").textContent = stock;
  $("orders").textContent = orders;
  $("holder").textContent = holder ? `${[...holder].join(" and ")}'s` : "free";
  $("lock-box").hidden = !Object.values(board.turns).some(({ state }) => state?.[2]);
  showTracks();
  $("order").textContent = board.key ? `So far: ${board.key}` : "Nobody has moved";
  $("back").disabled = $("again").disabled = !board.key;
  $("finish").disabled = isOver();
  showVerdict(orders);
  const sum = orders > 1 ? "Oversold: two orders, one unit." : isOver() ? "Exact: one order, one unit." : `Stock ${stock}, ${count(orders, "order")}.`;
  $("said").textContent = `${lastTurnInWords()} ${sum}`;
  history.replaceState(null, "", `#${lock}/${board.key}`);
}

// What to press next: what leads to the end of the story, if there is a choice.
function advice() {
  const free = BUYERS.filter(canMove);
  if (free.length === 1) return `press ${free[0]}`;
  if (lock === "none" && board.key === "A") return "now press B: read the stock";
  if (BUYERS.every((buyer) => turnNow().labels[buyer] === `${buyer}: write`)) return "now let them go on: Finish both";
  return "press A or B";
}

function showVerdict(orders) {
  const verdict = $("verdict");
  if (orders > 1) verdict.replaceChildren(badge("oversold"), " Two orders, one unit.");
  else if (isOver()) verdict.replaceChildren(badge("exact"), orders ? " One order, one unit; the other is told: sold out." : " Nobody bought.");
  else if (!board.key) verdict.replaceChildren("Nobody has moved: press A or B.");
  else verdict.replaceChildren(`${standing()}: ${advice()}.`);
}

function finish() {
  let next;
  while ((next = BUYERS.find((buyer) => canMove(buyer) && turnNow().phases[buyer] !== "waits"))) board.key += next;
  show();
}

function play(order) {
  follow(order);
  show();
}

const move = (buyer) => canMove(buyer) && play(board.key + buyer);

function choose(name) {
  lock = name;
  board.turns = turnsByLock[name];
  $("lock").value = name;
  $("summary").textContent = data.strategies[name].summary;
  showCode($("code"), data.strategies[name]);
}

function fromAddress() {
  const [name, order] = decodeURIComponent(location.hash.slice(1)).split("/");
  choose(turnsByLock[name] ? name : "none");
  play(turnsByLock[name] && order !== undefined ? order : "A");
}

const recorded = Object.entries(data.strategies).filter(([name]) => turnsByLock[name]);
$("lock").append(...recorded.map(([name, { title }]) => element("option", { value: name }, `${name}: ${title}`)));
$("lock").addEventListener("change", () => {
  choose($("lock").value);
  play("A");
});
for (const button of document.querySelectorAll(".move")) button.addEventListener("click", () => move(button.dataset.buyer));
$("finish").addEventListener("click", finish);
$("back").addEventListener("click", () => play(board.key.slice(0, -1)));
$("again").addEventListener("click", () => play(""));
listenToKeys({ a: () => move("A"), b: () => move("B"), f: finish, r: () => play(""), Backspace: () => play(board.key.slice(0, -1)) });
addEventListener("hashchange", fromAddress);
fromAddress();
