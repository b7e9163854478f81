// The code that decides, next to the run that is open.

function showSource() {
  showCode($("source-code"), data.sources[data.runs[opened].lock]);
  $("source").hidden = false;
}

new MutationObserver(showSource).observe($("detail-title"), { childList: true });
if (opened >= 0) showSource();
