// Accuracy under shift over ordinary accuracy: any two settings, any scale, the line through the
// baseline models that are shown, fitted here and now (taori2020, Figure 2).

/** The line's colour, the same in every chart. */
const lineColour = () => ink("line");
const barsOf = new Map(); // "setting level" → [low, high] of every model

function intervals(setting, level) {
  const key = `${setting} ${level}`;
  if (!barsOf.has(key)) {
    const both = MODELS.map((_, i) => clopperPearson(accuracy(setting, i), size(setting, i), level));
    barsOf.set(key, both);
  }
  return barsOf.get(key);
}

/** The shift on show, and whether it is exactly one of the testbed's. */
function chosenShift() {
  const named = shiftNamed(state.shift) ?? DATA.shifts.find((s) => s.source.length === 1);
  const x = settingAt.get(state.x) ?? named?.source[0] ?? 0;
  const y = settingAt.get(state.y) ?? named?.target ?? Math.min(1, DATA.settings.length - 1);
  const exact = DATA.shifts.find((s) => s.source.length === 1 && s.source[0] === x && s.target === y);
  return { x, y, shift: exact ?? null };
}

/** The models a fit goes through: baseline models that pass the filter, or all that do. */
function fitRows(rows, shift) {
  return state.fit === "shown" ? rows : rows.filter((i) => isFitted(i, shift));
}

const scaleOf = (setting) => (isMetric(setting) ? "linear" : state.scale);
const axisTitle = (setting) => `${titleOf(setting)}, ${isMetric(setting) ? DATA.metrics[DATA.settings[setting]] : `top-1 % (${state.scale} scale)`}`;

/** Positions for an axis around values, with room at both ends and at 0 and 1. */
function axisFor(values, setting, title = titleOf(setting), wanted = state.scale) {
  const scale = isMetric(setting) ? "linear" : wanted;
  const { forward } = SCALES[scale];
  const z = values.filter(known).map(forward).filter(Number.isFinite);
  let low = Math.min(...z);
  let high = Math.max(...z);
  if (!z.length) [low, high] = [forward(0.05), forward(0.95)];
  if (high - low < 1e-9) [low, high] = [low - 0.1, high + 0.1];
  const room = 0.06 * (high - low);
  return {
    low: low - room,
    high: high + room,
    title,
    ticks: (a, b, most) =>
      isMetric(setting)
        ? niceTicks(a, b, most).map((t) => [t, short(t)])
        : scaleTicks(scale, a, b, most).map((t) => [forward(t), `${short(100 * t)}%`]),
  };
}

/** Where a value is drawn: on the edge if the scale has no place for it. */
function positions(values, setting, axis, wanted = state.scale) {
  const { forward } = SCALES[isMetric(setting) ? "linear" : wanted];
  return values.map((v) => (known(v) ? Math.min(axis.high, Math.max(axis.low, forward(v))) : NaN));
}

/** Ends of both axes as the address has them; null if it has none. */
function zoomOf(range) {
  const ends = (range ?? "").split(",").map(Number);
  if (ends.length !== 4 || !ends.every(Number.isFinite) || !(ends[1] > ends[0]) || !(ends[3] > ends[2])) return null;
  return { x: { low: ends[0], high: ends[1] }, y: { low: ends[2], high: ends[3] } };
}

function scatterView(host) {
  const { x, y, shift } = chosenShift();
  const rows = shownModels().filter((i) => known(accuracy(x, i)) && known(accuracy(y, i)));
  const fit = fitShift([x], y, state.scale, fitRows(rows, shift), shift?.knee ?? null);
  const { of: groupOf, groups } = colouring(state.colour, rows);
  const styles = looks(groups);
  const xs = rows.map((i) => accuracy(x, i));
  const ys = rows.map((i) => accuracy(y, i));
  fill(host, scatterControls(x, y, shift), filterControls(), searchControls(rows));
  const note = make("p", { class: "equation", id: "equation", "aria-live": "polite" });
  host.append(note, legend(groups, styles, state.colour === "kind" ? KIND_NAMES : {}));
  const label = `${titleOf(y)} accuracy over ${titleOf(x)} accuracy, ${rows.length} models`;
  const plot = new Plot(host, label, 560, () => {
    const xAxis = axisFor(xs, x, axisTitle(x));
    const yAxis = axisFor(ys, y, axisTitle(y));
    const pins = pinned();
    const searching = state.search.trim() !== "";
    const hit = rows.map((i) => matches(i));
    const special = rows.map((i, k) => pins.has(MODELS[i]) || hit[k] || DATA.models.own[i]);
    const at = positions(xs, x, xAxis);
    const up = positions(ys, y, yAxis);
    return {
      x: xAxis,
      y: yAxis,
      zoomable: true,
      zoom: zoomOf(state.range),
      zoomed: (range) => update({ range }, { quiet: true }),
      points: {
        x: at,
        y: up,
        look: rows.map((i) => styles.get(groupOf(i))),
        open: rows.map((i) => !fit.models?.has(i)),
        size: special.map((s) => (s ? 6 : dotSize(rows.length))),
        faint: rows.map((_, k) => searching && !special[k]),
        order: rows.map((_, k) => k).sort((a, b) => special[a] - special[b]),
      },
      under: (c, p) => {
        if (!isMetric(x) && !isMetric(y)) stroke(c, p, [p.x.low, p.x.high], [p.x.low, p.x.high], ink("muted"), { dash: [6, 4], width: 1 });
        if (state.bars) drawBars(c, p, rows, at, up, x, y, styles, groupOf);
        if (!fit.reason) drawLines(c, p, fit, x);
      },
      labels: (c, p) => nameThem(c, p, rows.map(nameOf), special.map((s, k) => s && (!searching || hit[k] || pins.has(MODELS[rows[k]]))), at, up),
      hover: (k) => describe(rows[k], x, y, shift, fit),
      pick: (k) => togglePin(MODELS[rows[k]]),
    };
  });
  plot.canvas.id = "scatter";
  fill(note, equation(fit, shift, x, y));
  figures(note, fit.lines, fit);
  host.append(make("p", { class: "small" }, reading(rows, fit)));
  host.append(scatterTable(rows, x, y, fit));
}

function equation(fit, shift, x, y) {
  if (fit.reason) return `No line: ${fit.reason}.`;
  const lines = fit.lines.map((l) => {
    const range = Number.isFinite(l.low) ? ` above ${percent(l.low)}` : Number.isFinite(l.high) ? ` below ${percent(l.high)}` : "";
    const of = (setting) => `${isMetric(setting) || state.scale === "linear" ? "" : state.scale} ${titleOf(setting)}`.trim();
    return `${of(y)} = ${number(l.weights[0])} · ${of(x)} ${l.intercept < 0 ? "−" : "+"} ${number(Math.abs(l.intercept))}${range}, R² ${number(l.r2)}`;
  });
  const trusted = shift && shift.reason ? ` Not to be trusted: ${shift.reason}.` : "";
  return `${lines.join("; ")}; n = ${fit.n}, MAE ${number(100 * fit.mae, 3)} points.${trusted}`;
}

/** The numbers of a fit in full, for whoever reads the page by program. */
function figures(node, lines, fit) {
  const all = { n: fit.n, mae: fit.mae, slope: lines.map((l) => l.weights), intercept: lines.map((l) => l.intercept), r2: lines.map((l) => l.r2) };
  for (const [name, value] of Object.entries(all)) node.dataset[name] = JSON.stringify(value ?? null);
}

function reading(rows, fit) {
  const open = rows.filter((i) => !fit.models?.has(i)).length;
  return (
    `Dashed: y = x. Filled models are in the fit (${many(fit.n)}), open ones are not (${many(open)}). ` +
    "The band is the line's 95 % confidence band (Student t over models). Bars are 95 % Clopper–Pearson intervals. " +
    "Point at a model for all that is known of it, click or press Enter to pin it; drag to zoom, double-click to zoom out."
  );
}

function drawLines(c, plot, fit, x, { scale = state.scale, band = state.band === "yes" } = {}) {
  for (const line of fit.lines) {
    const { forward } = SCALES[isMetric(x) ? "linear" : scale];
    const low = Math.max(plot.x.low, Number.isFinite(line.low) ? forward(line.low) : -Infinity);
    const high = Math.min(plot.x.high, Number.isFinite(line.high) ? forward(line.high) : Infinity);
    const xs = Array.from({ length: 81 }, (_, i) => low + ((high - low) * i) / 80);
    const ys = xs.map((z) => line.predictZ([z]));
    if (band) {
      const half = xs.map((z) => line.half([z], 0.95));
      shade(c, plot, xs, ys.map((v, i) => v - half[i]), ys.map((v, i) => v + half[i]), lineColour());
    }
    const inside = xs.map((z) => z >= line.support[0][0] && z <= line.support[0][1]);
    stroke(c, plot, xs, ys, lineColour(), { dash: [2, 4], width: 1.2 });
    stroke(c, plot, xs, ys.map((v, i) => (inside[i] ? v : NaN)), lineColour(), { width: 2 });
  }
}

function drawBars(c, plot, rows, at, up, x, y, styles, groupOf) {
  const [across, along] = [SCALES[scaleOf(x)].forward, SCALES[scaleOf(y)].forward];
  const none = MODELS.map(() => [NaN, NaN]);
  const [wide, high] = [x, y].map((setting) => (isMetric(setting) ? none : intervals(setting, 0.95)));
  c.lineWidth = 0.8;
  c.globalAlpha = 0.5;
  rows.forEach((i, k) => {
    c.strokeStyle = styles.get(groupOf(i))[0];
    c.beginPath();
    const [a, b] = wide[i].map(across);
    const [d, e] = high[i].map(along);
    c.moveTo(Math.max(plot.left, plot.px(a)), plot.py(up[k]));
    c.lineTo(Math.min(plot.left + plot.wide, plot.px(b)), plot.py(up[k]));
    c.moveTo(plot.px(at[k]), Math.min(plot.top + plot.high, plot.py(d)));
    c.lineTo(plot.px(at[k]), Math.max(plot.top, plot.py(e)));
    c.stroke();
  });
  c.globalAlpha = 1;
}

/** Names beside the wanted points; where there are too many, the first of them. */
function nameThem(c, plot, names, wanted, at, up, most = 12) {
  const chosen = names.map((_, k) => k).filter((k) => wanted[k]).slice(0, most);
  placeLabels(c, plot, chosen.map((k) => [names[k], at[k], up[k]]));
}

/** What matters of a model, in at most eight lines, ρ first; its own name if that is another. */
function describe(i, x, y, shift, fit) {
  const lines = [nameOf(i)];
  const stored = shift?.robustness;
  const rho = effective(fit, [x], y, i);
  const there = stored && known(stored.effective[i]);
  if (there) {
    const around = known(stored.low[i]) ? ` [${points(stored.low[i])}, ${points(stored.high[i])}]` : "";
    lines.push(`ρ ${points(stored.effective[i])} points${around}: ${stored.verdict[i]}`);
  }
  if (known(rho) && !isMetric(y) && !(there && Math.abs(rho - stored.effective[i]) < 5e-6)) lines.push(`ρ ${points(rho)} points on the line drawn here`);
  for (const setting of [y, x]) {
    const [low, high] = isMetric(setting) ? [NaN, NaN] : clopperPearson(accuracy(setting, i), size(setting, i), 0.95);
    const around = known(low) ? ` [${percent(low)}, ${percent(high)}], n = ${size(setting, i)}` : "";
    lines.push(`${titleOf(setting)}: ${valueText(setting, i)}${around}`);
  }
  const kind = column("kind")?.[i];
  lines.push([kind ? KIND_NAMES[kind] ?? kind : "", column("family")?.[i], column("training_data")?.[i]].filter(Boolean).join(" · "));
  if (there && stored.caveats[i].length) lines.push(`But: ${shift.caveats[stored.caveats[i][0]]}${stored.caveats[i].length > 1 ? ` (and ${stored.caveats[i].length - 1} more)` : ""}`);
  if (nameOf(i) !== MODELS[i]) lines.push(MODELS[i]);
  return lines.filter(Boolean).slice(0, 8);
}

function scatterTable(rows, x, y, fit) {
  const header = ["model", state.colour, DATA.settings[x], DATA.settings[y], "predicted", "rho", "fitted"];
  const body = () => rows.map((i) => {
    const rho = effective(fit, [x], y, i);
    return [MODELS[i], asText(column(state.colour)?.[i]), accuracy(x, i), accuracy(y, i), known(rho) ? accuracy(y, i) - rho : null, known(rho) ? rho : null, fit.models?.has(i) ? "yes" : "no"];
  });
  return tableView("scatter", header, body, rows.length);
}

function scatterControls(x, y, shift) {
  const settings = DATA.settings.map((name, i) => [name, titleOf(i)]);
  const shifts = DATA.shifts.filter((s) => s.source.length === 1).map((s) => [s.name, s.title || titleOf(s.target)]);
  const full = shift && shift.full_source !== null && shift.full_source !== undefined;
  return make(
    "div",
    { class: "controls" },
    shifts.length ? choice("Shift", [["", "(any)"], ...shifts], shift?.name ?? "", (v) => update({ shift: v, x: "", y: "", range: "" }), { "data-name": "shift" }) : null,
    folded("Axes, fit and colours", [
      choice("x", settings, DATA.settings[x], (v) => update({ x: v, y: DATA.settings[y], range: "" }), { "data-name": "x" }),
      choice("y", settings, DATA.settings[y], (v) => update({ y: v, x: DATA.settings[x], range: "" }), { "data-name": "y" }),
      full
        ? make("button", { type: "button", onclick: () => update({ x: DATA.settings[shift.full_source], y: DATA.settings[y] }) }, "Whole ID set as x")
        : null,
      choice("Scale", ["logit", "probit", "linear"], state.scale, (v) => update({ scale: v, range: "" }), { "data-name": "scale" }),
      choice("Fit", [["baseline", "baseline models shown"], ["shown", "all models shown"]], state.fit, (v) => update({ fit: v }), { "data-name": "fit" }),
      choice("Colour", Object.keys(DATA.models.columns), state.colour, (v) => update({ colour: v }), { "data-name": "colour" }),
      tick("Error bars", state.bars !== "", (on) => update({ bars: on ? "yes" : "" }), { "data-name": "bars" }),
      tick("Band", state.band === "yes", (on) => update({ band: on ? "yes" : "no" }), { "data-name": "band" }),
    ]),
  );
}

const MOST_VALUES = 60;

const keepFilters = (kept) => update({ filter: Object.keys(kept).length ? JSON.stringify(kept) : "" });

/** Ticks per column with few values, a range per numeric column, a text for the rest. Made when open. */
function filterControls() {
  const count = shownModels().length;
  const details = make("details", { class: "filters", open: state.filter !== "" || state.filtering === "open" }, make("summary", { "data-name": "filters" }, `Filter models (${many(count)} of ${many(COUNT)} shown)`));
  const build = () => {
    if (details.childElementCount > 1 || !details.open) return;
    const now = filters();
    for (const name of Object.keys(DATA.models.columns)) {
      const { values, numeric } = columnFacts(name);
      if (values.length < 2) continue;
      if (numeric && values.length > 8) details.append(rangeControl(name, now));
      else if (values.length <= MOST_VALUES) details.append(ticksControl(name, values, now));
      else details.append(hasControl(name, now));
    }
    if (state.filter) details.append(make("button", { type: "button", onclick: () => update({ filter: "" }) }, "Show all"));
  };
  details.addEventListener("toggle", () => {
    build();
    update({ filtering: details.open && state.filter === "" ? "open" : "" }, { quiet: true });
  });
  build();
  return details;
}

function ticksControl(name, values, now) {
  const on = Array.isArray(now[name]) ? new Set(now[name]) : new Set(values);
  const change = (value, checked) => {
    const next = new Set(on);
    next[checked ? "add" : "delete"](value);
    const kept = { ...now, [name]: values.filter((v) => next.has(v)) };
    if (next.size === values.length) delete kept[name];
    keepFilters(kept);
  };
  return make(
    "fieldset",
    { "data-filter": name },
    make("legend", {}, name.replaceAll("_", " ")),
    values.map((v) => tick(name === "kind" ? KIND_NAMES[v] ?? v : v, on.has(v), (checked) => change(v, checked), { value: v, "data-name": `filter-${name}-${v}` })),
  );
}

/** For numbers: from and to. */
function rangeControl(name, now) {
  const wanted = now[name] ?? {};
  const end = (side, label) => {
    const input = make("input", {
      type: "number",
      step: "any",
      "aria-label": `${name} ${label}`,
      "data-name": `${side}-${name}`,
      placeholder: label,
      onchange: (e) => {
        const next = { ...wanted, [side]: e.target.value === "" ? undefined : Number(e.target.value) };
        const kept = { ...now, [name]: JSON.parse(JSON.stringify(next)) };
        if (!Object.keys(kept[name]).length) delete kept[name];
        keepFilters(kept);
      },
    });
    input.value = wanted[side] ?? "";
    return input;
  };
  return make("span", { class: "field", "data-filter": name }, make("span", {}, name.replaceAll("_", " ")), end("from", "from"), end("to", "to"));
}

/** For a column with too many values to list: models where it contains a text. */
function hasControl(name, now) {
  const id = `w${++widgets}`;
  const input = make("input", {
    type: "search",
    id,
    "data-name": `has-${name}`,
    onchange: (e) => {
      const kept = { ...now, [name]: { has: e.target.value } };
      if (!e.target.value) delete kept[name];
      keepFilters(kept);
    },
  });
  input.value = now[name]?.has ?? "";
  return make("span", { class: "field" }, make("label", { for: id }, `${name} contains`), input);
}

function searchControls(rows) {
  const id = `w${++widgets}`;
  const results = make("ul", { class: "found", "aria-label": "Models found" });
  const show = () => {
    const found = state.search.trim() ? foundFirst(rows.filter((i) => matches(i))) : [];
    const pins = pinned();
    const at = new Map(MODELS.map((name, i) => [name, i]));
    const names = [...new Set([...found.slice(0, 12).map((i) => MODELS[i]), ...pins])];
    const more = found.length > 12 ? make("li", { class: "small" }, `and ${found.length - 12} more`) : null;
    const none = state.search.trim() && !found.length ? make("li", { class: "warning" }, `No model’s name has “${state.search.trim()}”.`) : null;
    fill(
      results,
      none,
      names.map((name) =>
        make("li", {}, make("button", { type: "button", title: name, "aria-pressed": String(pins.has(name)), onclick: () => togglePin(name) }, `${pins.has(name) ? "★" : "☆"} ${at.has(name) ? nameOf(at.get(name)) : name}`)),
      ),
      more,
    );
  };
  const input = make("input", {
    type: "search",
    id,
    "data-name": "search",
    placeholder: "part of a model's name",
    oninput: (e) => {
      update({ search: e.target.value }, { quiet: true });
      show();
      drawn.forEach((plot) => plot.draw());
    },
  });
  input.value = state.search;
  show();
  return make("div", { class: "search" }, make("label", { for: id }, "Search and pin"), input, results);
}

views.set("scatter", { title: "Scatter", group: "Explore", question: "How do models compare on any two test sets?", show: scatterView });
