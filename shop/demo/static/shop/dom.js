// Small things that every part of the page uses: elements, icons, verdicts, requests.

export const $ = (id) => document.getElementById(id);

const SVG = "http://www.w3.org/2000/svg";
const PATHS = {
  cross: "M5 5l14 14M19 5L5 19",
  tick: "M4 13l5 5L20 6",
  down: "M12 4v15m0 0l-6-6m6 6l6-6",
  dots: "M5 12h.01M12 12h.01M19 12h.01",
  question: "M8 9a4 4 0 1 1 5.5 3.7c-1 .5-1.5 1-1.5 2.3m0 4h.01",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
};

// verdict -> the word, its icon and its look: never colour alone
const VERDICTS = {
  oversold: ["OVERSOLD", "cross", "bad"],
  exact: ["EXACT", "tick", "good"],
  undersold: ["UNDERSOLD", "down", "odd"],
  deadlock: ["DEADLOCK", "lock", "odd"],
  blocked: ["BLOCKED", "lock", "odd"],
  open: ["ON SALE", "dots", "calm"],
  running: ["RUSH", "dots", "calm"],
  sold: ["SOLD", "tick", "calm"],
  sold_out: ["SOLD OUT", "cross", "calm"],
};

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

export function badge(verdict) {
  const [word, sign, look] = VERDICTS[verdict] || [verdict.toUpperCase(), "question", "odd"];
  return element("span", { class: `badge ${look}` }, icon(sign), word);
}

// Changed only if it says something else: a live region is read aloud on every change.
export function say(where, key, ...children) {
  if (where.dataset.said === key) return;
  where.dataset.said = key;
  where.replaceChildren(...children);
}

// A button that cannot be used now keeps the keyboard's focus; `disabled` would drop it.
export function allow(button, allowed) {
  button.setAttribute("aria-disabled", allowed ? "false" : "true");
}

export const allowed = (button) =>
  !button.disabled && button.getAttribute("aria-disabled") !== "true";

// Status and body of an answer; status 0 where the shop does not answer.
export async function ask(path, form) {
  const options = { headers: { Accept: "application/json" } };
  if (form) {
    options.method = "POST";
    options.body = new URLSearchParams(form);
    options.headers["X-CSRFToken"] = document.querySelector("[name=csrfmiddlewaretoken]").value;
  }
  try {
    const answer = await fetch(path, options);
    const text = await answer.text();
    try {
      return { status: answer.status, body: JSON.parse(text) };
    } catch {
      return { status: answer.status, body: { error: "the shop refused; reload the page" } };
    }
  } catch {
    return { status: 0, body: { error: "the shop does not answer" } };
  }
}

// The messages of a refused form, each beside its field; the first wrong field gets the focus.
export function besideTheFields(form, fields = {}) {
  let first = null;
  for (const field of form.querySelectorAll("input, select")) {
    const place = $(`${field.id === "stock-wanted" ? "stock" : field.id}-error`);
    if (!place) continue;
    const message = fields[field.name] || "";
    place.textContent = message;
    if (message) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
    if (message && !first) first = field;
  }
  first?.focus();
}

export const css = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const units = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
