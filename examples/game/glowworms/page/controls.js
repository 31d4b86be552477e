// Keys, mouse and touch become steering. Says something only when it has changed.

const LEFT = ["ArrowLeft", "KeyA"], RIGHT = ["ArrowRight", "KeyD"], HURRY = ["Space", "ArrowUp", "KeyW"];

export class Controls {
  constructor(canvas, toward, send) {
    Object.assign(this, { toward, send, down: new Set(), pointers: new Map(), told: "" });
    addEventListener("keydown", (event) => this.key(event, true));
    addEventListener("keyup", (event) => this.key(event, false));
    addEventListener("blur", () => this.release());
    for (const what of ["pointerdown", "pointermove", "pointerup", "pointercancel"])
      canvas.addEventListener(what, (event) => this.pointer(event, canvas));
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  }

  key(event, pressed) {
    if (event.target instanceof HTMLInputElement || event.metaKey || event.ctrlKey) return;
    if (![...LEFT, ...RIGHT, ...HURRY].includes(event.code)) return;
    event.preventDefault();
    if (pressed) this.down.add(event.code);
    else this.down.delete(event.code);
    this.tell();
  }

  pointer(event, canvas) {
    if (event.type === "pointerdown") canvas.setPointerCapture(event.pointerId);
    else if (!this.pointers.has(event.pointerId)) return;
    if (event.type === "pointerup" || event.type === "pointercancel") this.pointers.delete(event.pointerId);
    else this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY, button: event.buttons });
    this.tell();
  }

  release() {
    this.down.clear();
    this.pointers.clear();
    this.tell();
  }

  /** Also called at each frame: a held pointer means another direction as the worm moves. */
  tell(anew = false) {
    const held = (codes) => codes.some((code) => this.down.has(code));
    const [first] = this.pointers.values();
    const aim = first ? this.toward(first.x, first.y) : null;
    const steering = {
      t: "steer",
      turn: (held(RIGHT) ? 1 : 0) - (held(LEFT) ? 1 : 0),
      aim: aim === null ? null : Math.round(aim * 20) / 20,
      boost: held(HURRY) || this.pointers.size > 1 || Boolean(first && first.button & 2),
    };
    const told = JSON.stringify(steering);
    if (told === this.told && !anew) return;
    this.told = told;
    this.send(steering);
  }
}
