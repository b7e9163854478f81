// Reads the data, fills the page, opens a run.

const data = JSON.parse($("data").textContent);
let opened = -1;

function open(number, byHand) {
  const run = data.runs[number];
  if (!run) return;
  opened = number;
  $("detail").hidden = false;
  fillDetail(run, data.faults);
  for (const button of document.querySelectorAll(".opens")) {
    button.ariaCurrent = button.dataset.run === String(number) ? "true" : null;
  }
  if (run.timeline) {
    openLanes(run); // drawn when it returns; on the screen with the next frame
    requestAnimationFrame(() => setTimeout(() => ($("lanes").dataset.drawn = String(number))));
  }
  if (byHand) {
    history.replaceState(null, "", `#${nameOfCell(run)}`);
    $("detail").scrollIntoView({ block: "start" });
    $("detail-title").focus({ preventScroll: true });
  }
}

const nameOfCell = ({ lock, fault }) => `${lock}/${fault}`;

// The number of the run with this name, or -1.
const numberOf = (name) => data.runs.findIndex((run) => nameOfCell(run) === name);
const nameInAddress = () => decodeURIComponent(location.hash.slice(1));

// The run to show first: that of the address, else that of the data, else the one that shows the
// race best.
function first() {
  const named = [nameInAddress(), data.first].map(numberOf).find((number) => number >= 0);
  if (named !== undefined) return named;
  const together = (run) => Math.max(0, ...run.timeline.overlaps.map(([, start, end]) => end - start));
  const shows = (run) => (run.timeline ? 1 + (run.verdict === "oversold" ? 1e9 + together(run) : 0) : 0);
  const scores = data.runs.map(shows);
  const best = Math.max(0, ...scores);
  return best ? scores.indexOf(best) : -1;
}

const { runs } = data;
const off = runs.filter((run) => !run.as_expected).length;
const verdicts = verdictsIn(runs).map((name) => `${runs.filter((run) => run.verdict === name).length} ${words(name)}`);
$("sum").textContent = `${count(runs.length, "run")}: ${verdicts.join(", ")}; ${off ? `${off} not as expected` : "all as expected"}.`;
if (runs.length) fillVerdicts(data);
$("verdicts-box").addEventListener("click", (event) => {
  const button = event.target.closest(".opens");
  if (!button) return;
  takeFocus(button);
  open(Number(button.dataset.run), true);
});
$("detail").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const button = document.querySelector(`.opens[data-run="${opened}"]`);
  if (button) takeFocus(button);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (opened >= 0) open(opened, false);
});
addEventListener("hashchange", () => open(numberOf(nameInAddress()), true));
open(first(), numberOf(nameInAddress()) >= 0);
