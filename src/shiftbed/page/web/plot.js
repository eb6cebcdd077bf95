// Drawing on a canvas: axes, points, bars, bands, lines; hover, keyboard and box zoom. Views say what
// to draw in positions of the axes; nothing here knows what the numbers mean.

// As in figures/palette.py: told apart with any colour vision and on both papers, each with a marker of
// its own.
const CYCLE = [
  ["#0072B2", "circle"],
  ["#BE8300", "square"],
  ["#009E73", "triangle"],
  ["#CC79A7", "diamond"],
  ["#3A93CC", "down"],
  ["#8E63B8", "pentagon"],
];
const KINDS = ["standard", "intervention", "more-data", "lp-adversarial", "zero-shot"];
const KIND_NAMES = {
  standard: "Standard training",
  intervention: "Robustness intervention",
  "more-data": "Trained on more data",
  "lp-adversarial": "ℓₚ-adversarially trained",
  "zero-shot": "Zero-shot",
  own: "Own model",
};
const OWN = ["#D81B60", "star"];
const OTHER = ["#8C8C8C", "circle"];

/** Colour and marker of each group: a kind of model always has the same, later ones share grey. */
function looks(groups) {
  const found = new Map();
  let next = 0;
  for (const group of groups) {
    const kind = KINDS.indexOf(group);
    if (group === "own") found.set(group, OWN);
    else if (kind >= 0 && groups.every((g) => KINDS.includes(g) || g === "own" || g === "–")) found.set(group, CYCLE[kind]);
    else found.set(group, next < CYCLE.length ? CYCLE[next++] : OTHER);
  }
  return found;
}

const MOST_GROUPS = 8;

/** Groups to colour models by: values of a column, ranges of a numeric one, the commonest of many. */
function colouring(name, rows) {
  const values = column(name);
  if (!values) return { of: () => "–", groups: ["–"] };
  const distinct = new Set(rows.map((i) => asText(values[i])));
  if (isNumeric(name) && distinct.size > MOST_GROUPS) {
    const sorted = rows.map((i) => values[i]).filter(known).sort((a, b) => a - b);
    const cuts = [...new Set([0.2, 0.4, 0.6, 0.8].map((p) => sorted[Math.floor(p * (sorted.length - 1))]))];
    const ends = [sorted[0], ...cuts, sorted.at(-1)];
    const groups = ends.slice(1).map((end, k) => `${short(ends[k])} to ${short(end)}`);
    const of = (i) => (known(values[i]) ? groups[cuts.filter((cut) => values[i] > cut).length] : "–");
    return { of, groups: [...groups, ...(distinct.has("–") ? ["–"] : [])] };
  }
  if (distinct.size <= MOST_GROUPS || name === "kind") return { of: (i) => asText(values[i]), groups: [...distinct].sort() };
  const counts = new Map();
  for (const i of rows) counts.set(asText(values[i]), (counts.get(asText(values[i])) ?? 0) + 1);
  const common = [...counts].sort((a, b) => b[1] - a[1]).slice(0, CYCLE.length).map(([value]) => value);
  const kept = new Set(common);
  const rest = `${distinct.size - common.length} others`;
  return { of: (i) => (kept.has(asText(values[i])) ? asText(values[i]) : rest), groups: [...common, rest] };
}

const MARKERS = {
  circle: (c, x, y, r) => c.arc(x, y, r, 0, 7),
  square: (c, x, y, r) => c.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r),
  triangle: (c, x, y, r) => polygon(c, x, y + 0.15 * r, 1.2 * r, 3, -90),
  down: (c, x, y, r) => polygon(c, x, y - 0.15 * r, 1.2 * r, 3, 90),
  diamond: (c, x, y, r) => polygon(c, x, y, 1.25 * r, 4, 0),
  pentagon: (c, x, y, r) => polygon(c, x, y, 1.15 * r, 5, -90),
  cross(c, x, y, r) {
    for (const side of [-1, 1]) {
      c.moveTo(x - r, y - side * r);
      c.lineTo(x + r, y + side * r);
    }
  },
  star(c, x, y, r) {
    for (let i = 0; i < 10; i++) {
      const a = (-90 + 36 * i) * (Math.PI / 180);
      const d = i % 2 ? 0.7 * r : 1.7 * r;
      c[i ? "lineTo" : "moveTo"](x + d * Math.cos(a), y + d * Math.sin(a));
    }
    c.closePath();
  },
};

function polygon(c, x, y, r, sides, turn) {
  for (let i = 0; i < sides; i++) {
    const a = (turn + (360 * i) / sides) * (Math.PI / 180);
    c[i ? "lineTo" : "moveTo"](x + r * Math.cos(a), y + r * Math.sin(a));
  }
  c.closePath();
}

/** Colours of the page as it is now: light, dark, or on paper. */
function ink(name) {
  if (!inks.has(name)) inks.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return inks.get(name);
}
const inks = new Map(); // asked for once, until they change

const FONT = "12px system-ui, sans-serif";
const drawn = new Set(); // plots on the page, drawn again when its size or colours change

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
      if (this.size[0] !== this.frame.clientWidth || this.size[1] !== this.frame.clientHeight) this.draw();
    });
    this.observer.observe(this.frame);
    drawn.add(this);
  }

  draw() {
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
    this.draw();
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
    this.keep();
    this.mark(c);
  }

  /** What was drawn, so that moving the mark over it need not draw it all again. */
  keep() {
    this.picture ??= document.createElement("canvas");
    this.picture.width = this.canvas.width;
    this.picture.height = this.canvas.height;
    this.picture.getContext("2d").drawImage(this.canvas, 0, 0);
  }

  remark() {
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
    for (const i of order) {
      const x = this.px(p.x[i]);
      const y = this.py(p.y[i]);
      if (!Number.isFinite(x) || !Number.isFinite(y)) continue;
      this.placed.push([x, y, i]);
      const [colour, marker] = p.look[i];
      c.beginPath();
      MARKERS[marker](c, x, y, p.size ? p.size[i] : 3.5);
      c.globalAlpha = p.faint?.[i] ? 0.2 : 1;
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
    const one = this.placed?.find(([, , k]) => k === i);
    if (one) this.go(one);
  }

  listen() {
    const place = (e) => {
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

/** Text cut in the middle so that it fits. */
function fitText(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let keep = text.length;
  while (keep > 4 && c.measureText(`${text.slice(0, keep / 2)}…${text.slice(-keep / 2)}`).width > width) keep -= 2;
  return `${text.slice(0, keep / 2)}…${text.slice(-keep / 2)}`;
}

/** Text with a rim in the colour of the page, so that it can be read over lines and points. */
function halo(c, text, x, y, align = "left", colour = ink("ink")) {
  c.textAlign = align;
  c.strokeStyle = ink("paper");
  c.lineWidth = 3.5;
  c.strokeText(text, x, y);
  c.fillStyle = colour;
  c.fillText(text, x, y);
}

const AROUND = [[1, 0], [-1, 0], [0.7, -0.7], [-0.7, -0.7], [0.7, 0.7], [-0.7, 0.7], [0, -1], [0, 1]];

/** Names [text, x, y] near their points: over no other name, over as few points as can be, with a
 * leader where that is some way off. */
function placeLabels(c, plot, items) {
  c.font = FONT;
  c.textBaseline = "middle";
  const taken = [...(plot.taken ?? [])];
  const points_ = plot.placed ?? [];
  for (const [name, at, up] of items) {
    const [x, y] = [plot.px(at), plot.py(up)];
    if (!(x >= plot.left && x <= plot.left + plot.wide && y >= plot.top && y <= plot.top + plot.high)) continue;
    const text = fitText(c, name, Math.min(220, plot.wide * 0.6));
    const [wide, high] = [c.measureText(text).width, 14];
    let best = null;
    for (const far of [10, 24, 44, 70, 100]) {
      for (const [dx, dy] of AROUND) {
        const left = x + far * dx - (dx > 0.1 ? 0 : dx < -0.1 ? wide : wide / 2);
        const top = y + far * dy - high / 2;
        if (left < plot.left + 2 || left + wide > plot.left + plot.wide - 2 || top < plot.top || top + high > plot.top + plot.high) continue;
        if (taken.some((b) => left < b[0] + b[2] + 4 && left + wide + 4 > b[0] && top < b[1] + b[3] && top + high > b[1])) continue;
        const under = points_.reduce((n, [a, b]) => n + (a > left - 3 && a < left + wide + 3 && b > top - 2 && b < top + high + 2), 0);
        const cost = under + far / 12;
        if (!best || cost < best.cost) best = { cost, left, top, far, dx };
      }
    }
    if (!best) continue;
    taken.push([best.left, best.top, wide, high]);
    if (best.far > 12) {
      c.strokeStyle = ink("muted");
      c.lineWidth = 1;
      c.beginPath();
      c.moveTo(x, y);
      c.lineTo(clip(x, best.left, best.left + wide), clip(y, best.top + 2, best.top + high - 2));
      c.stroke();
    }
    halo(c, text, best.left, best.top + high / 2);
  }
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

/** A key to colours and markers, which can be read and reached without the canvas. */
function legend(groups, styles, names = {}) {
  return make(
    "ul",
    { class: "legend" },
    groups.map((group) => {
      const [colour, marker] = styles.get(group);
      const swatch = make("canvas", { width: "28", height: "28", "aria-hidden": "true" });
      const c = swatch.getContext("2d");
      c.scale(2, 2);
      c.beginPath();
      MARKERS[marker](c, 7, 7, 4.2);
      c.fillStyle = colour;
      c.fill();
      return make("li", {}, swatch, names[group] ?? group);
    }),
  );
}
