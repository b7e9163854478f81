// The verdicts: a table of runs, or a grid of strategies by faults. Each opens its timeline.

const LOST_UPDATES =
  "Lost updates: decrements that another write erased. Two buyers read the same stock, and both write it back less one.";

const verdictsIn = (runs) => Object.keys(VERDICTS).filter((name) => runs.some((run) => run.verdict === name));

function opener(number, look, more, ...children) {
  return element("button", { type: "button", class: `opens ${look}`, "data-run": number, ...more }, ...children);
}

function nameOfRun(run) {
  return run.fault === "rush-one-process" ? `${run.lock} (one process)` : run.lock;
}

function surprise(run) {
  return run.as_expected ? null : element("span", { class: "surprise" }, ` expected ${words(run.expected)}`);
}

// An empty text heads nothing.
function table(heads, rows, numbersFrom, attributes = {}) {
  const row = (texts, scope) => {
    const cells = texts.map((text, column) => {
      const look = column >= numbersFrom ? { class: "number" } : {};
      const isHead = text && (scope === "col" || !column);
      return isHead ? element("th", { ...look, scope }, text) : element("td", look, text);
    });
    return element("tr", {}, ...cells);
  };
  const body = element("tbody", {}, ...rows.map((texts) => row(texts, "row")));
  return element("table", attributes, element("thead", {}, row(heads, "col")), body);
}

function tableOfRuns(runs, { heads, rows }) {
  const lines = runs.map((run, number) => {
    const verdict = element("span", {}, badge(run.verdict), surprise(run));
    return [opener(number, "", {}, nameOfRun(run)), verdict, ...rows[number]];
  });
  return table(heads, lines, 2);
}

function cellOf(run, number) {
  const mark = run.as_expected ? null : element("span", { "aria-hidden": "true" }, "!");
  const expected = run.as_expected ? "as expected" : `expected ${words(run.expected)}`;
  const title = `${run.lock} under ${run.fault}: ${words(run.verdict)}, ${expected}`;
  const look = `cell ${lookOf(run.verdict)} ${run.as_expected ? "" : "off"}`;
  return opener(number, look, { title, "aria-label": title, tabindex: -1 }, icon(signOf(run.verdict)), mark);
}

// What the signs of the grid mean: those that are there.
function fillKey(runs) {
  const items = verdictsIn(runs).map((name) => {
    const [sign, look, means] = VERDICTS[name];
    const cell = element("span", { class: `cell ${look}` }, icon(sign));
    return element("li", {}, cell, element("span", {}, element("strong", {}, words(name)), `: ${means}`));
  });
  if (runs.some((run) => !run.as_expected)) {
    items.push(element("li", {}, element("span", { class: "cell off" }, "!"), "not the verdict that was expected"));
  }
  $("verdicts-key").replaceChildren(...items);
  $("verdicts-key").hidden = false;
}

const GRID = { role: "grid", class: "grid", "aria-labelledby": "verdicts-title" };

function gridOfRuns(runs, faults) {
  const rows = {};
  runs.forEach((run, number) => {
    const row = (rows[run.lock] ??= [run.lock, ...faults.map(() => "")]);
    row[faults.indexOf(run.fault) + 1] = cellOf(run, number);
  });
  const heads = ["", ...faults.map((fault) => element("span", {}, fault))];
  const made = table(heads, Object.values(rows), Infinity, GRID);
  made.querySelector("button").tabIndex = 0;
  made.addEventListener("keydown", moveInGrid);
  return made;
}

const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// One cell of the grid is in the tab order; the arrow keys go on from there, over empty places.
function moveInGrid(event) {
  const move = MOVES[event.key];
  let cell = event.target.closest("td");
  if (!move || !cell) return;
  event.preventDefault();
  const { rows } = cell.closest("tbody");
  do cell = rows[cell.parentElement.sectionRowIndex + move[0]]?.cells[cell.cellIndex + move[1]];
  while (cell?.matches("td:empty"));
  if (cell?.tagName === "TD") takeFocus(cell.firstChild);
}

function takeFocus(button) {
  const grid = button.closest(".grid");
  if (grid) {
    grid.querySelector("button[tabindex='0']").tabIndex = -1;
    button.tabIndex = 0;
  }
  button.focus();
}

// What each fault does, in a sentence.
function fillFaults(faults, explained) {
  const known = faults.filter((fault) => explained[fault]);
  const terms = known.flatMap((fault) => [element("dt", {}, fault), element("dd", {}, explained[fault])]);
  $("faults-list").replaceChildren(...terms);
  $("faults").hidden = false;
}

// The faults of the runs: in the order in which they are explained, those without a word last.
function faultsOf(runs, explained) {
  const there = new Set(runs.map((run) => run.fault));
  return [...new Set([...Object.keys(explained), ...there])].filter((fault) => there.has(fault));
}

function fillVerdicts(data) {
  const { runs, table: figures } = data;
  const faults = faultsOf(runs, data.faults);
  $("verdicts-box").classList.toggle("grid-box", !figures);
  $("verdicts-box").replaceChildren(figures ? tableOfRuns(runs, figures) : gridOfRuns(runs, faults));
  if (figures) $("verdicts-words").textContent = LOST_UPDATES;
  else {
    fillKey(runs);
    fillFaults(faults, data.faults);
  }
  $("verdicts-hint").textContent = figures
    ? "Each name opens its timeline."
    : "Each cell of a fault opens its timeline; the arrow keys go from cell to cell.";
}
