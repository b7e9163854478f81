// The facts of one run, in words, next to its timeline.

function fillFacts(run, faults) {
  const counts = Object.entries(run.outcomes || {}).filter(([, number]) => number);
  const lines = [];
  if (run.verdict === "not_run") lines.push(run.why || run.missing);
  else {
    const lost = run.lost_updates ? `, ${count(run.lost_updates, "lost update")}` : "";
    const left = run.stock_left === null ? "" : `, ${run.stock_left} left on the shelf`;
    lines.push(`${count(run.orders, "order")} for ${count(run.initial_stock, "unit")}${left}${lost}.`);
    lines.push(`Last answers: ${counts.map(([outcome, number]) => `${number} ${words(outcome)}`).join(", ")}.`);
  }
  const terms = [];
  const add = (term, ...said) => said.length && terms.push(element("dt", {}, term), ...said.map((s) => element("dd", {}, s)));
  if (faults[run.fault]) add("Fault", faults[run.fault]);
  if (run.evidence) add("Seen", run.evidence);
  add("Found", ...(run.findings || []));
  if (run.target) add("Judged", ...run.judged);
  if (run.target) add("Not judged", ...run.not_judged);
  if (run.missing && run.verdict !== "not_run") add("Missing", run.missing);
  add("Wrong", ...(run.wrong || []));
  if (typeof run.recovery_s === "number") add("Recovery", `${run.recovery_s.toFixed(2)} s until somebody bought again`);
  $("facts").replaceChildren(
    ...lines.map((text, place) => element("p", { class: place ? "quiet" : "sum" }, text)),
    ...(terms.length ? [element("dl", {}, ...terms)] : []),
  );
}

// A line of the timeline begins with its seconds: the rest hangs next to them.
function storyLine(text) {
  const [when, ...what] = text.trim().split(/ {2,}/);
  return element("li", {}, element("span", { class: "when" }, when), element("span", {}, what.join(" ")));
}

function tableOfBuyers(timeline) {
  const list = (lane) => element("ul", {}, ...saidOf(timeline, lane).map((text) => element("li", {}, text)));
  const rows = timeline.lanes.map(([buyer, node], lane) => [buyer, node, list(lane)]);
  return table(["buyer", "node", "what happened"], rows, 9);
}

function fillDetail(run, faults) {
  const under = faults[run.fault] ? ` under ${run.fault}` : "";
  const title = element("span", {}, `${nameOfRun(run)}${under} `, badge(run.verdict), surprise(run));
  $("detail-title").replaceChildren(title);
  fillFacts(run, faults);
  const story = run.story || [];
  $("story").hidden = !story.length;
  $("story-lines").replaceChildren(...story.map(storyLine));
  const { timeline } = run;
  const details = $("as-table");
  const box = details.querySelector(".scroll");
  $("drawn").hidden = details.hidden = !timeline;
  $("no-lanes").hidden = Boolean(timeline);
  details.open = false;
  box.replaceChildren();
  if (!timeline) return;
  details.ontoggle = () => {
    if (details.open && !box.firstChild) box.append(tableOfBuyers(timeline));
  };
}
