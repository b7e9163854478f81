// The code of the chosen lock: the decisive lines, marked, and the rest of it on demand.

import { $, element } from "../assets/dom.js";
import { ask } from "./ask.js";

export async function showCode(lock) {
  $("code-name").textContent = lock;
  const { status, body } = await ask(`/strategies/${lock}/code`);
  if (status !== 200 || $("code-name").textContent !== lock) return;
  const marked = body.blocks.filter((block) => block.marked.length);
  const shown = marked.length ? marked : body.blocks; // your own file has no marks
  $("code-marked").replaceChildren(...shown.map(blockOf));
  $("code-rest").replaceChildren(...body.blocks.filter((block) => !shown.includes(block)).map(blockOf));
}

function blockOf({ file, lines, marked }) {
  const shown = element("pre", { tabindex: "0", role: "region", "aria-label": file });
  let inDocstring = false;
  lines.forEach((text, number) => {
    const quotes = text.split('"""').length - 1;
    const quiet = inDocstring || text.trim().startsWith('"""');
    if (quiet && quotes === 1) inDocstring = !inDocstring;
    const look = quiet ? element("span", { class: "docstring" }, text) : text;
    shown.append(marked.includes(number) ? element("mark", {}, text) : look, "\n");
  });
  return element("div", { class: "block" }, element("p", { class: "file" }, file), shown);
}
