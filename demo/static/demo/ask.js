// Requests to the shop, and messages on the page.

/**
 * Show a message, unless it is shown already: a screen reader reads a live region on every change.
 * @param {Element} place The element that shows it.
 * @param {...(Node | string)} children
 */
export function showMessage(place, ...children) {
  const text = children.map((child) => (typeof child === "string" ? child : child.textContent)).join("");
  if (place.textContent !== text) place.replaceChildren(...children);
}

/**
 * Enable or disable a button. Unlike `disabled`, ariaDisabled keeps the keyboard's focus on it.
 * @param {HTMLButtonElement} button
 * @param {boolean} enabled
 */
export function setEnabled(button, enabled) {
  button.ariaDisabled = String(!enabled);
}

/**
 * Return whether a button may be pressed.
 * @param {HTMLButtonElement} button
 * @returns {boolean}
 */
export function isEnabled(button) {
  return button.ariaDisabled !== "true";
}

/**
 * Send a request, and return status and body of the answer. The status is 0 if there is no answer,
 * or an answer without JSON, as from a proxy.
 * @param {string} path
 * @param {FormData | Record<string, string>} [form] With it the request is a POST.
 * @returns {Promise<{ status: number, body: any }>}
 */
export async function ask(path, form) {
  /** @type {RequestInit & { headers: Record<string, string> }} */
  const options = { headers: { Accept: "application/json" } };
  if (form) {
    const token = /** @type {HTMLInputElement} */ (document.querySelector("[name=csrfmiddlewaretoken]"));
    options.method = "POST";
    options.body = new URLSearchParams(/** @type {Record<string, string>} */ (form));
    options.headers["X-CSRFToken"] = token.value;
  }
  try {
    const answer = await fetch(path, options);
    return { status: answer.status, body: await answer.json() };
  } catch {
    return { status: 0, body: { outcome: "error", error: "the shop does not answer" } };
  }
}

/**
 * Return the reason of a refusal and the values that are allowed, as a text.
 * @param {{ error: string, allowed?: string[] }} body
 * @returns {string}
 */
export function describeRefusal({ error, allowed = [] }) {
  return [error, ...allowed].join(", ");
}
