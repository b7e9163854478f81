// Finds the sections of the documents that have every word of the query.

const MAX_RESULTS = 50;
const EXCERPT_LETTERS = 220;
const WEIGHTS = { heading: 10, page: 4, text: 1 };

// The sum of the weights of the fields in which a word stands; 0 if a word is nowhere.
function scoreOf(section, terms) {
  const scores = terms.map((term) =>
    Object.entries(WEIGHTS).reduce((sum, [field, weight]) => sum + (section[field].toLowerCase().includes(term) ? weight : 0), 0),
  );
  return scores.includes(0) ? 0 : scores.reduce((sum, score) => sum + score, 0);
}

function excerpt(text, terms) {
  const places = terms.map((term) => text.toLowerCase().indexOf(term)).filter((place) => place >= 0);
  const start = Math.max(0, Math.min(...places, text.length) - EXCERPT_LETTERS / 3);
  const from = start && text.indexOf(" ", start) + 1;
  const rest = text.slice(from);
  const shown = rest.length > EXCERPT_LETTERS ? `${rest.slice(0, EXCERPT_LETTERS).replace(/\s\S*$/, "")} ...` : rest;
  return from ? `... ${shown}` : shown;
}

function resultOf({ location, page, heading, text }, terms) {
  const title = heading === page ? page : `${page}: ${heading}`;
  return element("li", {}, element("a", { href: location }, title), element("p", {}, excerpt(text, terms)));
}

async function search() {
  const query = new URLSearchParams(location.search).get("q") ?? "";
  document.querySelector(".site-head input").value = query;
  const terms = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!terms.length) return ($("found").textContent = "Type one or more words into the field above.");
  const sections = (await unpack(data)).map((section) => ({ section, score: scoreOf(section, terms) }));
  const found = sections.filter(({ score }) => score).sort((one, other) => other.score - one.score);
  const shown = found.length > MAX_RESULTS ? `, the first ${MAX_RESULTS} are shown` : "";
  $("found").textContent = found.length ? `${count(found.length, "section")} with “${query}”${shown}.` : `No section has “${query}”. Try fewer or shorter words.`;
  $("results").replaceChildren(...found.slice(0, MAX_RESULTS).map(({ section }) => resultOf(section, terms)));
}

const data = JSON.parse($("data").textContent);
search();
