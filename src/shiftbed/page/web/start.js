// The first screen: place your model, one scatter that explains the line and ρ, three sentences, and a
// card per shift.

const judged = () => DATA.shifts.filter((s) => s.robustness && s.source.length === 1);
/** A function of a shift, computed once for each. */
function ofShift(compute) {
  const kept = new Map();
  return (shift) => {
    if (!kept.has(shift)) kept.set(shift, compute(shift));
    return kept.get(shift);
  };
}
const outOf = ofShift((shift) => MODELS.map((_, i) => i).filter((i) => shift.robustness.verdict[i] === "out of line"));
const judgedCount = ofShift((shift) => shift.robustness.effective.filter(known).length);
/** Models out of line with nothing else against them, the largest ρ first. */
const fairlyOut = ofShift((shift) =>
  shift.reason
    ? []
    : outOf(shift)
        .filter((i) => !shift.robustness.artefact[i])
        .sort((a, b) => Math.abs(shift.robustness.effective[b]) - Math.abs(shift.robustness.effective[a])),
);
/** A shift by its OOD set, and by its ID set too where several shifts have that OOD set. */
const shiftTitle = ofShift((shift) => {
  const alone = DATA.shifts.filter((s) => s.source.length === 1 && titleOf(s.target) === titleOf(shift.target)).length < 2;
  return alone ? titleOf(shift.target) : `${titleOf(shift.target)} over ${titleOf(shift.source[0])}`;
});

/** The shift of the first scatter: chosen, placed on, or the first that shows most. */
function leadShift(placed) {
  const all = judged();
  return all.find((s) => s.name === state.shift) ?? all.find((s) => s.name === placed[0]?.line.shift) ?? mostTelling(all);
}

/** The shift on which models are furthest out of line, of those with three or more. */
function mostTelling(all) {
  const far = (s) => Math.abs(s.robustness.effective[fairlyOut(s)[0]]);
  const telling = all.filter((s) => fairlyOut(s).length >= 3);
  return telling.reduce((best, s) => (best && far(best) >= far(s) ? best : s), null) ?? all[0];
}

function startView(host) {
  const answer = make("div");
  const picture = make("section", { class: "see", "aria-label": "The line" });
  const show = () => {
    const { host: result, all } = placeResult(readPlaced(state.place));
    fill(answer, state.place ? result : null);
    overview(picture, leadShift(all), all);
  };
  const ask = LINES.length
    ? make(
        "section",
        { class: "ask" },
        make("h2", {}, "Is your model robust?"),
        make("p", {}, "Type its accuracy on ordinary images (", term("id", "ID"), ") and on shifted ones (", term("ood", "OOD"), "): 0.7613, 76.13 % or 38065/50000."),
        placeForm((text) => {
          update({ place: text }, { quiet: true });
          show();
        }),
        answer,
      )
    : null;
  const own = DATA.findings.filter((f) => f.level === "opening");
  const told = own.map((f) => (f.table ? make("details", { class: "notes" }, make("summary", {}, `${f.table[0][0]}: ${f.table.length - 1} rows`), openingOf(f)) : openingOf(f)));
  fill(host, told, make("div", { class: "first" }, ask, picture), cards());
  show();
}

/** The furthest of three different families, or kinds, so that not three of one are named. */
function threeOf(rows) {
  const by = column("family") ?? column("kind") ?? [];
  const first = rows.filter((i, k) => rows.findIndex((j) => by[j] === by[i]) === k);
  return [...first, ...rows.filter((i) => !first.includes(i))].slice(0, 3);
}

/** The annotated scatter and what it shows, in three sentences. */
function overview(host, shift, placed) {
  fill(host);
  if (!shift) return;
  const [x, y] = [shift.source[0], shift.target];
  const mine = placed.filter((one) => one.line.target === y && one.line.source === x);
  const rows = MODELS.map((_, i) => i).filter((i) => known(shift.robustness.effective[i]));
  const fit = baselineFit(shift);
  const named = threeOf(fairlyOut(shift));
  const groupOf = (i) => asText(column("kind")?.[i]);
  const groups = inOrder(new Set(rows.map(groupOf)));
  const styles = looks(groups);
  const out = outOf(shift).length;
  host.append(make("h2", {}, `${shiftTitle(shift)}: `, out ? [`${many(out)} of ${many(judgedCount(shift))} models are `, term("out", "out of line")] : ["no model is ", term("out", "out of line")]));
  const xs = [...rows.map((i) => accuracy(x, i)), ...mine.map((o) => o.x)];
  const ys = [...rows.map((i) => accuracy(y, i)), ...mine.map((o) => o.y)];
  const label = `${titleOf(y)} accuracy over ${titleOf(x)} accuracy: ${rows.length} models and the line through the baseline models`;
  const plot = new Plot(host, label, 380, () => {
    const xAxis = axisFor(xs, x, `Accuracy on ${titleOf(x)}`, "logit");
    const yAxis = axisFor(ys, y, `Accuracy on ${titleOf(y)}`, "logit");
    const at = positions(xs, x, xAxis, "logit");
    const up = positions(ys, y, yAxis, "logit");
    const star = mine.map((_, k) => rows.length + k);
    const gap = star.length ? star[0] : rows.indexOf(named[0]);
    return {
      x: xAxis,
      y: yAxis,
      points: {
        x: at,
        y: up,
        look: [...rows.map((i) => styles.get(groupOf(i))), ...mine.map(() => OWN)],
        open: [...rows.map((i) => !fit.models?.has(i)), ...mine.map(() => false)],
        size: [...rows.map(() => dotSize(rows.length, 3)), ...mine.map(() => 8)],
      },
      under: (c, p) => {
        stroke(c, p, [p.x.low, p.x.high], [p.x.low, p.x.high], ink("muted"), { dash: [6, 4], width: 1 });
        if (!fit.reason) drawLines(c, p, fit, x, { scale: "logit", band: false });
      },
      over: (c, p) => {
        if (!fit.reason && gap >= 0) drawGap(c, p, at[gap], up[gap], fit, x, y, gap < rows.length ? shift.robustness.effective[rows[gap]] : mine[0].rho);
      },
      labels: (c, p) => {
        const wanted = [...named.map((i) => rows.indexOf(i)), ...star];
        placeLabels(c, p, wanted.map((k) => [k < rows.length ? nameOf(rows[k]) : mine[k - rows.length].model.name, at[k], up[k]]));
        if (!fit.reason) nameLine(c, p, fit, fit.n);
      },
      hover: (k) => (k < rows.length ? describe(rows[k], x, y, shift, fit) : [mine[k - rows.length].model.name, plainSentence(mine[k - rows.length])]),
      pick: (k) => k < rows.length && update({ view: "scatter", shift: shift.name, pins: JSON.stringify([MODELS[rows[k]]]) }),
    };
  });
  plot.canvas.id = "overview";
  host.append(legend(groups, styles, KIND_NAMES), sentences(shift, fit, rows, named, out));
}

/** What is seen, said so that one need not know the field. */
function sentences(shift, fit, rows, named, out) {
  const [x, y] = [shift.source[0], shift.target];
  const best = named.find((i) => shift.robustness.effective[i] > 0) ?? named[0];
  const trusted = shift.reason ? [" This line is not ", term("trust", "trusted"), `: ${shift.reason}.`] : null;
  return make(
    "ol",
    { class: "sentences" },
    make("li", {}, "Every dot is a model. ", term("line", "The line"), ` is what ${fit.n ?? 0} `, term("baseline", "baseline models"), ` do: their accuracy on ${titleOf(x)} predicts that on ${titleOf(y)} (R² ${r2Text(shift.line.r2)}).`, trusted),
    make("li", {}, "A model’s height above the line is its ", term("rho", "effective robustness ρ"), ": the robustness that its accuracy alone does not explain. On the line means accurate, and no more robust than that."),
    make("li", {}, best === undefined ? (out ? `${out} models are out of line, but not fairly: see their caveats.` : "No model lies further from the line than ordinary models do.") : [`${many(out)} models are further from it than ordinary models fall; the furthest is ${nameOf(best)}, ${points(shift.robustness.effective[best], 1)} points. `, make("a", { href: address({ ...DEFAULTS, view: "leaderboard", shift: shift.name }) }, "All of them")]),
  );
}

/** The distance that ρ is: from the line to the model. */
function drawGap(c, plot, at, up, fit, x, y, rho) {
  const line = lineFor(fit, SCALES.logit.inverse(at));
  const foot = plot.py(line.predictZ([at]));
  const [px, head] = [plot.px(at), plot.py(up)];
  c.strokeStyle = ink("ink");
  c.lineWidth = 1.5;
  c.beginPath();
  c.moveTo(px, foot);
  c.lineTo(px, head);
  for (const end of [foot, head]) {
    c.moveTo(px - 4, end);
    c.lineTo(px + 4, end);
  }
  c.stroke();
  const text = `ρ = ${points(rho, 1)} points`;
  c.font = `bold ${FONT}`;
  c.textBaseline = "middle";
  const wide = c.measureText(text).width;
  const tight = Math.abs(foot - head) < 40;
  const middle = (foot + head) / 2;
  const places = tight
    ? [44, 70, 100].flatMap((far) => [[0.5, 1], [-0.5, 1], [0.5, -1], [-0.5, -1]].map(([dx, dy]) => [px + far * dx, (dy > 0 ? Math.max(foot, head) : Math.min(foot, head)) + far * dy, dx]))
    : [0.5, 0.35, 0.65, 0.2].flatMap((share) => [1, -1].map((side) => [px + 8 * side, foot + share * (head - foot), side]));
  const [tx, ty, side] = emptiest(plot, places.map(([x, y, to]) => [x, y, to, [to > 0 ? x : x - wide, y - 8, wide, 16]]));
  if (tight) {
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(px + 2 * Math.sign(side), middle);
    c.lineTo(tx - 3 * Math.sign(side), ty + (ty > middle ? -4 : 4));
    c.stroke();
  }
  halo(c, text, tx, ty, side > 0 ? "left" : "right");
  // Room above and below, so that no name seems to belong to it.
  plot.taken.push([side > 0 ? tx : tx - wide, ty - 20, wide, 40], [px - 3, Math.min(foot, head), 6, Math.abs(foot - head)]);
  c.font = FONT;
}

/** The first of the places whose box [left, top, width, height], the last of each, covers fewest points inside the frame. */
function emptiest(plot, places) {
  const inside = ([left, top, wide, high]) => left > plot.left && left + wide < plot.left + plot.wide && top > plot.top && top + high < plot.top + plot.high;
  const cost = ([left, top, wide, high]) => plot.placed.reduce((n, [x, y]) => n + (x > left - 4 && x < left + wide + 4 && y > top - 2 && y < top + high + 2), 0);
  const scored = places.map((place) => [cost(place.at(-1)) + (inside(place.at(-1)) ? 0 : 1e6), place]);
  return scored.reduce((best, one) => (one[0] < best[0] ? one : best))[1];
}

const lineFor = (fit, x) => fit.lines.findLast((l) => x >= l.low) ?? fit.lines[0];

/** The line's name, along it, where it is inside of the frame and covers fewest points and names. */
function nameLine(c, plot, fit, n) {
  const text = `the line: what ${n} baseline models do`;
  const half = c.measureText(text).width / 2;
  const inside = ([x, y]) => x > plot.left && x < plot.left + plot.wide && y > plot.top && y < plot.top + plot.high;
  let best = null;
  for (let share = 0.2; share < 0.81; share += 0.03) {
    const at = plot.x.low + share * (plot.x.high - plot.x.low);
    const line = lineFor(fit, SCALES.logit.inverse(at));
    const step = 0.02 * (plot.x.high - plot.x.low);
    const [a, b] = [at, at + step].map((z) => [plot.px(z), plot.py(line.predictZ([z]))]);
    const angle = Math.atan2(b[1] - a[1], b[0] - a[0]);
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    for (const side of [1, -1]) {
      const away = side > 0 ? 19 : -17; // of the middle of the letters from the line
      const at_ = (along) => [a[0] + along * cos - away * sin, a[1] + along * sin + away * cos];
      if (![-half, half].every((end) => inside(at_(end)))) continue;
      const near = ([x, y]) => {
        const [dx, dy] = [x - a[0], y - a[1]];
        return Math.abs(dx * cos + dy * sin) < half + 4 && Math.abs(-dx * sin + dy * cos - away) < 10;
      };
      const points_ = plot.placed.filter(near).length;
      const steps = Array.from({ length: 21 }, (_, k) => at_(half * (k / 10 - 1)));
      const names = plot.taken.filter(([x, y, wide, high]) => steps.some(([u, v]) => u > x - 8 && u < x + wide + 8 && v > y - 8 && v < y + high + 8)).length;
      const cost = points_ + 20 * names;
      if (!best || cost < best.cost) best = { cost, at: at_(0), angle };
    }
  }
  if (!best) return;
  c.save();
  c.translate(...best.at);
  c.rotate(best.angle);
  c.textBaseline = "middle";
  halo(c, text, 0, 0, "center", lineColour());
  c.restore();
}

// --- cards ----------------------------------------------------------------------------------------

const MOST_CARDS = 24;

/** Shifts with more models first (half powers of two), else as they are. */
function bySize(shifts) {
  const size = (shift) => Math.floor(2 * Math.log2(Math.max(1, judgedCount(shift))));
  return [...shifts].sort((a, b) => size(b) - size(a));
}

function cards() {
  const all = bySize(judged());
  if (!all.length) return null;
  const shown = state.cards === "all" ? all : all.slice(0, MOST_CARDS);
  const list = make("ul", { class: "cards" });
  for (const shift of shown) {
    const out = outOf(shift).length;
    const thumb = make("canvas", { class: "thumb", "aria-hidden": "true", width: "320", height: "200" });
    list.append(
      make(
        "li",
        {},
        make(
          "a",
          { class: "card", href: address({ ...DEFAULTS, view: "leaderboard", shift: shift.name, place: state.place }), "data-card": shift.name },
          thumb,
          make("strong", {}, titleOf(shift.target)),
          make("span", { class: "small" }, `over ${titleOf(shift.source[0])}`),
          make("span", { class: "small" }, `R² ${r2Text(shift.line.r2)} · ${many(judgedCount(shift))} models`),
          make("span", { class: shift.reason ? "warning small" : "small" }, shift.reason ? `line not trusted: ${shift.reason}` : "line trusted"),
          make("span", { class: out ? "chip chip-out" : "chip chip-on" }, out ? `${many(out)} out of line` : "none out of line"),
        ),
      ),
    );
  }
  // Drawn once it is known where they are.
  setTimeout(() => list.querySelectorAll(".thumb").forEach((thumb, k) => drawSoon(thumb, () => thumb.isConnected && thumbnail(thumb, shown[k]))));
  const more = all.length > shown.length ? make("button", { type: "button", onclick: () => update({ cards: "all" }) }, `Show all ${all.length}`) : null;
  return [make("h2", {}, "Which models are robust? Choose a ", term("shift", "shift")), list, more];
}

/** A scatter the size of a stamp: dots, the line, models out of line in colour. */
function thumbnail(canvas, shift) {
  const c = canvas.getContext("2d");
  const { forward } = SCALES.logit;
  const rows = MODELS.map((_, i) => i).filter((i) => known(shift.robustness.effective[i]));
  const z = rows.map((i) => [forward(accuracy(shift.source[0], i)), forward(accuracy(shift.target, i)), shift.robustness.verdict[i] === "out of line"]).filter((r) => r.slice(0, 2).every(Number.isFinite));
  if (!z.length) return;
  const range = (k) => z.reduce(([a, b], r) => [Math.min(a, r[k]), Math.max(b, r[k])], [Infinity, -Infinity]);
  const [[left, right], [low, high]] = [range(0), range(1)];
  const px = (v) => 12 + (296 * (v - left)) / (right - left || 1);
  const py = (v) => 188 - (176 * (v - low)) / (high - low || 1);
  const step = Math.max(1, Math.floor(z.length / 700));
  c.fillStyle = ink("muted");
  for (let i = 0; i < z.length; i += step) if (!z[i][2]) c.fillRect(px(z[i][0]) - 2.5, py(z[i][1]) - 2.5, 5, 5);
  c.fillStyle = lineColour();
  for (const r of z) if (r[2]) c.fillRect(px(r[0]) - 4, py(r[1]) - 4, 8, 8);
  const knots = [left, ...(shift.knee ? [forward(shift.knee)] : []), right];
  c.strokeStyle = ink("ink");
  c.lineWidth = 3;
  for (let k = 0; k + 1 < knots.length; k++) {
    const [slope, intercept] = [shift.line.slopes[k], shift.line.intercepts[k]];
    c.beginPath();
    c.moveTo(px(knots[k]), py(slope * knots[k] + intercept));
    c.lineTo(px(knots[k + 1]), py(slope * knots[k + 1] + intercept));
    c.stroke();
  }
}

views.set("start", { title: "Is my model robust?", group: "Answer", question: "Where does my model stand, and what is this line?", show: startView, possible: () => judged().length > 0 });
