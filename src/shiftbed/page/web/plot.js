// Drawing on a canvas: axes, points, bars, bands, lines; hover, keyboard and box zoom. Views say what
// to draw in positions of the axes; nothing here knows what the numbers mean.

/** Colours of the page as it is now: light, dark, or on paper. */
function ink(name) {
  if (!inks.has(name)) inks.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return inks.get(name);
}
const inks = new Map(); // asked for once, until they change

const FONT = "12px system-ui, sans-serif";
const MANY = 3000; // points from which on a marker is a dot
/** Size of a point among so many. */
const dotSize = (count, usual = 3.5) => (count > MANY ? 2.2 : usual);
const drawn = new Set(); // plots on the page, drawn again when its size or colours change
const later = []; // drawings that nobody sees yet, done one at a time when the browser is idle

/** Draw now if the element is on the screen, else when there is time. */
function drawSoon(node, draw) {
  const box = node.getBoundingClientRect();
  if (box.top < window.innerHeight && box.bottom > 0) return draw();
  if (!later.length) requestIdleCallback(drawNext, { timeout: 300 });
  later.push(draw);
}

function drawNext() {
  later.shift()?.();
  if (later.length) requestIdleCallback(drawNext, { timeout: 300 });
}

/** A canvas that is drawn again when it must be; `paint(context, width, height)` draws it. */
class Canvas {
  constructor(host, label, height, paint) {
    this.canvas = make("canvas", { role: "img", "aria-label": label, tabindex: "0" });
    this.canvas.plot = this;
    this.tip = make("div", { class: "tip", role: "status", hidden: true });
    this.frame = make("div", { class: "canvas" }, this.canvas, this.tip);
    this.frame.style.height = `${height}px`;
    this.paint = paint;
    host.append(this.frame);
    this.size = [];
    this.observer = new ResizeObserver(() => {
      if (!this.waiting && (this.size[0] !== this.frame.clientWidth || this.size[1] !== this.frame.clientHeight)) this.draw();
    });
    this.observer.observe(this.frame);
    drawn.add(this);
  }

  draw() {
    this.waiting = false;
    if (!this.frame.isConnected) {
      drawn.delete(this);
      this.observer.disconnect();
      return;
    }
    const width = this.frame.clientWidth;
    const height = this.frame.clientHeight;
    if (!width || !height) return;
    this.size = [width, height];
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const c = this.canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.font = FONT;
    c.lineJoin = "round";
    this.taken = []; // boxes of text that names keep clear of
    this.paint(c, width, height);
  }

  /** Show lines of text beside a place of the canvas; the first is bold. */
  say(lines, x, y) {
    if (!lines) {
      this.tip.hidden = true;
      return;
    }
    fill(this.tip, lines.map((line, i) => make(i ? "div" : "strong", {}, line)));
    this.tip.hidden = false;
    const width = this.frame.clientWidth;
    const wide = this.tip.offsetWidth;
    const high = this.tip.offsetHeight;
    this.tip.style.left = `${Math.max(0, Math.min(x + 14, width - wide - 4))}px`;
    this.tip.style.top = `${y + 16 + high > this.frame.clientHeight ? Math.max(0, y - high - 12) : y + 16}px`;
  }
}

function redrawAll() {
  inks.clear();
  drawn.forEach((plot) => plot.draw());
}
for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", redrawAll);
window.addEventListener("beforeprint", redrawAll);

/**
 * A plot with two axes. `spec()` gives, anew for each drawing,
 *   x, y: {low, high, ticks: [position, text][], title}
 *   under, over: (c, plot) => void        drawn below and above the points
 *   points: {x, y, look, size, open, names}   arrays; names are for the hover
 *   hover: (i) => lines of text           pick: (i) => void
 */
class Plot extends Canvas {
  constructor(host, label, height, spec) {
    super(host, label, height, (c, width, height_) => this.render(c, width, height_));
    this.spec = spec;
    this.zoom = null;
    this.at = -1;
    this.listen();
    this.waiting = true;
    drawSoon(this.frame, () => this.now ?? this.draw());
  }

  px(x) {
    return this.left + ((x - this.x.low) / (this.x.high - this.x.low)) * this.wide;
  }

  py(y) {
    return this.top + this.high - ((y - this.y.low) / (this.y.high - this.y.low)) * this.high;
  }

  render(c, width, height) {
    const now = this.spec();
    if (!this.now && now.zoom) this.zoom = now.zoom;
    this.now = now;
    this.x = this.zoom ? { ...now.x, ...this.zoom.x } : now.x;
    this.y = this.zoom ? { ...now.y, ...this.zoom.y } : now.y;
    this.left = now.small ? 34 : 64;
    this.top = now.small ? 8 : 12;
    this.wide = width - this.left - (now.small ? 6 : 14);
    this.high = height - this.top - (now.small ? 24 : 48);
    this.axes(c, now);
    c.save();
    c.beginPath();
    c.rect(this.left, this.top, this.wide, this.high);
    c.clip();
    now.under?.(c, this);
    this.points(c, now.points);
    now.over?.(c, this);
    c.restore();
    now.labels?.(c, this);
    this.pictured = false;
    if (this.at < 0) return;
    this.keep();
    this.mark(c);
  }

  /** What was drawn, so that moving the mark over it need not draw it all again. */
  keep() {
    this.picture ??= document.createElement("canvas");
    this.pictured = true;
    this.picture.width = this.canvas.width;
    this.picture.height = this.canvas.height;
    this.picture.getContext("2d").drawImage(this.canvas, 0, 0);
  }

  remark() {
    if (!this.pictured) this.keep();
    const c = this.canvas.getContext("2d");
    c.save();
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    c.drawImage(this.picture, 0, 0);
    c.restore();
    this.mark(c);
  }

  axes(c, now) {
    const ticksOf = (axis, room) => (typeof axis.ticks === "function" ? axis.ticks(axis.low, axis.high, room) : axis.ticks);
    c.strokeStyle = ink("grid");
    c.fillStyle = ink("muted");
    c.lineWidth = 1;
    c.textAlign = "center";
    c.textBaseline = "top";
    c.font = now.small ? "10px system-ui, sans-serif" : FONT;
    for (const [at, text] of ticksOf(this.x, Math.max(2, Math.floor(this.wide / 70)))) {
      const x = Math.round(this.px(at)) + 0.5;
      if (x < this.left - 1 || x > this.left + this.wide + 1) continue;
      c.beginPath();
      c.moveTo(x, this.top);
      c.lineTo(x, this.top + this.high);
      c.stroke();
      c.fillText(text, x, this.top + this.high + 5);
    }
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const [at, text] of ticksOf(this.y, Math.max(2, Math.floor(this.high / 40)))) {
      const y = Math.round(this.py(at)) + 0.5;
      if (y < this.top - 1 || y > this.top + this.high + 1) continue;
      c.beginPath();
      c.moveTo(this.left, y);
      c.lineTo(this.left + this.wide, y);
      c.stroke();
      c.fillText(text, this.left - 6, y);
    }
    c.strokeStyle = ink("muted");
    c.strokeRect(this.left + 0.5, this.top + 0.5, this.wide, this.high);
    if (now.small) return;
    c.fillStyle = ink("ink");
    c.textAlign = "center";
    c.textBaseline = "bottom";
    c.fillText(fitText(c, this.x.title ?? "", this.wide), this.left + this.wide / 2, this.top + this.high + 44);
    c.save();
    c.translate(13, this.top + this.high / 2);
    c.rotate(-Math.PI / 2);
    c.fillText(fitText(c, this.y.title ?? "", this.high), 0, 4);
    c.restore();
  }

  points(c, p) {
    if (!p) return;
    this.placed = [];
    const order = p.order ?? p.x.map((_, i) => i);
    const tiny = order.length > MANY;
    for (const i of order) {
      const x = this.px(p.x[i]);
      const y = this.py(p.y[i]);
      if (!Number.isFinite(x) || !Number.isFinite(y)) continue;
      this.placed.push([x, y, i]);
      const [colour, marker] = p.look[i];
      const r = p.size ? p.size[i] : dotSize(order.length);
      c.globalAlpha = p.faint?.[i] ? 0.2 : 1;
      if (tiny && r <= 2.2) {
        dot(c, x, y, r, colour, p.open?.[i]);
        continue;
      }
      c.beginPath();
      MARKERS[marker](c, x, y, r);
      if (p.open?.[i]) {
        c.strokeStyle = colour;
        c.lineWidth = 1.3;
        c.stroke();
      } else {
        c.fillStyle = colour;
        c.fill();
      }
    }
    c.globalAlpha = 1;
  }

  /** A ring around the point that hover or keyboard is at, and the box being drawn. */
  mark(c) {
    const one = this.placed?.find(([, , i]) => i === this.at);
    if (one) {
      c.strokeStyle = ink("ink");
      c.lineWidth = 2;
      c.beginPath();
      c.arc(one[0], one[1], 8, 0, 7);
      c.stroke();
    }
    if (this.box) {
      const [a, b, x, y] = this.box;
      c.fillStyle = ink("band");
      c.globalAlpha = 0.3;
      c.fillRect(Math.min(a, x), Math.min(b, y), Math.abs(x - a), Math.abs(y - b));
      c.globalAlpha = 1;
    }
  }

  nearest(x, y, within = 14) {
    let best = null;
    for (const one of this.placed ?? []) {
      const d = Math.hypot(one[0] - x, one[1] - y);
      if (d < within && (!best || d < best.d)) best = { d, one };
    }
    return best?.one ?? null;
  }

  go(one) {
    this.at = one ? one[2] : -1;
    this.remark();
    this.say(one && this.now.hover ? this.now.hover(one[2]) : null, one?.[0], one?.[1]);
  }

  /** Back to a point after the page was drawn anew. */
  goTo(i) {
    if (!this.now) this.draw();
    const one = this.placed?.find(([, , k]) => k === i);
    if (one) this.go(one);
  }

  listen() {
    const place = (e) => {
      if (!this.now) this.draw();
      const box = this.canvas.getBoundingClientRect();
      return [e.clientX - box.left, e.clientY - box.top];
    };
    let start = null;
    this.canvas.addEventListener("pointermove", (e) => {
      const [x, y] = place(e);
      if (start && e.pointerType === "mouse" && this.now.zoomable && Math.hypot(x - start[0], y - start[1]) > 6) {
        this.box = [...start, x, y];
        this.remark();
        return;
      }
      const one = this.nearest(x, y);
      if ((one ? one[2] : -1) !== this.at) this.go(one);
    });
    this.canvas.addEventListener("pointerleave", (e) => e.pointerType === "mouse" && this.at >= 0 && this.go(null));
    this.canvas.addEventListener("pointerdown", (e) => {
      start = place(e);
      if (e.pointerType === "mouse") this.canvas.setPointerCapture(e.pointerId);
    });
    this.canvas.addEventListener("pointercancel", () => {
      start = null;
    });
    this.canvas.addEventListener("pointerup", (e) => {
      const [x, y] = place(e);
      const box = this.box;
      start = null;
      this.box = null;
      if (box) return this.zoomTo(box);
      const one = this.nearest(x, y, e.pointerType === "mouse" ? 14 : 28);
      const again = one && one[2] === this.tapped;
      this.tapped = one ? one[2] : -1;
      if (e.pointerType === "mouse" || again) {
        if (one) this.now.pick?.(one[2]);
      } else this.go(one); // a finger's first tap shows, its second pins
    });
    this.canvas.addEventListener("dblclick", () => this.zoomOut());
    this.canvas.addEventListener("keydown", (e) => this.key(e));
  }

  zoomTo([a, b, x, y]) {
    const at = (px) => this.x.low + ((px - this.left) / this.wide) * (this.x.high - this.x.low);
    const up = (py) => this.y.low + ((this.top + this.high - py) / this.high) * (this.y.high - this.y.low);
    this.zoom = {
      x: { low: at(Math.min(a, x)), high: at(Math.max(a, x)) },
      y: { low: up(Math.max(b, y)), high: up(Math.min(b, y)) },
    };
    const ends = [this.zoom.x.low, this.zoom.x.high, this.zoom.y.low, this.zoom.y.high];
    this.now.zoomed?.(ends.map((v) => Number(v.toPrecision(6))).join(","));
    this.draw();
  }

  zoomOut() {
    this.zoom = null;
    this.now.zoomed?.("");
    this.draw();
  }

  /** Arrows walk through the points from left to right, Enter pins, Escape leaves. */
  key(e) {
    if (!this.now) this.draw();
    const order = [...(this.placed ?? [])].sort((a, b) => a[0] - b[0]);
    const here = order.findIndex(([, , i]) => i === this.at);
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[e.key];
    if (step && order.length) {
      const next = here < 0 ? 0 : (here + step + order.length) % order.length;
      this.go(order[next]);
      e.preventDefault();
    } else if (e.key === "Enter" && here >= 0) {
      this.now.pick?.(this.at);
      e.preventDefault();
    } else if (e.key === "Escape") {
      this.zoomOut();
      this.go(null);
    }
  }
}

/** One of many points, full or open. */
function dot(c, x, y, r, colour, open) {
  c.fillStyle = colour;
  if (!open) return c.fillRect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r);
  c.strokeStyle = colour;
  c.lineWidth = 1;
  c.strokeRect(x - 0.8 * r, y - 0.8 * r, 1.6 * r, 1.6 * r);
}

/** A line through positions of a plot, broken where one is not finite. */
function stroke(c, plot, xs, ys, colour, { width = 1.5, dash = [] } = {}) {
  c.beginPath();
  let open = false;
  xs.forEach((x, i) => {
    if (!Number.isFinite(x) || !Number.isFinite(ys[i])) {
      open = false;
      return;
    }
    c[open ? "lineTo" : "moveTo"](plot.px(x), plot.py(ys[i]));
    open = true;
  });
  c.strokeStyle = colour;
  c.lineWidth = width;
  c.setLineDash(dash);
  c.stroke();
  c.setLineDash([]);
}

/** The area between two curves. */
function shade(c, plot, xs, low, high, colour, alpha = 0.2) {
  const rows = xs.map((_, i) => i).filter((i) => [xs[i], low[i], high[i]].every(Number.isFinite));
  if (rows.length < 2) return;
  c.beginPath();
  rows.forEach((i, k) => c[k ? "lineTo" : "moveTo"](plot.px(xs[i]), plot.py(low[i])));
  [...rows].reverse().forEach((i) => c.lineTo(plot.px(xs[i]), plot.py(high[i])));
  c.closePath();
  c.globalAlpha = alpha;
  c.fillStyle = colour;
  c.fill();
  c.globalAlpha = 1;
}
