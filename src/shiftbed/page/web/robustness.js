// Effective against relative robustness, and synthetic against natural shifts: ρ of every model on
// every shift, from lines through the baseline models in logit space, fitted once.

const rhoOf = new Map();

/** ρ of all models on a shift, from its own baseline models, whatever is filtered. */
function rhos(shift) {
  if (!rhoOf.has(shift.name)) {
    const fit = baselineFit(shift);
    rhoOf.set(shift.name, MODELS.map((_, i) => effective(fit, shift.source, shift.target, i)));
  }
  return rhoOf.get(shift.name);
}

const NATURAL = ["natural-dataset", "consistency", "adversarially-filtered"];
const isNatural = (shift) => NATURAL.includes(shift.kind);

function axisOfPoints(values, title) {
  const finite = values.filter(Number.isFinite);
  let [low, high] = finite.length ? [Math.min(0, ...finite), Math.max(0, ...finite)] : [-0.1, 0.1];
  const room = 0.06 * (high - low || 0.1);
  return { low: low - room, high: high + room, title, ticks: (a, b, most) => niceTicks(100 * a, 100 * b, most).map((t) => [t / 100, points(t / 100, 1).replace(/\.0$/, "")]) };
}

/** Dots of models in groups over two axes of points, with zero lines. */
function rhoPlot(host, label, rows, xs, ys, xTitle, yTitle, extra = {}) {
  const { of: groupOf, groups } = colouring(state.colour, rows);
  const styles = looks(groups);
  host.append(legend(groups, styles, state.colour === "kind" ? KIND_NAMES : {}));
  const pins = pinned();
  return new Plot(host, label, 480, () => ({
    x: axisOfPoints(xs, xTitle),
    y: axisOfPoints(ys, yTitle),
    zoomable: true,
    points: { x: xs, y: ys, look: rows.map((i) => styles.get(groupOf(i))), size: rows.map((i) => (pins.has(MODELS[i]) || DATA.models.own[i] ? 6.5 : dotSize(rows.length, 4))) },
    under: (c, p) => {
      if (extra.good) {
        c.fillStyle = ink("good");
        c.fillRect(p.px(0), p.top, p.left + p.wide - p.px(0), p.py(0) - p.top);
      }
      stroke(c, p, [0, 0], [p.y.low, p.y.high], ink("muted"), { width: 1 });
      stroke(c, p, [p.x.low, p.x.high], [0, 0], ink("muted"), { width: 1 });
    },
    labels: (c, p) => nameThem(c, p, rows.map(nameOf), rows.map((i) => pins.has(MODELS[i]) || DATA.models.own[i] || (extra.name?.(i) ?? false)), xs, ys),
    hover: (k) => [nameOf(rows[k]), groupOf(rows[k]), `${xTitle}: ${points(xs[k])}`, `${yTitle}: ${points(ys[k])}`],
    pick: (k) => togglePin(MODELS[rows[k]]),
  }));
}

const MOST_PARENTS = 100; // in a list to choose from

/** Models that others were derived from → how many, most first. */
function derivedFrom() {
  const counts = new Map();
  for (const p of DATA.models.parent) if (p >= 0) counts.set(p, (counts.get(p) ?? 0) + 1);
  return new Map([...counts].sort((a, b) => b[1] - a[1]));
}

function relativeView(host) {
  const shifts = DATA.shifts.filter((s) => s.source.length === 1);
  const shift = shifts.find((s) => s.name === state.shift) ?? shifts.find(isNatural) ?? shifts[0];
  const derived = derivedFrom();
  const parent = derived.has(MODELS.indexOf(state.parent)) ? MODELS.indexOf(state.parent) : -1;
  const parents = [...derived.keys()].slice(0, MOST_PARENTS);
  if (parent >= 0 && !parents.includes(parent)) parents.push(parent);
  const all = rhos(shift);
  const rows = shownModels().filter((i) => {
    const from = DATA.models.parent[i];
    return from >= 0 && (parent < 0 || from === parent) && Number.isFinite(all[i]) && known(accuracy(shift.target, from));
  });
  const tau = rows.map((i) => accuracy(shift.target, i) - accuracy(shift.target, DATA.models.parent[i]));
  const rho = rows.map((i) => all[i]);
  fill(
    host,
    make(
      "div",
      { class: "controls" },
      choice("Shift", shifts.map((s) => [s.name, shiftTitle(s)]), shift.name, (v) => update({ shift: v, x: "", y: "" }), { "data-name": "shift" }),
      choice("Derived from", [["", "any model"], ...parents.map((p) => [MODELS[p], nameOf(p)])], parent < 0 ? "" : MODELS[parent], (v) => update({ parent: v }), { "data-name": "parent" }),
      choice("Colour", Object.keys(DATA.models.columns), state.colour, (v) => update({ colour: v }), { "data-name": "colour" }),
    ),
    filterControls(),
  );
  const both = rows.filter((_, k) => rho[k] > 0 && tau[k] > 0).length;
  host.append(make("p", { class: "equation" }, `${both} of ${rows.length} derived models gain on both counts: effective robustness ρ and relative robustness τ above zero (shaded).`));
  const plot = rhoPlot(host, "Effective against relative robustness", rows, rho, tau, "effective robustness ρ (points)", "relative robustness τ (points)", { good: true });
  plot.canvas.id = "relative";
  host.append(make("p", { class: "small" }, "τ is accuracy under shift minus that of the model it was derived from (taori2020, Section 2). A model can gain in ρ merely by losing ordinary accuracy: such models lie right and below."));
  host.append(tableView("relative", ["model", "parent", "rho", "tau"], rows.map((i, k) => [MODELS[i], MODELS[DATA.models.parent[i]], rho[k], tau[k]])));
}

function syntheticView(host) {
  const natural = DATA.shifts.filter((s) => s.source.length === 1 && isNatural(s));
  const synthetic = DATA.shifts.filter((s) => s.source.length === 1 && !isNatural(s));
  const y = natural.find((s) => s.name === state.natural) ?? natural[0];
  const others = shownModels().filter((i) => asText(column("kind")?.[i]) !== "standard");
  const usable = others.length >= 3 ? others : shownModels();
  const ranked = synthetic
    .map((s) => ({ s, ...pearson(usable.map((i) => rhos(s)[i]), usable.map((i) => rhos(y)[i])) }))
    .filter((one) => Number.isFinite(one.r))
    .sort((a, b) => b.r - a.r);
  const x = synthetic.find((s) => s.name === state.synthetic) ?? ranked[0]?.s ?? synthetic[0];
  const rows = usable.filter((i) => Number.isFinite(rhos(x)[i]) && Number.isFinite(rhos(y)[i]));
  fill(
    host,
    make(
      "div",
      { class: "controls" },
      choice("Natural shift", natural.map((s) => [s.name, shiftTitle(s)]), y.name, (v) => update({ natural: v }), { "data-name": "natural" }),
      choice("Synthetic shift", synthetic.map((s) => [s.name, shiftTitle(s)]), x.name, (v) => update({ synthetic: v }), { "data-name": "synthetic" }),
      choice("Colour", Object.keys(DATA.models.columns), state.colour, (v) => update({ colour: v }), { "data-name": "colour" }),
    ),
    filterControls(),
  );
  const overall = pearson(rows.map((i) => rhos(x)[i]), rows.map((i) => rhos(y)[i]));
  const kinds = [...new Set(rows.map((i) => asText(column("kind")?.[i])))].sort();
  const each = kinds.map((kind) => {
    const mine = rows.filter((i) => asText(column("kind")?.[i]) === kind);
    const { r, n } = pearson(mine.map((i) => rhos(x)[i]), mine.map((i) => rhos(y)[i]));
    return `${KIND_NAMES[kind] ?? kind} ${number(r, 2)} (n = ${n})`;
  });
  const best = ranked.slice(0, 2).map((one) => `${shiftTitle(one.s)} (r ${number(one.r, 2)}, n = ${one.n})`);
  host.append(
    make("p", { class: "equation", id: "synthetic-r" }, `r = ${number(overall.r, 3)} over ${overall.n} models; by kind: ${each.join(", ")}.`),
    make("p", {}, `The two synthetic shifts whose ρ goes best with ρ on ${shiftTitle(y)}: ${best.join(" and ") || "none"}.`),
  );
  const plot = rhoPlot(host, `ρ on ${shiftTitle(y)} over ρ on ${shiftTitle(x)}`, rows, rows.map((i) => rhos(x)[i]), rows.map((i) => rhos(y)[i]), `ρ on ${shiftTitle(x)} (points)`, `ρ on ${shiftTitle(y)} (points)`);
  plot.canvas.id = "synthetic";
  host.append(make("p", { class: "small" }, "Models of standard training are left out, as in taori2020 (Appendix H): they are what the lines are fitted through."));
  host.append(tableView("synthetic", ["model", "kind", `rho on ${x.name}`, `rho on ${y.name}`], rows.map((i) => [MODELS[i], asText(column("kind")?.[i]), rhos(x)[i], rhos(y)[i]])));
  host.append(make("h3", {}, "Every synthetic shift"), tableView("synthetic-shifts", ["synthetic shift", "natural shift", "r", "n"], ranked.map((one) => [one.s.name, y.name, one.r, one.n])));
}

views.set("relative", { title: "ρ and τ", group: "Explore", question: "Does a robustness technique help the model that it was applied to?", show: relativeView, possible: () => DATA.models.parent.some((p) => p >= 0) && DATA.shifts.some((s) => s.source.length === 1) });
views.set("synthetic", { title: "Synthetic and natural", group: "Explore", question: "Does robustness to corruptions tell of robustness to natural shifts?", show: syntheticView, possible: () => DATA.shifts.some(isNatural) && DATA.shifts.some((s) => !isNatural(s)) });
