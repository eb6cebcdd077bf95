// Charts whose numbers were computed before: scatters, planes, heat maps, curves, dots, bars, and
// panels of these.

function chartView(host, chart) {
  if (chart.intro) host.append(make("p", {}, chart.intro));
  drawChart(host, chart.chart, chart.id);
  const notes = [chart.chart.reading, ...(chart.chart.notes ?? []), chart.chart.citation].filter(Boolean);
  if (notes.length) host.append(make("p", { class: "small" }, notes.join(" ")));
}

function drawChart(host, chart, id) {
  if (chart.type === "panels") {
    const pair = make("div", { class: "pair" });
    host.append(pair);
    chart.panels.forEach((panel, i) => {
      const box = make("div", {}, make("h3", {}, panel.title));
      pair.append(box);
      drawChart(box, panel, `${id}-${i + 1}`);
      if (panel.reading) box.append(make("p", { class: "small" }, panel.reading));
    });
    return;
  }
  const kinds = { scatter: scatterChart, plane: planeChart, heatmap: heatmapChart, curves: curvesChart, dots: dotsChart, bars: barsChart };
  kinds[chart.type](host, chart, id);
}

const numbersIn = (lists) => lists.flat().filter(known);

function linearAxis(values, title, { zero = false } = {}) {
  const all = zero ? [0, ...values] : values;
  let [low, high] = all.length ? [Math.min(...all), Math.max(...all)] : [0, 1];
  if (high - low < 1e-12) [low, high] = [low - 0.5, high + 0.5];
  const room = 0.05 * (high - low);
  return { low: low - (zero && low === 0 ? 0 : room), high: high + room, title, ticks: (a, b, most) => niceTicks(a, b, most).map((t) => [t, minus(String(t))]) };
}

function heatmapChart(host, chart, id) {
  const values = numbersIn(chart.values);
  const low = chart.low ?? Math.min(...values);
  const high = chart.high ?? Math.max(...values);
  const many = chart.rows.length > 40;
  const cells = new Cells(host, chart.title, {
    rows: chart.rows,
    columns: chart.columns,
    values: (r, k) => chart.values[r][k],
    marked: chart.marked ? (r, k) => chart.marked[r][k] : null,
    wide: many ? 12 : 44,
    high: many ? 12 : 20,
    shade: (v) => (v - low) / (high - low || 1),
    text: (v) => minus(v.toFixed(chart.digits)),
    stops: chart.diverging ? DIVERGING : CIVIDIS,
    hover: (r, k) => [chart.rows[r], chart.columns[k], known(chart.values[r][k]) ? short(chart.values[r][k]) : "no value"],
  });
  cells.canvas.id = `chart-${id}`;
  host.append(tableView(id, [chart.row_title || "row", ...chart.columns], chart.rows.map((name, r) => [name, ...chart.values[r]])));
}

/** Reference lines y = slope·x + intercept; slope null is a vertical line at the intercept. */
function references(c, plot, lines, styles = new Map()) {
  for (const line of lines) {
    const [colour] = styles.get(line.group) ?? (line.fitted ? [lineColour()] : []);
    const upright = line.slope === null;
    const xs = upright ? [line.intercept, line.intercept] : [plot.x.low, plot.x.high];
    const ys = upright ? [plot.y.low, plot.y.high] : xs.map((x) => line.slope * x + line.intercept);
    if (line.band.length) {
      const [at, low, high] = [0, 1, 2].map((k) => line.band.map((end) => end[k]));
      shade(c, plot, at, low, high, colour ?? ink("muted"), 0.16 * line.opacity);
    }
    c.globalAlpha = line.opacity;
    stroke(c, plot, xs, ys, colour ?? ink("muted"), colour ? {} : { dash: [6, 4], width: 1 });
    c.globalAlpha = 1;
  }
}

function namesOfLines(host, lines) {
  const names = lines.filter((line) => line.name).map((line) => (line.fitted ? `${line.name} (orange)` : line.name));
  if (names.length) host.append(make("p", { class: "small" }, `Lines: ${names.join("; ")}.`));
}

function curvesChart(host, chart, id) {
  const names = chart.curves.map((curve) => curve.name);
  const reference = (curve) => curve.dashed && !curve.points;
  const keys = [...new Set(chart.curves.filter((curve) => !reference(curve)).map((curve) => curve.group || curve.name))];
  const ofKinds = keys.every((key) => KINDS.includes(key));
  const lookOf = (key) => (ofKinds ? looks(keys).get(key) : CYCLE[keys.indexOf(key) % CYCLE.length]);
  const styles = new Map(chart.curves.map((curve) => [curve.name, reference(curve) ? [ink("muted"), "dash"] : lookOf(curve.group || curve.name)]));
  if (names.length > 1) host.append(legend(names, styles, ofKinds ? KIND_NAMES : {}));
  const ends = (curve) => [curve.y, curve.low ?? [], curve.high ?? []];
  const behind = chart.behind ?? { title: "", names: [], x: [], y: [] };
  const grey = [ink("muted"), "circle"];
  const flat = chart.curves.flatMap((curve, n) => curve.x.map((x, i) => ({ n, i, x, y: curve.y[i] })));
  const plot = new Plot(host, chart.title, 420, () => {
    const x = linearAxis(numbersIn([behind.x, ...chart.curves.map((curve) => curve.x)]), chart.x_title);
    if (chart.x_labels?.length) x.ticks = chart.x_labels.map((text, i) => [i, text]);
    return {
      x,
      y: linearAxis(numbersIn([behind.y, ...chart.curves.flatMap(ends)]), chart.y_title),
      points: {
        x: [...behind.x, ...flat.map((p) => p.x)].map((v) => v ?? NaN),
        y: [...behind.y, ...flat.map((p) => p.y)].map((v) => v ?? NaN),
        look: [...behind.names.map(() => grey), ...flat.map((p) => styles.get(names[p.n]))],
        size: [...behind.names.map(() => 2.5), ...flat.map((p) => (chart.curves[p.n].points ? 3 : 0.01))],
      },
      under: (c, p) => {
        references(c, p, chart.lines);
        errorBars(c, p, behind, () => grey[0]);
        chart.curves.forEach((curve) => {
          const [colour] = styles.get(curve.name);
          if (curve.low) shade(c, p, curve.x, curve.low.map((v) => v ?? NaN), curve.high.map((v) => v ?? NaN), colour, 0.16);
          stroke(c, p, curve.x, curve.y.map((v) => v ?? NaN), colour, { dash: curve.dashed ? [6, 4] : [], width: curve.bold ? 3 : 1.5 });
        });
      },
      hover: (k) => {
        if (k < behind.names.length) return [behind.names[k], `${short(behind.x[k])}: ${short(behind.y[k])}`];
        const { n, i } = flat[k - behind.names.length];
        const curve = chart.curves[n];
        const around = curve.low && known(curve.low[i]) ? ` [${short(curve.low[i])}, ${short(curve.high[i])}]` : "";
        return [curve.name, `${chart.x_labels?.[curve.x[i]] ?? short(curve.x[i])}: ${short(curve.y[i])}${around}`];
      },
    };
  });
  plot.canvas.id = `chart-${id}`;
  namesOfLines(host, chart.lines);
  if (behind.title) host.append(make("p", { class: "small" }, `Grey points: ${behind.title}.`));
  const rows = flat.map(({ n, i }) => [names[n], chart.curves[n].x[i], chart.curves[n].y[i], chart.curves[n].low?.[i] ?? null, chart.curves[n].high?.[i] ?? null]);
  host.append(tableView(id, ["curve", chart.x_title || "x", chart.y_title || "y", "low", "high"], rows));
}

/** Thin bars around the points of a chart, where it has intervals. */
function errorBars(c, plot, chart, colourOf) {
  c.globalAlpha = 0.5;
  chart.x.forEach((_, i) => {
    if (chart.y_low && known(chart.y_low[i])) stroke(c, plot, [chart.x[i], chart.x[i]], [chart.y_low[i], chart.y_high[i]], colourOf(i), { width: 0.8 });
    if (chart.x_low && known(chart.x_low[i])) stroke(c, plot, [chart.x_low[i], chart.x_high[i]], [chart.y[i], chart.y[i]], colourOf(i), { width: 0.8 });
  });
  c.globalAlpha = 1;
}

function dotsChart(host, chart, id) {
  const groups = chart.groups.length ? [...new Set(chart.groups)] : [""];
  const styles = looks(groups);
  if (groups.length > 1) host.append(legend(groups, styles, KIND_NAMES));
  const groupOf = (i) => chart.groups[i] ?? "";
  const plot = new Plot(host, chart.title, 420, () => ({
    x: linearAxis(numbersIn([chart.x, chart.x_low ?? [], chart.x_high ?? []]), chart.x_title),
    y: linearAxis(numbersIn([chart.y, chart.y_low ?? [], chart.y_high ?? []]), chart.y_title),
    zoomable: true,
    points: { x: chart.x.map((v) => v ?? NaN), y: chart.y.map((v) => v ?? NaN), look: chart.x.map((_, i) => styles.get(groupOf(i))) },
    under: (c, p) => {
      references(c, p, chart.lines, chart.groups.length ? styles : undefined);
      errorBars(c, p, chart, (i) => styles.get(groupOf(i))[0]);
    },
    labels: (c, p) => nameThem(c, p, chart.names, chart.names.map((name) => chart.labelled.includes(name)), chart.x, chart.y, Infinity),
    hover: (i) => [chart.names[i], groupOf(i), `${chart.x_title}: ${short(chart.x[i])}`, `${chart.y_title}: ${short(chart.y[i])}`].filter(Boolean),
  }));
  plot.canvas.id = `chart-${id}`;
  namesOfLines(host, chart.lines);
  const extra = [["x_low", "x low"], ["x_high", "x high"], ["y_low", "y low"], ["y_high", "y high"]].filter(([key]) => chart[key]);
  const rows = chart.names.map((name, i) => [name, groupOf(i), chart.x[i], chart.y[i], ...extra.map(([key]) => chart[key][i])]);
  host.append(tableView(id, ["name", "group", chart.x_title || "x", chart.y_title || "y", ...extra.map(([, title]) => title)], rows));
}

function barsChart(host, chart, id) {
  const styles = new Map(chart.series.map((name, i) => [name, CYCLE[i % CYCLE.length]]));
  if (chart.series.length > 1) host.append(legend(chart.series, styles));
  const bars = chart.series.flatMap((name, s) => chart.categories.map((_, k) => ({ name, s, k, v: chart.values[s][k] })));
  const base = (s, k) => (chart.stacked ? chart.values.slice(0, s).reduce((sum, row) => sum + (row[k] ?? 0), 0) : 0);
  const wide = chart.stacked ? 0.8 : 0.8 / chart.series.length;
  const middle = (s, k) => (chart.stacked ? k : k + (s - (chart.series.length - 1) / 2) * wide);
  const plot = new Plot(host, chart.title, 400, () => {
    const tops = bars.map((b) => base(b.s, b.k) + (b.v ?? 0));
    return {
      x: { low: -0.6, high: chart.categories.length - 0.4, title: "", ticks: chart.categories.map((text, i) => [i, chart.categories.length > 8 ? text.slice(0, 9) : text]) },
      y: linearAxis(numbersIn([tops, ...(chart.low ?? []), ...(chart.high ?? [])]), chart.y_title, { zero: true }),
      points: { x: bars.map((b) => middle(b.s, b.k)), y: bars.map((b) => (known(b.v) ? base(b.s, b.k) + b.v : NaN)), look: bars.map((b) => styles.get(b.name)), size: bars.map(() => 0.01) },
      under: (c, p) => {
        for (const b of bars) {
          if (!known(b.v)) continue;
          const [from, to] = [base(b.s, b.k), base(b.s, b.k) + b.v];
          c.fillStyle = styles.get(b.name)[0];
          c.fillRect(p.px(middle(b.s, b.k) - wide / 2), Math.min(p.py(from), p.py(to)), p.px(wide) - p.px(0), Math.abs(p.py(to) - p.py(from)));
          if (chart.low && known(chart.low[b.s][b.k])) stroke(c, p, [middle(b.s, b.k), middle(b.s, b.k)], [chart.low[b.s][b.k], chart.high[b.s][b.k]], ink("ink"), { width: 1 });
        }
      },
      hover: (i) => [chart.categories[bars[i].k], `${bars[i].name}: ${short(bars[i].v)}`],
    };
  });
  plot.canvas.id = `chart-${id}`;
  const rows = bars.map((b) => [chart.categories[b.k], b.name, b.v, chart.low?.[b.s][b.k] ?? null, chart.high?.[b.s][b.k] ?? null]);
  host.append(tableView(id, ["category", "series", chart.y_title || "value", "low", "high"], rows));
}

// --- models against a fit ------------------------------------------------------------------------

/** An axis of accuracies on its scale, and where a value is put: beyond an end, on it. */
function accuracyAxis({ scale, low, high, title }) {
  const { forward } = SCALES[scale];
  return {
    low,
    high,
    title,
    ticks: (a, b, most) => scaleTicks(scale, a, b, most).map((t) => [forward(t), `${short(100 * t)}%`]),
    forward: (v) => (known(v) ? forward(v) : NaN),
    at: (v) => (known(v) ? Math.min(high, Math.max(low, forward(v))) : NaN),
  };
}

/** Equations, key to groups, and the look of each model: a star if highlighted, × on an edge. */
function judgedHead(host, chart) {
  for (const text of chart.equations.flatMap((t) => t.split("\n"))) host.append(make("p", { class: "equation" }, text));
  const styles = looks(chart.groups);
  const named = chart.grouping === "kind" ? KIND_NAMES : {};
  const label = (g) => `${named[g] ?? g} (${chart.group.filter((one) => one === g).length})`;
  host.append(legend(chart.groups, styles, Object.fromEntries(chart.groups.map((g) => [g, label(g)]))));
  const look = chart.group.map((g, k) => {
    const [colour, marker] = styles.get(g);
    return [colour, chart.highlighted[k] ? "star" : chart.edge[k] ? "cross" : marker];
  });
  return { styles, look };
}

/** What to call a model of a chart. */
const calledIn = (chart, k) => chart.names?.[k] ?? chart.models[k];

/** All that is known of a model; `measured` are its accuracies in words. */
function judgedHover(chart, k, measured) {
  const around = (low, high) => (known(low) ? ` [${points(low)}, ${points(high)}]` : "");
  const level = short(100 * chart.band_level);
  return [
    calledIn(chart, k),
    `${chart.grouping}: ${chart.group[k]}, ${chart.fitted[k] ? "fitted" : "not fitted"}`,
    ...measured,
    ...(known(chart.effective[k])
      ? [
          `predicted: ${percent(chart.predicted[k])}`,
          `ρ = ${points(chart.effective[k])} points${around(chart.low[k], chart.high[k])} (${level} % interval)`,
          `ρ of ${level} % of baseline models:${around(chart.prediction_low[k], chart.prediction_high[k])}`,
          `p = ${short(chart.p_value[k])}, q = ${short(chart.q_value[k])}`,
        ]
      : []),
    ...(calledIn(chart, k) === chart.models[k] ? [] : [chart.models[k]]),
  ];
}

function judgedTable(chart, id, columns) {
  const more = ["predicted", "effective", "low", "high", "p_value", "q_value"];
  const rows = chart.models.map((name, k) => [name, chart.group[k], ...columns.map(([, values]) => values[k]), ...more.map((key) => chart[key][k]), chart.fitted[k] ? "yes" : "no"]);
  return tableView(id, ["model", chart.grouping, ...columns.map(([title]) => title), "predicted", "rho", "low", "high", "p", "q", "fitted"], rows);
}

function scatterChart(host, chart, id) {
  const { styles, look } = judgedHead(host, chart);
  const [xAxis, yAxis] = [chart.x_axis, chart.y_axis].map(accuracyAxis);
  const [at, up] = [chart.x.map(xAxis.at), chart.y.map(yAxis.at)];
  const trends = [...new Set(chart.trends.map((trend) => trend.name))];
  const colourOf = (name) => styles.get(name.replace(/ line$/, ""))?.[0] ?? (trends.length > 1 ? CYCLE[trends.indexOf(name) % CYCLE.length][0] : lineColour());
  const plot = new Plot(host, chart.title, 560, () => ({
    x: xAxis,
    y: yAxis,
    zoomable: true,
    points: {
      x: at,
      y: up,
      look,
      open: chart.fitted.map((fitted, k) => chart.edge[k] || !(fitted || chart.highlighted[k])),
      size: chart.highlighted.map((star, k) => (star || chart.edge[k] ? 6 : 3.5)),
      order: at.map((_, k) => k).sort((a, b) => chart.highlighted[a] - chart.highlighted[b]),
    },
    under: (c, p) => {
      stroke(c, p, [p.x.low, p.x.high], [p.x.low, p.x.high], ink("muted"), { dash: [6, 4], width: 1 });
      c.globalAlpha = 0.45;
      look.forEach(([colour], k) => {
        stroke(c, p, [chart.x_low[k], chart.x_high[k]].map(xAxis.at), [up[k], up[k]], colour, { width: 0.7 });
        stroke(c, p, [at[k], at[k]], [chart.y_low[k], chart.y_high[k]].map(yAxis.at), colour, { width: 0.7 });
      });
      c.globalAlpha = 1;
      for (const trend of chart.trends) {
        const [colour, xs, ys] = [colourOf(trend.name), trend.x.map(xAxis.forward), trend.predicted.map(yAxis.forward)];
        shade(c, p, xs, trend.low.map(yAxis.forward), trend.high.map(yAxis.forward), colour, 0.22);
        stroke(c, p, xs, ys, colour, { dash: [2, 4], width: 1.2 });
        stroke(c, p, xs, ys.map((v, i) => (trend.extrapolated[i] ? NaN : v)), colour, { width: 2 });
      }
    },
    labels: (c, p) => nameThem(c, p, chart.models.map((_, k) => calledIn(chart, k)), chart.labelled, at, up, Infinity),
    hover: (k) => {
      const said = (axis, v, low, high) => `${axis.setting}: ${percent(v)}${known(low) ? ` [${percent(low)}, ${percent(high)}]` : ""}`;
      return judgedHover(chart, k, [said(chart.x_axis, chart.x[k], chart.x_low[k], chart.x_high[k]), said(chart.y_axis, chart.y[k], chart.y_low[k], chart.y_high[k])]);
    },
  }));
  plot.canvas.id = `chart-${id}`;
  const fitted = (name) => chart.trends.filter((trend) => trend.name === name).reduce((sum, trend) => sum + trend.n, 0);
  host.append(make("p", { class: "small" }, `Lines: ${trends.map((name) => `${name} (${fitted(name)} models)`).join("; ")}; dashed: y = x.`));
  host.append(judgedTable(chart, id, [[chart.x_axis.setting, chart.x], [chart.y_axis.setting, chart.y]]));
}

function planeChart(host, chart, id) {
  const { look } = judgedHead(host, chart);
  const axes = chart.axes.map(accuracyAxis);
  const values = chart.models.map((_, k) => [...chart.x[k], chart.y[k]]);
  const space = new Space(host, chart.title, {
    cube: values.map((v) => v.map((one, j) => (axes[j].at(one) - axes[j].low) / (axes[j].high - axes[j].low) - 0.5)),
    axes: axes.map((axis, j) => ({ ...axis, title: chart.axes[j].setting })),
    look: (k) => look[k],
    filled: (k) => (chart.fitted[k] || chart.highlighted[k]) && !chart.edge[k],
    plane: ([a, b]) => chart.weights[0] * a + chart.weights[1] * b + chart.intercept,
    name: (k) => (chart.labelled[k] ? calledIn(chart, k) : ""),
    hover: (k) => judgedHover(chart, k, values[k].map((v, j) => `${chart.axes[j].setting}: ${percent(v)}`)),
  });
  space.canvas.id = `chart-${id}`;
  host.append(make("p", { class: "small" }, "Drag or use the arrow keys to turn."));
  host.append(judgedTable(chart, id, chart.axes.map((axis, j) => [axis.setting, values.map((v) => v[j])])));
}
