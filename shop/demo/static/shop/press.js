// Nothing on the page moves while a button is pressed.
//
// A press that ends outside its button is no click. So whatever came from the shop, and makes a card
// longer, moved the button away from under the pointer, and the press was lost without a word.

const CLICK = 100; // milliseconds within which the click follows the release, of a finger too

let pressed = Promise.resolve();
let release = () => {};

function press({ button, target }) {
  if (button !== 0 || !target.closest?.("button")) return; // no release follows on a list or a scroll bar
  release();
  pressed = new Promise((done) => {
    release = done;
  });
}

addEventListener("pointerdown", press, true);
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(release, CLICK), true);

// Settled as soon as no button is pressed.
export async function released() {
  let seen;
  do {
    seen = pressed;
    await seen;
  } while (seen !== pressed);
}
