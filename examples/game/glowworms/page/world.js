// What this page knows of the arena, a little in the past: steps come 30 times a second and not quite evenly, so they are
// kept for DELAY steps and drawn in between. Knows nothing of canvases.

const DELAY = 2.5; // steps; 83 ms
const DRIFT = 0.02; // ms a step: how fast the clock estimate forgets a lucky early step
const SPACING = 12; // between two points of a trail, as on the server
const LEAP = 80; // no worm is that fast: it has begun anew elsewhere
const MOST_WAITING = 45; // steps; more only pile up in a hidden tab

export class World {
  constructor() {
    this.worms = new Map(); // number -> { x, y, heading, length, safe, boosting, trail, next }
    this.dots = new Map(); // id -> { x, y, born }
    this.roster = new Map(); // number -> { n, name, colour, score, here, robot }
    this.effects = []; // what happened since the view last looked
    this.me = null;
    this.step = 0;
    this.waiting = [];
    this.offset = null;
  }

  welcome(message, now) {
    const { you, room, container, rate, width, height } = message;
    Object.assign(this, { room, container, width, height, me: you, step: message.k, perStep: 1000 / rate });
    this.waiting = [];
    this.offset = now - message.k * this.perStep;
    this.meet(message.p);
    this.worms.clear();
    for (const entry of message.w) this.place(entry, message.trails[entry[0]] ?? []);
    this.dots = new Map(message.dots.map(([id, x, y]) => [id, { x, y, born: -Infinity }]));
  }

  heard(message, now) {
    if (message.t === "welcome") this.welcome(message, now);
    if (this.me === null) return; // news may come before the welcome
    if (message.p) this.meet(message.p);
    if (message.t !== "step") return;
    const early = now - message.k * this.perStep;
    this.offset = Math.min(this.offset + DRIFT * this.perStep, early);
    this.waiting.push(message);
    while (this.waiting.length > MOST_WAITING) this.apply(this.waiting.shift(), now);
  }

  meet(entries) {
    this.roster = new Map(entries.map((entry) => [entry.n, entry]));
  }

  /** Bring everything to where it is drawn at this moment. */
  advance(now) {
    if (this.me === null) return;
    const at = (now - this.offset) / this.perStep - DELAY;
    while (this.waiting.length && this.waiting[0].k <= at) this.apply(this.waiting.shift(), now);
    const ahead = this.waiting[0];
    const part = ahead ? Math.min(Math.max((at - this.step) / (ahead.k - this.step), 0), 1) : 0;
    const next = new Map(ahead ? ahead.w.map((entry) => [entry[0], entry]) : []);
    for (const [number, worm] of this.worms) {
      const entry = next.get(number) ?? [number, worm.x, worm.y, worm.heading];
      const turn = Math.atan2(Math.sin(entry[3] - worm.heading), Math.cos(entry[3] - worm.heading));
      worm.drawn = {
        x: worm.x + (entry[1] - worm.x) * part,
        y: worm.y + (entry[2] - worm.y) * part,
        heading: worm.heading + turn * part,
      };
    }
  }

  apply(message, now) {
    this.step = message.k;
    for (const event of message.e ?? []) this.happened(event, now);
    const seen = new Set();
    for (const entry of message.w) {
      seen.add(entry[0]);
      this.place(entry, this.worms.get(entry[0])?.trail ?? []);
    }
    for (const number of this.worms.keys()) if (!seen.has(number)) this.worms.delete(number);
  }

  place([number, x, y, heading, length, flags], trail) {
    const last = trail.at(-1);
    const moved = last ? Math.hypot(x - last[0], y - last[1]) : SPACING;
    if (moved > LEAP) trail.length = 0;
    if (moved >= SPACING) trail.push([x, y]);
    if (trail.length > length) trail.splice(0, trail.length - length);
    this.worms.set(number, {
      number, x, y, heading, length, trail,
      safe: Boolean(flags & 1),
      boosting: Boolean(flags & 2),
      drawn: { x, y, heading },
    });
  }

  happened([what, ...about], now) {
    if (what === "dropped") {
      const [id, x, y] = about;
      this.dots.set(id, { x, y, born: now });
    } else if (what === "ate") {
      const [worm, id] = about;
      const dot = this.dots.get(id);
      this.dots.delete(id);
      if (dot) this.effects.push({ what, worm, x: dot.x, y: dot.y });
    } else if (what === "crashed") {
      const [worm, into, x, y] = about;
      this.effects.push({ what, worm, into, x, y });
      this.worms.delete(worm);
    } else if (what === "spawned") {
      this.worms.delete(about[0]); // its next life has a new trail
    }
  }

  /** Everybody on the score board, with where they are if they are in the arena. */
  players() {
    return [...this.roster.values()].map((entry) => {
      const worm = this.worms.get(entry.n);
      return { ...entry, me: entry.n === this.me, alive: Boolean(worm), x: worm?.x, y: worm?.y };
    });
  }
}
