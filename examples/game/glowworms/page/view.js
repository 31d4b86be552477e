// Draws the world on the canvas: trails that glow, dots that breathe, sparks. Knows nothing of the network.

const HUES = [160, 330, 45, 205, 275, 15, 95, 185, 300, 60, 235, 125];
const HEAD = 10, BODY = 8;
const PANEL = 222, NARROW = 760; // CSS pixels: the score board beside the arena, unless the window is narrow
const MOST_SPARKS = 500;

const hsl = (colour, light = 60, alpha = 1) => `hsla(${HUES[(colour ?? 0) % HUES.length]}, 92%, ${light}%, ${alpha})`;
export const paint = (colour) => hsl(colour);

export class View {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d", { alpha: false });
    this.sparks = [];
    this.shake = 0;
    this.glows = new Map();
    addEventListener("resize", () => this.fit());
    this.fit();
  }

  fit() {
    const ratio = Math.min(devicePixelRatio || 1, 2);
    this.canvas.width = Math.round(innerWidth * ratio);
    this.canvas.height = Math.round(innerHeight * ratio);
    this.backdrop = null;
  }

  /** Where a point of the window is in the arena. */
  toArena(x, y, world) {
    const { scale, left, top } = this.frame(world);
    const ratio = this.canvas.width / innerWidth;
    return { x: (x * ratio - left) / scale, y: (y * ratio - top) / scale };
  }

  frame(world) {
    const { width, height } = this.canvas;
    const ratio = width / innerWidth;
    const [above, below, side] = [46 * ratio, 44 * ratio, 16 * ratio];
    const right = innerWidth > NARROW ? PANEL * ratio : side;
    const scale = Math.min((width - side - right) / world.width, (height - above - below) / world.height);
    const left = side + (width - side - right - world.width * scale) / 2;
    return { scale, left, top: above + (height - above - below - world.height * scale) / 2 };
  }

  draw(world, now) {
    const pen = this.pen;
    if (world.me === null) {
      pen.fillStyle = "#05070d";
      pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
      return;
    }
    const { scale, left, top } = this.frame(world);
    this.backdrop ??= this.paintBackdrop(world, scale, left, top);
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.drawImage(this.backdrop, 0, 0);
    const jolt = this.shake > 0.2 ? this.shake * scale : 0;
    this.shake *= 0.88;
    pen.setTransform(scale, 0, 0, scale, left + jolt * Math.sin(now / 17), top + jolt * Math.cos(now / 13));
    this.takeEffects(world, now);
    pen.globalCompositeOperation = "lighter";
    this.drawDots(world, now);
    const worms = [...world.worms.values()].sort((a, b) => (a.number === world.me) - (b.number === world.me));
    for (const worm of worms) this.drawTrail(worm, this.colourOf(world, worm.number), now);
    this.drawSparks(now);
    pen.globalCompositeOperation = "source-over";
    for (const worm of worms) this.drawHead(world, worm, now);
  }

  colourOf(world, number) {
    return world.roster.get(number)?.colour ?? 0;
  }

  paintBackdrop(world, scale, left, top) {
    const sheet = new OffscreenCanvas(this.canvas.width, this.canvas.height);
    const pen = sheet.getContext("2d");
    pen.fillStyle = "#05070d";
    pen.fillRect(0, 0, sheet.width, sheet.height);
    pen.setTransform(scale, 0, 0, scale, left, top);
    const { width, height } = world;
    const light = pen.createRadialGradient(width / 2, height / 2, 0, width / 2, height / 2, width * 0.62);
    light.addColorStop(0, "#152343");
    light.addColorStop(1, "#090e1d");
    pen.fillStyle = light;
    pen.beginPath();
    pen.roundRect(0, 0, width, height, 22);
    pen.fill();
    pen.save();
    pen.clip();
    pen.fillStyle = "#8fb4ff24";
    for (let row = 0, y = 25; y < height; y += 43.3, row += 1)
      for (let x = row % 2 ? 50 : 25; x < width; x += 50) {
        pen.beginPath();
        pen.arc(x, y, 1.7, 0, 7);
        pen.fill();
      }
    pen.restore();
    for (const [wide, colour] of [[10, "#37e5b00c"], [5, "#37e5b01c"], [1.6, "#37e5b090"]]) {
      pen.lineWidth = wide;
      pen.strokeStyle = colour;
      pen.beginPath();
      pen.roundRect(0, 0, width, height, 22);
      pen.stroke();
    }
    return sheet;
  }

  glow(colour) {
    if (!this.glows.has(colour)) {
      const sheet = new OffscreenCanvas(64, 64);
      const pen = sheet.getContext("2d");
      const light = pen.createRadialGradient(32, 32, 0, 32, 32, 32);
      light.addColorStop(0, hsl(colour, 85, 1));
      light.addColorStop(0.16, hsl(colour, 65, 0.85));
      light.addColorStop(0.4, hsl(colour, 55, 0.22));
      light.addColorStop(1, hsl(colour, 50, 0));
      pen.fillStyle = light;
      pen.fillRect(0, 0, 64, 64);
      this.glows.set(colour, sheet);
    }
    return this.glows.get(colour);
  }

  drawDots(world, now) {
    for (const [id, dot] of world.dots) {
      const young = Math.min((now - dot.born) / 260, 1);
      const size = (40 + 7 * Math.sin(now / 330 + id)) * young;
      this.pen.drawImage(this.glow(id % HUES.length), dot.x - size / 2, dot.y - size / 2, size, size);
    }
  }

  drawTrail(worm, colour, now) {
    const pen = this.pen;
    const points = [...worm.trail, [worm.drawn.x, worm.drawn.y]];
    if (points.length < 3) return;
    const faint = worm.safe ? 0.35 + 0.25 * Math.sin(now / 70) : 1;
    pen.lineCap = "butt"; // round ends would overlap and, drawn additively, show as beads
    pen.lineJoin = "round";
    // In pieces from tail to head, so that it tapers and brightens.
    const pieces = Math.min(8, Math.max(2, points.length >> 2));
    for (let piece = 0; piece < pieces; piece += 1) {
      const from = Math.floor((piece * (points.length - 1)) / pieces);
      const to = Math.floor(((piece + 1) * (points.length - 1)) / pieces);
      const near = (piece + 1) / pieces;
      const line = smooth(points, from, to);
      const wide = BODY * (0.45 + 0.55 * near);
      pen.globalAlpha = faint * (0.25 + 0.75 * near);
      pen.strokeStyle = hsl(colour, 50, worm.boosting ? 0.24 : 0.13);
      pen.lineWidth = wide * 4;
      pen.stroke(line);
      pen.strokeStyle = hsl(colour, 52, 0.5);
      pen.lineWidth = wide * 1.7;
      pen.stroke(line);
      pen.strokeStyle = hsl(colour, 78, 0.8);
      pen.lineWidth = wide * 0.6;
      pen.stroke(line);
    }
    pen.globalAlpha = 1;
    if (worm.boosting && points.length) {
      const [x, y] = points[0];
      this.spark(x, y, colour, 1.2, now);
    }
  }

  drawHead(world, worm, now) {
    const pen = this.pen;
    const colour = this.colourOf(world, worm.number);
    const { x, y, heading } = worm.drawn;
    const mine = worm.number === world.me;
    pen.globalCompositeOperation = "lighter";
    pen.drawImage(this.glow(colour), x - 45, y - 45, 90, 90);
    pen.globalCompositeOperation = "source-over";
    pen.fillStyle = hsl(colour, 66);
    pen.beginPath();
    pen.arc(x, y, HEAD, 0, 7);
    pen.fill();
    for (const side of [-0.75, 0.75]) {
      const [ex, ey] = [x + Math.cos(heading + side) * 6, y + Math.sin(heading + side) * 6];
      pen.fillStyle = "#fff";
      pen.beginPath();
      pen.arc(ex, ey, 3.2, 0, 7);
      pen.fill();
      pen.fillStyle = "#0a0f1c";
      pen.beginPath();
      pen.arc(ex + Math.cos(heading) * 1.2, ey + Math.sin(heading) * 1.2, 1.7, 0, 7);
      pen.fill();
    }
    if (mine) {
      pen.strokeStyle = hsl(colour, 80, 0.5 + 0.3 * Math.sin(now / 240));
      pen.lineWidth = 1.6;
      pen.setLineDash([7, 6]);
      pen.lineDashOffset = now / 45;
      pen.beginPath();
      pen.arc(x, y, 20, 0, 7);
      pen.stroke();
      pen.setLineDash([]);
    }
    const name = world.roster.get(worm.number)?.name ?? "";
    const tall = Math.max(17, (12.5 * (this.canvas.width / innerWidth)) / this.frame(world).scale);
    pen.font = `${mine ? 700 : 500} ${tall}px system-ui, "DejaVu Sans", sans-serif`;
    pen.textAlign = "center";
    const above = y < 60 ? 28 + tall : -26;
    pen.lineWidth = 4;
    pen.strokeStyle = "#05070dcc";
    pen.strokeText(name, x, y + above);
    pen.fillStyle = hsl(colour, 84, mine ? 1 : 0.8);
    pen.fillText(name, x, y + above);
  }

  takeEffects(world, now) {
    for (const effect of world.effects.splice(0)) {
      const colour = this.colourOf(world, effect.worm);
      const crash = effect.what === "crashed";
      for (let i = 0; i < (crash ? 60 : 7); i += 1) this.spark(effect.x, effect.y, colour, crash ? 6 : 2.4, now);
      if (crash) {
        this.sparks.push({ ring: true, x: effect.x, y: effect.y, colour, born: now, life: 600 });
        if (effect.worm === world.me) this.shake = 14;
      }
    }
  }

  spark(x, y, colour, speed, now) {
    const angle = Math.random() * 7;
    const pace = speed * (0.3 + Math.random()) * 0.06;
    const life = 350 + Math.random() * 450;
    this.sparks.push({ x, y, vx: Math.cos(angle) * pace, vy: Math.sin(angle) * pace, colour, born: now, life });
    if (this.sparks.length > MOST_SPARKS) this.sparks.shift();
  }

  drawSparks(now) {
    const pen = this.pen;
    this.sparks = this.sparks.filter((spark) => now - spark.born < spark.life);
    for (const spark of this.sparks) {
      const age = now - spark.born;
      const left = 1 - age / spark.life;
      if (spark.ring) {
        pen.strokeStyle = hsl(spark.colour, 70, left);
        pen.lineWidth = 6 * left;
        pen.beginPath();
        pen.arc(spark.x, spark.y, 10 + 120 * (1 - left * left), 0, 7);
        pen.stroke();
        continue;
      }
      const slowed = age * (1 - 0.4 * (age / spark.life));
      const size = 20 * left;
      pen.drawImage(this.glow(spark.colour), spark.x + spark.vx * slowed - size / 2, spark.y + spark.vy * slowed - size / 2, size, size);
    }
  }
}

/** A curve through the middles between points, so that a trail has no corners. */
function smooth(points, from, to) {
  const line = new Path2D();
  const middle = (a, b) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
  line.moveTo(...(from === 0 ? points[0] : middle(points[from - 1], points[from])));
  for (let i = from; i < to; i += 1) line.quadraticCurveTo(...points[i], ...middle(points[i], points[i + 1]));
  if (to === points.length - 1) line.lineTo(...points[to]);
  return line;
}
