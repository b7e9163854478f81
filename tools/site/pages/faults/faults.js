// The opened cell comes first, with the code that decides next to its facts.

function showSource() {
  showCode($("source-code"), data.sources[data.runs[opened].lock]);
  $("source").hidden = false;
  scrollToMark($("source-code"));
}

const LINES_ABOVE_MARK = 2;

// Show the line that decides near the upper edge of its box.
function scrollToMark(code) {
  const box = code.parentElement;
  const mark = code.querySelector("mark");
  box.scrollTop = mark ? mark.offsetTop - LINES_ABOVE_MARK * mark.offsetHeight : 0;
}

$("verdicts").before($("detail"));
$("facts").after($("source"));
new MutationObserver(showSource).observe($("detail-title"), { childList: true });
if (opened >= 0) showSource();
if (numberOf(nameInAddress()) >= 0) $("detail").scrollIntoView({ block: "start" }); // it has moved
