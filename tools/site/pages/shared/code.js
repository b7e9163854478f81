// The code, with the first line of each text that decides marked.
function showCode(place, { file, code, marks }) {
  const lines = code.split("\n");
  const decides = new Set(marks.map((mark) => lines.findIndex((line) => line.includes(mark))));
  place.replaceChildren(...lines.flatMap((line, n) => [decides.has(n) ? element("mark", {}, line) : line, "\n"]));
  $(place.dataset.file).textContent = file;
}
