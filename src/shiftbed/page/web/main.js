// The page: its first view (what was found, in words), the list of views, and showing the chosen one.

/** A paragraph or a table of the author's own. */
function openingOf(finding) {
  if (!finding.table) return make("p", { class: "finding" }, finding.text);
  const [head, ...rows] = finding.table;
  return make(
    "div",
    { class: "scroll opening", tabindex: "0", role: "region", "aria-label": "Verdicts" },
    make("table", {}, make("thead", {}, make("tr", {}, head.map((h) => make("th", { scope: "col" }, h)))), make("tbody", {}, rows.map((row) => make("tr", {}, row.map((cell) => make("td", {}, cell)))))),
  );
}

/** A finding with the small chart that shows it: the shift, its line, the models in question. */
function findingOf(list, finding) {
  const shift = shiftNamed(finding.shift);
  const box = make("div", { class: "found-row" }, make("p", {}, finding.text));
  list.append(make("li", { class: finding.level }, box));
  if (shift?.robustness && shift.source.length === 1) {
    const named = finding.models.map((name) => MODELS.indexOf(name)).filter((i) => i >= 0);
    const rows = MODELS.map((_, i) => i).filter((i) => known(shift.robustness.effective[i]));
    const fit = baselineFit(shift);
    const link = make("a", { class: "small", href: address({ ...DEFAULTS, view: "scatter", shift: shift.name, pins: finding.models.length ? JSON.stringify(finding.models) : "" }) }, `${titleOf(shift.target)} over ${titleOf(shift.source[0])}`);
    const chart = make("div", { class: "finding-chart" });
    box.append(make("div", {}, chart, link));
    miniature(chart, shift, rows, fit, { named, scale: "logit" });
  }
}

function findingsView(host) {
  const told = DATA.findings.filter((f) => f.level === "finding" || f.level === "warning");
  const notes = DATA.findings.filter((f) => f.level === "note");
  const list = make("ol", { class: "findings" });
  fill(
    host,
    DATA.findings.filter((f) => f.level === "opening").map(openingOf),
    list,
    notes.length ? make("details", { class: "notes" }, make("summary", {}, `Notes (${notes.length})`), make("ul", { class: "small" }, notes.map((f) => make("li", {}, f.text)))) : null,
    make("h2", {}, "Lines"),
    linesTable(),
    DATA.out_of_line.length ? [make("h2", {}, "Models out of line"), outOfLine()] : null,
    DATA.missing.length
      ? make("details", { class: "notes" }, make("summary", {}, `Not in this report (${DATA.missing.length})`), make("ul", { class: "small" }, DATA.missing.map((m) => make("li", {}, `${m.title}: ${m.reason}.`))))
      : null,
    make("h2", {}, "Sources and citations"),
    DATA.sources.map((s) =>
      make(
        "p",
        { class: "small" },
        make("strong", {}, s.title || s.name),
        ` · ${many(s.models)} models, ${many(s.settings)} settings${s.means ? ` and ${s.means} means of them` : ""}. ${[s.source, s.licence].filter(Boolean).join(", ")} ${s.citation}`,
      ),
    ),
    make("p", { class: "small" }, DATA.provenance),
  );
  for (const finding of told) findingOf(list, finding);
}

function linesTable() {
  const open = (shift) => make("a", { href: address({ ...DEFAULTS, view: "scatter", shift: shift.name }) }, shiftTitle(shift));
  const rows = DATA.shifts.filter((s) => s.line);
  const header = ["Shift", "Kind", "ID", "OOD", "n", "Slope", "R²", "MAE (points)", "Pattern", "Trusted"];
  return make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Lines" },
    make(
      "table",
      {},
      make("thead", {}, make("tr", {}, header.map((h) => make("th", { scope: "col" }, h)))),
      make(
        "tbody",
        {},
        rows.map((s) =>
          make(
            "tr",
            {},
            make("td", {}, s.source.length === 1 ? open(s) : s.name),
            make("td", {}, s.kind),
            make("td", {}, s.source.map(titleOf).join(" + ")),
            make("td", {}, titleOf(s.target)),
            make("td", { class: "number" }, String(s.line.n)),
            make("td", { class: "number" }, s.line.slopes.map((v) => number(v)).join(" / ")),
            make("td", { class: "number" }, number(s.line.r2)),
            make("td", { class: "number" }, number(100 * s.line.mae, 2)),
            make("td", {}, s.pattern ?? ""),
            make("td", {}, s.reason ? `no: ${s.reason}` : "yes"),
          ),
        ),
      ),
    ),
  );
}

function outOfLine() {
  const header = ["model", "kind", "shift", "ID", "OOD", "rho", "low", "high", "q", "but"];
  const rows = DATA.out_of_line;
  const shown = rows.slice(0, 25);
  return make(
    "div",
    {},
    make(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Models out of line" },
      make(
        "table",
        {},
        make("thead", {}, make("tr", {}, ["Model", "Kind", "Shift", "ID", "OOD", "ρ (points)", "95 % interval", "q", "But"].map((h) => make("th", { scope: "col" }, h)))),
        make(
          "tbody",
          {},
          shown.map((r) =>
            make(
              "tr",
              {},
              make("td", {}, make("a", { href: address({ ...DEFAULTS, view: "scatter", shift: r[2], pins: JSON.stringify([r[0]]) }), title: r[0] }, breakable(nameOf(MODELS.indexOf(r[0]))))),
              make("td", {}, r[1]),
              make("td", {}, shiftNamed(r[2]) ? shiftTitle(shiftNamed(r[2])) : r[2]),
              make("td", { class: "number" }, percent(r[3])),
              make("td", { class: "number" }, percent(r[4])),
              make("td", { class: "number" }, points(r[5])),
              make("td", { class: "number" }, known(r[6]) ? `${points(r[6])} … ${points(r[7])}` : "–"),
              make("td", { class: "number" }, r[8] < 1e-4 ? "<0.0001" : number(r[8])),
              make("td", {}, r[9]),
            ),
          ),
        ),
      ),
    ),
    tableView("out-of-line", header, rows),
  );
}

views.set("findings", { title: "What was found", group: "Answer", question: "What stands out in these results?", show: findingsView });

// --- showing --------------------------------------------------------------------------------------

const ORDER = ["start", "leaderboard", "findings", "glossary", "scatter", "multiples", "plane", "grid", "relative", "synthetic"];
const GROUPS = ["Answer", "Explore", "Diagnose"];

/** Views that have something to say here. A page about no models has its charts only. */
function listedViews() {
  const first = ORDER.filter((id) => COUNT && views.has(id) && (views.get(id).possible?.() ?? true));
  const rest = [...views.keys()].filter((id) => !ORDER.includes(id));
  return [...first, ...rest];
}

function navigation(current) {
  const link = (id) =>
    make(
      "a",
      { href: address({ ...state, view: id, table: "", word: "" }), "aria-current": current === id ? "page" : null, "data-view": id, title: views.get(id).question },
      views.get(id).title,
    );
  const all = listedViews();
  const groups = GROUPS.map((group) => [group, all.filter((id) => (views.get(id).group ?? "Diagnose") === group)]);
  fill(
    document.getElementById("views"),
    groups
      .filter(([, ids]) => ids.length)
      .map(([group, ids]) => make("div", { class: "group", role: "group", "aria-label": group }, make("span", { "aria-hidden": "true" }, group), make("ul", {}, ids.map((id) => make("li", {}, link(id)))))),
  ).hidden = all.length < 2;
}

function render() {
  const host = document.getElementById("view");
  const all = listedViews();
  const id = all.includes(state.view) ? state.view : all[0];
  const active = document.activeElement;
  const keep = active?.getAttribute?.("data-name") ? `[data-name="${CSS.escape(active.getAttribute("data-name"))}"]` : active?.id && active !== host ? `#${CSS.escape(active.id)}` : null;
  const at = active?.plot?.at ?? -1;
  navigation(id);
  const { title: name, question } = views.get(id);
  const title = id === "start" || all.length < 2 ? null : [make("h2", {}, name), question ? make("p", { class: "question" }, question) : null];
  const body = make("div", { class: `view view-${id.replace(/[^\w-]/g, "-")}` });
  fill(host, title, body);
  views.get(id).show(body);
  const again = keep ? host.querySelector(keep) : null;
  again?.focus({ preventScroll: true });
  if (at >= 0) again?.plot?.goTo(at);
  document.body.dataset.ready = id;
}

listeners.add(() => render());
window.addEventListener("hashchange", () => {
  state = readState();
  render();
});

const QUESTIONS = {
  trajectories: "How does ρ change along training?",
  severities: "Which corruptions hurt, and how fast?",
  similarity: "Do models make the same mistakes?",
  predictiveness: "Which metric predicts which?",
  factors: "Which metrics measure the same thing?",
  patterns: "What does each scatter look like?",
  reliability: "Are models as often right as they are confident?",
  probes: "What else about a model predicts accuracy under shift?",
};

for (const chart of DATA.charts) {
  views.set(chart.id, { title: chart.title, group: "Diagnose", question: QUESTIONS[chart.id], show: (host) => chartView(host, chart) });
}
state = readState();
render();
window.shiftbed = Object.freeze({ fitLine, clopperPearson, normalCdf, normalQuantile, studentQuantile, SCALES, PLACING, placeOn, plainSentence, show: (changes) => update(changes) });
document.documentElement.dataset.interactive = String(Math.round(performance.now()));
