// How the page asks the shop, and how it says what came of it.

// Changed only if it says something else: a live region is read aloud on every change.
export function say(where, ...children) {
  const text = children.map((one) => one.textContent ?? one).join("");
  if (where.textContent !== text) where.replaceChildren(...children);
}

// A button that cannot be used now keeps the keyboard's focus; `disabled` would drop it.
export function allow(button, allowed) {
  button.ariaDisabled = !allowed;
}

export const allowed = (button) => button.ariaDisabled !== "true";

// Status and body of an answer; status 0 where the shop does not answer, or a proxy does in its place.
export async function ask(path, form) {
  const options = { headers: { Accept: "application/json" } };
  if (form) {
    options.method = "POST";
    options.body = new URLSearchParams(form);
    options.headers["X-CSRFToken"] = document.querySelector("[name=csrfmiddlewaretoken]").value;
  }
  try {
    const answer = await fetch(path, options);
    return { status: answer.status, body: await answer.json() };
  } catch {
    return { status: 0, body: { outcome: "error", error: "the shop does not answer" } };
  }
}

// Why the shop refused, and what it allows.
export const refusal = ({ error, allowed = [] }) => [error, ...allowed].join(", ");
