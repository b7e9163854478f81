// How the page asks the shop, and how it says what came of it.

import { $ } from "../assets/dom.js";
import { released } from "./press.js";

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

// Status and body of an answer, as soon as no button is pressed; status 0 where the shop does not
// answer.
export async function ask(path, form) {
  const answer = await fetched(path, form);
  await released();
  return answer;
}

async function fetched(path, form) {
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

// The messages of a refused form, each next to its field; the first wrong field gets the focus.
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

// "48 s left", in whole seconds; empty where there is no limit.
export const left = (seconds) =>
  seconds === null || seconds === undefined ? "" : `${Math.ceil(seconds)} s left`;
