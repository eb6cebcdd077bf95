// Models of a shift in a table: sorted, searched, filtered, with the columns one wants, and as CSV.

const BOARD_ROWS = 50;
const BOARD_DEFAULT = ["ID", "OOD", "ρ", "interval", "verdict", "kind", "family", "training_data", "year"];
/** What a small screen shows without scrolling comes first on it. */
const boardDefault = () => (narrow() ? ["ρ", "verdict", ...BOARD_DEFAULT.filter((name) => name !== "ρ" && name !== "verdict")] : BOARD_DEFAULT);

/** Columns that there are: those of the shift, then what is known of models. */
function boardColumns(shift) {
  const r = shift.robustness;
  const own = {
    ID: { value: (i) => accuracy(shift.source[0], i), show: percent, number: true, title: `Accuracy on ${titleOf(shift.source[0])}` },
    OOD: { value: (i) => accuracy(shift.target, i), show: percent, number: true, title: `Accuracy on ${titleOf(shift.target)}` },
    ρ: { value: (i) => r.effective[i], show: points, number: true, title: "Effective robustness, in points" },
    interval: { value: (i) => r.effective[i], cell: (i) => bar(shift, i), title: "ρ with its 95 % interval; the vertical line is 0" },
    verdict: { value: (i) => r.verdict[i], cell: (i) => make("td", { class: "verdict" }, chip(r.verdict[i], r.effective[i]), " ", make("span", { class: "small" }, reasonOf(shift, i))), title: "Verdict and its reason" },
    q: { value: (i) => r.q_value[i], show: (v) => (v < 1e-4 ? "<0.0001" : number(v)), number: true, title: "False discovery rate at which the model is out of line" },
  };
  for (const [name, values] of Object.entries(DATA.models.columns)) {
    const numeric = isNumeric(name);
    own[name] ??= { value: (i) => values[i], show: (v) => (numeric ? short(v) : name === "kind" ? KIND_NAMES[v] ?? asText(v) : asText(v)), number: numeric, title: columnTitle(name) };
  }
  return own;
}

const columnTitle = (name) => name.replaceAll("_", " ");

/** Why the verdict is what it is, or what speaks against it. */
function reasonOf(shift, i) {
  const r = shift.robustness;
  const doubts = [shift.reason ? "line not trusted" : "", r.artefact[i] ?? "", r.extrapolated[i] ? "extrapolated" : ""].filter(Boolean);
  if (doubts.length) return doubts.join("; ");
  const q = `q ${chance(Number(r.q_value[i].toPrecision(2)))}`;
  if (r.verdict[i] === "out of line") return q;
  return r.verdict[i]?.startsWith("off") ? `off the line, ${q}` : "";
}

/** ρ as a dot on its interval. */
function bar(shift, i) {
  const r = shift.robustness;
  const [low, high] = (shift.ends ??= r.effective.reduce(([a, b], v, k) => (known(v) ? [Math.min(a, r.low[k] ?? v), Math.max(b, r.high[k] ?? v)] : [a, b]), [0, 0]));
  const at = (v) => `${(100 * (v - low)) / (high - low || 1)}%`;
  const track = make("span", { class: "track", role: "img", "aria-label": known(r.low[i]) ? `${points(r.low[i])} to ${points(r.high[i])}` : "no interval" });
  const zero = make("span", { class: "zero" });
  zero.style.left = at(0);
  track.append(zero);
  if (known(r.low[i])) {
    const span = make("span", { class: "reach" });
    span.style.left = at(r.low[i]);
    span.style.width = `${(100 * (r.high[i] - r.low[i])) / (high - low || 1)}%`;
    track.append(span);
  }
  const out = r.verdict[i] === "out of line";
  const dot = make("span", { class: !out ? "dot" : r.effective[i] < 0 ? "dot dot-below" : "dot dot-out" });
  dot.style.left = at(r.effective[i]);
  track.append(dot);
  return make("td", {}, track);
}

function boardRows(shift) {
  const r = shift.robustness;
  const verdict = state.verdict ?? "";
  let rows = shownModels().filter((i) => known(r.effective[i]) && (!verdict || VERDICT_WORDS[r.verdict[i]] === verdict));
  if (state.search.trim()) rows = foundFirst(rows.filter((i) => matches(i)));
  return rows;
}

/** The exact name first, then names that begin with what was typed, then the rest. */
function foundFirst(rows, text = state.search) {
  const typed = text.trim().toLowerCase();
  const rank = (i) => {
    const names = [MODELS[i], nameOf(i)].map((n) => n.toLowerCase());
    return names.includes(typed) ? 0 : names.some((n) => n.startsWith(typed)) ? 1 : 2;
  };
  return rows.map((i) => [rank(i), i]).sort((a, b) => a[0] - b[0]).map(([, i]) => i);
}

function sortedRows(rows, columns) {
  const [by, way] = (state.order || "ρ:down").split(/:(?=[^:]*$)/);
  const of = columns[by];
  if (!of && by !== "model") return rows;
  const value = by === "model" ? nameOf : of.value;
  const sign = way === "up" ? 1 : -1;
  const keyed = rows.map((i) => [value(i), i]);
  const missing = ([v]) => v === null || v === undefined || Number.isNaN(v);
  keyed.sort((a, b) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return sign * (typeof a[0] === "number" ? a[0] - b[0] : String(a[0]).localeCompare(String(b[0])));
  });
  return keyed.map(([, i]) => i);
}

function leaderboardView(host) {
  const shifts = judged();
  const shift = shifts.find((s) => s.name === state.shift) ?? mostTelling(shifts);
  const columns = boardColumns(shift);
  const chosen = (state.fields ? listOf("fields") : boardDefault()).filter((name) => columns[name]);
  const table = make("div");
  const show = () => fill(table, boardTable(shift, columns, chosen));
  fill(
    host,
    make(
      "div",
      { class: "controls" },
      choice("Shift", shifts.map((s) => [s.name, shiftTitle(s)]), shift.name, (v) => update({ shift: v }), { "data-name": "shift" }),
      searchBox(show),
      choice("Verdict", [["", "any"], "out of line", "on the line", "ordinary"], state.verdict ?? "", (v) => update({ verdict: v }), { "data-name": "verdict" }),
      columnChooser(columns, chosen),
    ),
    filterControls(),
    boardSentence(shift),
    table,
  );
  show();
}

function boardSentence(shift) {
  const out = fairlyOut(shift);
  const [above, below] = [out.filter((i) => shift.robustness.effective[i] > 0).length, out.filter((i) => shift.robustness.effective[i] < 0).length];
  const all = outOf(shift).length;
  const count = (n) => (n === 1 ? "1 model is" : `${many(n)} models are`);
  const main = shift.reason
    ? [`The line of ${shiftTitle(shift)} is not `, term("trust", "trusted"), ` (${shift.reason}): ranks here say little.`]
    : all
      ? [`${count(above)} more robust on ${titleOf(shift.target)} than the accuracy on ${titleOf(shift.source[0])} predicts (`, term("out", "out of line"), ` above the `, term("line", "line"), `), ${below} less${all > out.length ? `, ${all - out.length} for a known artefact` : ""}; of ${many(judgedCount(shift))} judged.`]
      : [`No model of ${many(judgedCount(shift))} is robust on ${titleOf(shift.target)} beyond what its accuracy on ${titleOf(shift.source[0])} predicts: none is `, term("out", "out of line"), ". The highest ", term("rho", "ρ"), " come first."];
  return make("p", { class: "finding", id: "board-sentence" }, main, " ", make("a", { href: address({ ...DEFAULTS, view: "scatter", shift: shift.name, place: state.place }) }, "See them on the chart"));
}

function searchBox(show) {
  const input = make("input", {
    type: "search",
    id: `w${++widgets}`,
    "data-name": "search",
    placeholder: "part of a model's name",
    oninput: (e) => {
      update({ search: e.target.value, rows: "" }, { quiet: true });
      show();
    },
  });
  input.value = state.search;
  return make("span", { class: "field" }, make("label", { for: input.id }, "Search"), input);
}

function columnChooser(columns, chosen) {
  const change = (name, on) => {
    const next = Object.keys(columns).filter((c) => (c === name ? on : chosen.includes(c)));
    update({ fields: JSON.stringify(next) === JSON.stringify(BOARD_DEFAULT.filter((c) => columns[c])) ? "" : JSON.stringify(next) });
  };
  return make(
    "details",
    { class: "columns", open: Boolean(state.fields) },
    make("summary", {}, "Columns"),
    make("div", { class: "controls" }, Object.keys(columns).map((name) => tick(columnTitle(name), chosen.includes(name), (on) => change(name, on), { "data-column": name }))),
  );
}

function boardTable(shift, columns, chosen) {
  const found = boardRows(shift);
  const searching = state.search.trim() !== "";
  const rows = searching && !state.order ? found : sortedRows(found, columns);
  if (!rows.length) return make("p", { class: "warning", role: "status" }, searching ? `No model’s name has “${state.search.trim()}”.` : "No model is left by these filters.");
  const [by, way] = (state.order || (searching ? "" : "ρ:down")).split(/:(?=[^:]*$)/);
  const head = (name, title, numeric) => {
    const next = by === name && way === "down" ? "up" : by === name ? "down" : numeric ? "down" : "up";
    const arrow = by === name ? (way === "down" ? " ▼" : " ▲") : "";
    return make(
      "th",
      { scope: "col", class: numeric ? "number" : null, "aria-sort": by === name ? (way === "down" ? "descending" : "ascending") : null },
      make("button", { type: "button", class: "link", title, "data-name": `sort-${name}`, onclick: () => update({ order: `${name}:${next}` }) }, `${columnTitle(name)}${arrow}`),
    );
  };
  const limit = state.rows === "all" ? rows.length : BOARD_ROWS;
  const body = make("tbody");
  const pins = pinned();
  for (const i of rows.slice(0, limit)) {
    const name = make("a", { href: address({ ...DEFAULTS, view: "scatter", shift: shift.name, pins: JSON.stringify([MODELS[i]]) }), title: MODELS[i] }, breakable(nameOf(i)));
    body.append(
      make(
        "tr",
        { class: pins.has(MODELS[i]) ? "pinned" : null },
        make("td", { class: "model" }, name),
        chosen.map((c) => columns[c].cell?.(i) ?? make("td", { class: columns[c].number ? "number" : c === "kind" ? "kind" : null }, columns[c].number ? columns[c].show(columns[c].value(i)) : breakable(columns[c].show(columns[c].value(i))))),
      ),
    );
  }
  const more = rows.length > limit ? make("button", { type: "button", "data-name": "more", onclick: () => update({ rows: "all" }) }, `Show all ${many(rows.length)}`) : null;
  return [
    make(
      "div",
      { class: "scroll board", tabindex: "0", role: "region", "aria-label": `Leaderboard: ${shiftTitle(shift)}` },
      make("table", { id: "board" }, make("thead", {}, make("tr", {}, head("model", "Model", false), chosen.map((c) => head(c, columns[c].title, columns[c].number)))), body),
    ),
    make("p", { class: "controls" }, more, make("button", { type: "button", class: "csv", onclick: () => boardCsv(shift, rows) }, `Download CSV (${many(rows.length)} models)`)),
  ];
}

function boardCsv(shift, rows) {
  const r = shift.robustness;
  const about = Object.keys(DATA.models.columns);
  const header = ["model", "shift", DATA.settings[shift.source[0]], DATA.settings[shift.target], "rho", "low", "high", "q", "verdict", "interval", "trusted", "caveats", ...about];
  const body = rows.map((i) => [
    MODELS[i], shift.name, accuracy(shift.source[0], i), accuracy(shift.target, i), r.effective[i], r.low[i], r.high[i], r.q_value[i], r.verdict[i], r.interval[i],
    shift.reason ? "no" : "yes", r.caveats[i].map((k) => shift.caveats[k]).join("; "), ...about.map((name) => column(name)[i]),
  ]);
  download(`${shift.name}.csv`, csv(header, body));
}

views.set("leaderboard", { title: "Leaderboard", group: "Answer", question: "Which models are robust on this shift?", show: leaderboardView, possible: () => judged().length > 0 });
