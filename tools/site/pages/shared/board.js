// Two buyers, one move at a time, from what was recorded: a key says who has moved so far. The words
// of each turn come from narration.py; nothing is computed here that the shop did not do.
const BUYERS = ["A", "B"];
const board = { turns: {}, key: "" };

const turnAt = (key) => board.turns[key];
const turnNow = () => turnAt(board.key);
const canMove = (name) => turnNow().can.includes(name);
const keysSoFar = () => [...board.key].map((_, n) => board.key.slice(0, n + 1));

// Follow the turns of a schedule. A turn that is not possible by then is passed over.
function follow(schedule) {
  board.key = [...schedule].reduce((key, name) => (turnAt(key).can.includes(name) ? key + name : key), "");
}

function lineItem([, kind, text]) {
  return element("li", { class: kind }, kind === "sql" ? element("code", {}, text) : text);
}

// The lines under a buyer; those of the last turn are marked.
function lineItems(buyer) {
  return keysSoFar().flatMap((key) => {
    const items = turnAt(key).lines.filter(([name]) => !name || name === buyer).map(lineItem);
    if (key === board.key) items.forEach((item) => item.classList.add("new"));
    return items;
  });
}

function showTracks() {
  for (const track of document.querySelectorAll(".track")) {
    const { buyer } = track.dataset;
    const button = track.querySelector(".move");
    button.textContent = turnNow().labels[buyer];
    button.setAttribute("aria-disabled", String(!canMove(buyer)));
    track.querySelector(".did").replaceChildren(...lineItems(buyer));
  }
}

// The last turn in one sentence, for a reader who hears the page.
function lastTurnInWords() {
  if (!board.key) return "Nobody has moved.";
  const texts = turnNow().lines.map(([buyer, kind, text]) => `${buyer} ${kind === "sql" ? "sends " : ""}${text}`.trim());
  return `${texts.join(", ")}.`;
}

const standing = () => BUYERS.map((buyer) => turnNow().standing[buyer]).join(", ");

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

// Let keys press what they are named for, unless the reader types or has switched letters off.
function listenToKeys(actions) {
  $("letters").checked = stored("letters") !== "off";
  $("letters").addEventListener("change", () => store("letters", $("letters").checked ? "on" : "off"));
  document.addEventListener("keydown", (event) => {
    const isLetter = event.key.length === 1;
    const action = actions[isLetter ? event.key.toLowerCase() : event.key];
    if (!action || (isLetter && !$("letters").checked)) return;
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select, textarea, input:not([type=checkbox])")) return;
    event.preventDefault();
    action();
  });
}
