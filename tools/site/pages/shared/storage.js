// The reader's settings and progress. A browser may refuse the storage to a page that was opened from
// a folder: then nothing is remembered.

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
