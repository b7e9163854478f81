// What the reader chose and reached. A browser may refuse it to a page that was opened from a folder:
// then it lasts until the page is left.

/**
 * @param {string} name
 * @returns {string | null}
 */
export function readStored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/**
 * @param {string} name
 * @param {string} value
 */
export function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // The browser refuses it.
  }
}
