// Requests to the shop, and messages on the page.

// Show a message, unless it is shown already: a screen reader reads a live region on every change.
export function say(where, ...children) {
  const text = children.map((child) => child.textContent ?? child).join("");
  if (where.textContent !== text) where.replaceChildren(...children);
}

// Enable or disable a button. Unlike `disabled`, ariaDisabled keeps the keyboard's focus on it.
export function allow(button, allowed) {
  button.ariaDisabled = !allowed;
}

export const allowed = (button) => button.ariaDisabled !== "true";

// Return status and body of an answer; status 0 if there is none, or if it is a proxy's page.
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

// The reason of a refusal, and the values that are allowed.
export const refusal = ({ error, allowed = [] }) => [error, ...allowed].join(", ");
