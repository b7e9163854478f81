/**
 * Unpack what pages.pack_json has packed.
 * @param {string} packed
 * @returns {Promise<any>}
 */
export async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}
