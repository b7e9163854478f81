import { $ } from "../../../../demo/static/assets/dom.js";
import { readStored, store } from "./storage.js";

// Elements that use the keys themselves.
const OWN_KEYS = "select, textarea, input:not([type=checkbox])";

/**
 * Run the action of a pressed key, unless the reader types, or has switched off the letters.
 * @param {Record<string, () => void>} actions By the key: a letter in lower case, or its name.
 */
export function listenToKeys(actions) {
  const box = $("letters");
  box.checked = readStored("letters") !== "off";
  box.addEventListener("change", () => store("letters", box.checked ? "on" : "off"));
  document.addEventListener("keydown", (event) => {
    const isLetter = event.key.length === 1;
    const action = actions[isLetter ? event.key.toLowerCase() : event.key];
    if (!action || (isLetter && !box.checked)) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/** @type {Element} */ (event.target).closest(OWN_KEYS)) return;
    event.preventDefault();
    action();
  });
}
