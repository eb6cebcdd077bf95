// What groups of models look like, and names beside points: colours, markers, labels, the legend.

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

/** Groups as a legend lists them: kinds of models in their order, then the rest by name. */
function inOrder(groups) {
  const rank = (group) => (KINDS.includes(group) ? KINDS.indexOf(group) : KINDS.length);
  return [...groups].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
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
  if (distinct.size <= MOST_GROUPS || name === "kind") return { of: (i) => asText(values[i]), groups: inOrder(distinct) };
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
  dash: (c, x, y, r) => c.rect(x - 1.4 * r, y - 0.2 * r, 2.8 * r, 0.4 * r),
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
  const { taken } = plot;
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
