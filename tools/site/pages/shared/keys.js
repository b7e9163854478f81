import { $ } from "../../../../demo/static/assets/dom.js";
import { readStored, store } from "./storage.js";

// Elements in which the reader types, or which use the keys themselves.
const OWN_KEYS = "select, textarea, input:not([type=checkbox])";

/**
 * Run the action of each pressed key. With the checkbox `letters` the reader can switch off the keys
 * that are one character, as WCAG 2.1.4 asks.
 * @param {Record<string, () => void>} actions By the key: a letter in lower case, or its name.
 */
export function listenToKeys(actions) {
  const lettersBox = $("letters");
  lettersBox.checked = readStored("letters") !== "off";
  lettersBox.addEventListener("change", () => store("letters", lettersBox.checked ? "on" : "off"));
  document.addEventListener("keydown", (event) => {
    const isLetter = event.key.length === 1;
    const action = actions[isLetter ? event.key.toLowerCase() : event.key];
    if (!action || (isLetter && !lettersBox.checked)) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/** @type {Element} */ (event.target).closest(OWN_KEYS)) return;
    event.preventDefault();
    action();
  });
}
