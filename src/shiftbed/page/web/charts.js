// Charts whose numbers were computed before: heat maps, curves, dots, bars, and panels of these.

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
  ({ heatmap: heatmapChart, curves: curvesChart, dots: dotsChart, bars: barsChart })[chart.type](host, chart, id);
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
function references(c, plot, lines) {
  for (const line of lines ?? []) {
    const upright = line.slope === null;
    const xs = upright ? [line.intercept, line.intercept] : [plot.x.low, plot.x.high];
    const ys = upright ? [plot.y.low, plot.y.high] : xs.map((x) => line.slope * x + line.intercept);
    stroke(c, plot, xs, ys, ink("muted"), { dash: [6, 4], width: 1 });
  }
}

function curvesChart(host, chart, id) {
  const names = chart.curves.map((curve) => curve.name);
  const styles = new Map(names.map((name, i) => [name, CYCLE[i % CYCLE.length]]));
  if (names.length > 1) host.append(legend(names, styles));
  const ends = (curve) => [curve.y, curve.low ?? [], curve.high ?? []];
  const flat = chart.curves.flatMap((curve, n) => curve.x.map((x, i) => ({ n, i, x, y: curve.y[i] })));
  const plot = new Plot(host, chart.title, 420, () => {
    const x = linearAxis(numbersIn(chart.curves.map((curve) => curve.x)), chart.x_title);
    if (chart.x_labels?.length) x.ticks = chart.x_labels.map((text, i) => [i, text]);
    return {
      x,
      y: linearAxis(numbersIn(chart.curves.flatMap(ends)), chart.y_title),
      points: { x: flat.map((p) => p.x ?? NaN), y: flat.map((p) => p.y ?? NaN), look: flat.map((p) => styles.get(names[p.n])), size: flat.map((p) => (chart.curves[p.n].points ? 3 : 0.01)) },
      under: (c, p) => {
        references(c, p, chart.lines);
        chart.curves.forEach((curve) => {
          const [colour] = styles.get(curve.name);
          if (curve.low) shade(c, p, curve.x, curve.low.map((v) => v ?? NaN), curve.high.map((v) => v ?? NaN), colour, 0.16);
          stroke(c, p, curve.x, curve.y.map((v) => v ?? NaN), colour, { dash: curve.dashed ? [6, 4] : [] });
        });
      },
      hover: (k) => {
        const { n, i } = flat[k];
        const curve = chart.curves[n];
        const around = curve.low && known(curve.low[i]) ? ` [${short(curve.low[i])}, ${short(curve.high[i])}]` : "";
        return [curve.name, `${chart.x_labels?.[curve.x[i]] ?? short(curve.x[i])}: ${short(curve.y[i])}${around}`];
      },
    };
  });
  plot.canvas.id = `chart-${id}`;
  const rows = flat.map(({ n, i }) => [names[n], chart.curves[n].x[i], chart.curves[n].y[i], chart.curves[n].low?.[i] ?? null, chart.curves[n].high?.[i] ?? null]);
  host.append(tableView(id, ["curve", chart.x_title || "x", chart.y_title || "y", "low", "high"], rows));
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
      references(c, p, chart.lines);
      c.globalAlpha = 0.5;
      chart.x.forEach((_, i) => {
        const [colour] = styles.get(groupOf(i));
        if (chart.y_low && known(chart.y_low[i])) stroke(c, p, [chart.x[i], chart.x[i]], [chart.y_low[i], chart.y_high[i]], colour, { width: 0.8 });
        if (chart.x_low && known(chart.x_low[i])) stroke(c, p, [chart.x_low[i], chart.x_high[i]], [chart.y[i], chart.y[i]], colour, { width: 0.8 });
      });
      c.globalAlpha = 1;
    },
    hover: (i) => [chart.names[i], groupOf(i), `${chart.x_title}: ${short(chart.x[i])}`, `${chart.y_title}: ${short(chart.y[i])}`].filter(Boolean),
  }));
  plot.canvas.id = `chart-${id}`;
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
