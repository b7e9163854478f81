// The board of a page: what two buyers did, one move at a time, as it was recorded. The texts of each
// turn come from narration.py.

import { element } from "../../../../demo/static/assets/dom.js";

/** @typedef {[stock: number, orders: number, believers: string]} State */

/**
 * A turn: what it did, and what is possible after it. narration.py explains the fields.
 * @typedef {object} Turn
 * @property {Record<string, string>} labels
 * @property {Record<string, string>} standing
 * @property {Record<string, string>} phases
 * @property {string[]} can
 * @property {[buyer: string, kind: string, text: string][]} lines
 * @property {string} no_event_reason The text to show if `can` has no event.
 * @property {State} [state]
 * @property {string} [lock] Whose lock it is on the server; missing while it is free.
 * @property {boolean} [isPlayed] Whether a server has played the schedule that ends with this turn.
 */

/** @typedef {Record<string, Turn>} Turns The turns of a world, by the letters of the turns so far. */

export const BUYERS = ["A", "B"];
export const FREE = "free";

export class Board {
  constructor() {
    /** @type {Turns} */
    this.turns = {};
    /** The letters of the turns so far, such as `AAPB`; worlds.py explains them. */
    this.key = "";
  }

  /**
   * Return a turn that was recorded.
   * @param {string} key The letters of the turns so far, with its own; empty: the beginning.
   * @returns {Turn}
   */
  turnAt(key) {
    return this.turns[key];
  }

  /**
   * Return the last turn, or the beginning if nobody has moved.
   * @returns {Turn}
   */
  get turn() {
    return this.turnAt(this.key);
  }

  /**
   * Return the key of each turn so far: for `AAP` they are `A`, `AA` and `AAP`.
   * @returns {string[]}
   */
  get keys() {
    return [...this.key].map((_, n) => this.key.slice(0, n + 1));
  }

  /**
   * Return the key before the last turn.
   * @returns {string}
   */
  get previousKey() {
    return this.key.slice(0, -1);
  }

  /**
   * Return whether a buyer, or an event of the world, is possible next.
   * @param {string} name
   * @returns {boolean}
   */
  canMove(name) {
    return this.turn.can.includes(name);
  }

  /**
   * Follow the turns of a schedule. A turn that is not possible is left out.
   * @param {string} schedule
   */
  follow(schedule) {
    this.key = "";
    for (const turn of schedule) {
      if (this.canMove(turn)) this.key += turn;
    }
  }

  /**
   * Return where both buyers are, as one text.
   * @returns {string}
   */
  get standing() {
    return BUYERS.map((buyer) => this.turn.standing[buyer]).join(", ");
  }

  /**
   * Return the last turn in one sentence, for a reader who hears the page.
   * @returns {string}
   */
  get sentence() {
    if (!this.key) return "Nobody has moved.";
    const texts = this.turn.lines.map(([buyer, kind, text]) => `${buyer} ${kind === "sql" ? "sends " : ""}${text}`.trim());
    return `${texts.join(", ")}.`;
  }

  /** Show the track of each buyer: the button of its next move, and its lines. */
  showTracks() {
    for (const track of document.querySelectorAll(".track")) {
      const buyer = /** @type {HTMLElement} */ (track).dataset.buyer ?? "";
      const button = /** @type {HTMLElement} */ (track.querySelector(".move"));
      button.textContent = this.turn.labels[buyer];
      button.setAttribute("aria-disabled", String(!this.canMove(buyer)));
      track.querySelector(".did")?.replaceChildren(...this.makeLineItems(buyer));
    }
  }

  /**
   * Return the lines in the column of a buyer; those of the last turn are marked.
   * @param {string} buyer
   * @returns {HTMLElement[]}
   */
  makeLineItems(buyer) {
    return this.keys.flatMap((key) => {
      const lines = this.turnAt(key).lines.filter(([name]) => !name || name === buyer);
      const look = key === this.key ? "new" : "";
      return lines.map(([, kind, text]) => {
        const content = kind === "sql" ? element("code", {}, text) : text;
        return element("li", { class: `${kind} ${look}`.trim() }, content);
      });
    });
  }
}
