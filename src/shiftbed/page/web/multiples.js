// Small scatters of all (ID, OOD) pairs, a column per ID setting, the pattern named on each
// (wenzel2022, Figure S9).

function multiplesView(host) {
  const tasks = [...new Set(DATA.shifts.map((s) => s.task || s.kind))];
  const task = tasks.includes(state.task) ? state.task : tasks[0];
  const shifts = DATA.shifts.filter((s) => s.source.length === 1 && (s.task || s.kind) === task);
  const sources = [...new Set(shifts.map((s) => s.source[0]))];
  fill(
    host,
    make(
      "div",
      { class: "controls" },
      choice("Shifts", tasks, task, (v) => update({ task: v }), { "data-name": "task" }),
      choice("Scale", ["logit", "probit", "linear"], state.scale, (v) => update({ scale: v }), { "data-name": "scale" }),
    ),
    filterControls(),
  );
  const rows = shownModels();
  const grid = make("div", { class: "multiples" });
  host.append(grid);
  const table = [];
  for (const source of sources) {
    const columnBox = make("div", { class: "multiple-column" }, make("h3", {}, `ID: ${titleOf(source)}`));
    grid.append(columnBox);
    for (const shift of shifts.filter((s) => s.source[0] === source)) {
      const mine = rows.filter((i) => known(accuracy(source, i)) && known(accuracy(shift.target, i)));
      const fit = fitShift(shift.source, shift.target, state.scale, fitRows(mine, shift), shift.knee ?? null);
      table.push([shift.name, DATA.settings[source], DATA.settings[shift.target], shift.pattern ?? null, mine.length, fit.n, fit.lines[0]?.r2 ?? null]);
      const box = make(
        "div",
        { class: "multiple" },
        make("a", { href: address({ ...DEFAULTS, view: "scatter", shift: shift.name }) }, titleOf(shift.target)),
        make("span", { class: "small" }, ` ${shift.pattern ?? ""}${fit.lines[0] ? ` R²\u00a0${r2Text(fit.lines[0].r2)}` : ""} n\u00a0=\u00a0${many(mine.length)}`),
      );
      columnBox.append(box);
      miniature(box, shift, mine, fit);
    }
  }
  host.append(tableView("multiples", ["shift", "ID", "OOD", "pattern", "models", "fitted", "r2"], table));
}

/** A small scatter of a shift with its line; `named` models are large, with their names. */
function miniature(host, shift, rows, fit, { named = [], scale = state.scale } = {}) {
  const xs = rows.map((i) => accuracy(shift.source[0], i));
  const ys = rows.map((i) => accuracy(shift.target, i));
  const { of: groupOf, groups } = colouring("kind", rows);
  const styles = looks(groups);
  const special = new Set(named);
  new Plot(host, `${shiftTitle(shift)}: ${rows.length} models`, 170, () => {
    const xAxis = axisFor(xs, shift.source[0], "", scale);
    const yAxis = axisFor(ys, shift.target, "", scale);
    const at = positions(xs, shift.source[0], xAxis, scale);
    const up = positions(ys, shift.target, yAxis, scale);
    return {
      small: true,
      x: xAxis,
      y: yAxis,
      points: { x: at, y: up, look: rows.map((i) => styles.get(groupOf(i))), size: rows.map((i) => (special.has(i) ? 5 : 2)), faint: named.length ? rows.map((i) => !special.has(i)) : null, order: named.length ? rows.map((_, k) => k).sort((a, b) => special.has(rows[a]) - special.has(rows[b])) : null },
      under: (c, p) => {
        stroke(c, p, [p.x.low, p.x.high], [p.x.low, p.x.high], ink("muted"), { dash: [4, 3], width: 1 });
        if (!fit.reason) drawLines(c, p, fit, shift.source[0], { scale });
      },
      labels: (c, p) => nameThem(c, p, rows.map(nameOf), rows.map((i) => special.has(i)), at, up),
      hover: (k) => [nameOf(rows[k]), ...(known(shift.robustness?.effective[rows[k]]) ? [`ρ ${points(shift.robustness.effective[rows[k]])} points`] : []), `ID ${percent(xs[k])}, OOD ${percent(ys[k])}`],
    };
  });
}

views.set("multiples", { title: "All shifts", group: "Explore", question: "On which shifts does one accuracy predict the other?", show: multiplesView, possible: () => DATA.shifts.some((s) => s.source.length === 1) });
