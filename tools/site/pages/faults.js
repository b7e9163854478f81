// The code that decides, beside the run that is open.

function showSource() {
  const { file, code } = data.sources[data.runs[opened].lock];
  $("source-file").textContent = file;
  $("source-code").textContent = code;
  $("source").hidden = false;
}

new MutationObserver(showSource).observe($("detail-title"), { childList: true });
if (opened >= 0) showSource();
