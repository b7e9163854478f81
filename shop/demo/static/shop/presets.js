// The address fills the forms in: /?lock=redis&buyers=200&stock=100&hold_ms=5#steps

import { $ } from "../assets/dom.js";

const FIELDS = { buyers: "buyers", stock: "stock-wanted", hold_ms: "hold_ms" };

export function fill(address) {
  const given = new URLSearchParams(address);
  for (const select of [$("lock"), $("step-lock")]) {
    const wanted = [...select.options].find((one) => one.value === given.get("lock"));
    if (wanted && !wanted.disabled) select.value = wanted.value;
  }
  for (const [name, id] of Object.entries(FIELDS)) {
    if (/^\d{1,5}$/.test(given.get(name) || "")) $(id).value = given.get(name);
  }
}
