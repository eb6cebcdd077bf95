// Place your model: accuracies typed, pasted or dropped, and where they put it. All of it is in the
// address (place=val:0.7613,imagenet-v2:0.6321; several models between ';', each with NAME= in front).

const LINES = PLACING.lines;
const YOURS = "your model";

/** Case, spaces, - and _ do not matter, as for Python's names of test sets. */
const plainName = (name) => name.toLowerCase().replace(/[-_\s]/g, "");

const settingNames = new Map(); // what a setting may be called → its number
for (const line of LINES) {
  for (const setting of [line.source, line.target]) {
    const id = DATA.settings[setting];
    for (const name of [titleOf(setting), ...(PLACING.names[id] ?? [])]) {
      if (!settingNames.has(plainName(name))) settingNames.set(plainName(name), setting);
    }
  }
}
for (const line of LINES) settingNames.set(plainName(line.shift), line.target);
for (const line of LINES) for (const s of [line.source, line.target]) settingNames.set(plainName(DATA.settings[s]), s);
const findSetting = (name) => settingNames.get(plainName(name)) ?? null;

/** An accuracy as 0.7613, 76.13 % or 38065/50000: {value, n} or {wrong: what is wrong with it}. */
function readAccuracy(text) {
  const given = text.trim().replace("−", "-");
  const counts = /^(\d+)\s*\/\s*(\d+)$/.exec(given);
  if (counts) {
    const [right, n] = [Number(counts[1]), Number(counts[2])];
    return n > 0 && right <= n ? { value: right / n, n } : { wrong: `${given} is not a count of right answers out of a total` };
  }
  const percentage = /^([\d.]+)\s*%$/.exec(given);
  const value = percentage ? Number(percentage[1]) / 100 : given === "" ? NaN : Number(given);
  if (!Number.isFinite(value)) return { wrong: `expected an accuracy such as 0.7613, 76.13 % or 38065/50000, got “${given}”` };
  if (value < 0 || value > 1) return { wrong: `an accuracy lies between 0 and 1, got ${given}${value > 1 && value <= 100 ? `; if it is a percentage, write ${given} %` : ""}` };
  return { value, n: 0 };
}

// --- the address ----------------------------------------------------------------------------------

const escapePart = (text) => text.replace(/[%,;:=]/g, (c) => encodeURIComponent(c));
const unescapePart = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/** Models as [{name, entries: [[setting, accuracy], …]}], texts as they were given. */
function readPlaced(text) {
  return text.split(";").filter(Boolean).map((part) => {
    const at = part.indexOf("=");
    const entries = part.slice(at + 1).split(",").filter(Boolean).map((one) => {
      const colon = one.lastIndexOf(":");
      return colon < 0 ? [unescapePart(one), ""] : [unescapePart(one.slice(0, colon)), unescapePart(one.slice(colon + 1))];
    });
    return { name: at < 0 ? YOURS : unescapePart(part.slice(0, at)), entries };
  });
}

const writePlaced = (models) =>
  models
    .filter((m) => m.entries.length)
    .map((m) => (m.name && m.name !== YOURS ? `${escapePart(m.name)}=` : "") + m.entries.map(([s, a]) => `${escapePart(s)}:${escapePart(a.trim())}`).join(","))
    .join(";");

// --- tables that are pasted or dropped ------------------------------------------------------------

function readCsv(text) {
  const separator = text.split("\n")[0].includes("\t") ? "\t" : text.split("\n")[0].includes(";") ? ";" : ",";
  const rows = [[""]];
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    const row = rows.at(-1);
    if (quoted && c === '"' && text[i + 1] === '"') row[row.length - 1] += text[++i];
    else if (c === '"') quoted = !quoted;
    else if (c === separator && !quoted) row.push("");
    else if (c === "\n" && !quoted) rows.push([""]);
    else if (c !== "\r") row[row.length - 1] += c;
  }
  return rows.map((row) => row.map((cell) => cell.trim())).filter((row) => row.some(Boolean));
}

/** A table with a row per model and a column per test set, or with columns setting and accuracy. */
function readTable(text) {
  const [header, ...rows] = readCsv(text);
  if (!header || !rows.length) return { wrong: "expected a table with a header: model, then a column per test set" };
  const column = (...names) => header.findIndex((h) => names.includes(h.toLowerCase()));
  const [model, setting, value, n] = [column("model", "name"), column("setting", "test_set", "test set", "dataset"), column("accuracy", "acc", "value", "top1"), column("n", "images")];
  const found = new Map();
  const add = (row, name, accuracyText) => {
    const who = model >= 0 ? row[model] || YOURS : YOURS;
    if (!found.has(who)) found.set(who, []);
    found.get(who).push([name, accuracyText]);
  };
  if (setting >= 0 && value >= 0) {
    for (const row of rows) {
      const size = n >= 0 ? Number(row[n]) : 0;
      const read = readAccuracy(row[value] ?? "");
      add(row, row[setting], size > 0 && read.value !== undefined && !read.n ? `${Math.round(read.value * size)}/${size}` : row[value] ?? "");
    }
  } else {
    const settings = header.map((h, i) => [h, i]).filter(([h, i]) => i !== model && findSetting(h) !== null);
    if (!settings.length) return { wrong: `none of the columns ${header.join(", ")} is a test set of this page` };
    for (const row of rows) for (const [name, i] of settings) if (row[i]) add(row, name, row[i]);
  }
  return { models: [...found].map(([name, entries]) => ({ name, entries })) };
}

// --- which lines, and what they say ---------------------------------------------------------------

/** Titles of the first test sets, and how many more there are. */
function someSets(most = 6) {
  const all = [...new Set(LINES.flatMap((l) => [l.source, l.target]).map(titleOf))];
  return all.slice(0, most).join("; ") + (all.length > most ? ` and ${all.length - most} more` : "");
}

/** {placed, wrong}: the model on every line that its accuracies allow, and what is wrong with them. */
function placeModel(model) {
  const given = new Map();
  const wrong = [];
  for (const [name, text] of model.entries) {
    const setting = findSetting(name);
    const read = readAccuracy(text);
    if (setting === null) wrong.push(`no test set “${name}” here; those there are: ${someSets()}`);
    else if (read.wrong) text.trim() && wrong.push(`${titleOf(setting)}: ${read.wrong}`);
    else if (given.has(setting)) wrong.push(`${titleOf(setting)} is given twice`);
    else given.set(setting, read);
  }
  const placed = [];
  for (const [target, y] of given) {
    const towards = LINES.filter((l) => l.target === target);
    const own = towards.filter((l) => given.has(l.source) && !isWhole(l));
    const lines = own.length ? own : towards.filter((l) => given.has(l.source));
    for (const line of lines) {
      const x = given.get(line.source);
      placed.push({ model, ...placeOn(line, x.value, y.value, [x.n, y.n]) });
    }
    if (towards.length && !lines.length && !LINES.some((l) => l.source === target)) {
      wrong.push(`${titleOf(target)} also needs the accuracy on ${[...new Set(towards.map((l) => titleOf(l.source)))].join(" or ")}`);
    }
  }
  if (!placed.length && !wrong.length && given.size) wrong.push("type an accuracy on an ordinary (ID) and on a shifted (OOD) test set");
  return { placed, wrong };
}

/** Whether a line is that on the whole ID set where the shift has a class twin. */
function isWhole(line) {
  const shift = shiftNamed(line.shift);
  return shift !== undefined && shift.full_source === line.source && shift.source[0] !== line.source;
}

const CHIPS = { "out of line": "out", "on the line": "on", "off the line, within the baseline models' spread": "off", "within the baseline models' spread": "off" };
const VERDICT_WORDS = { "out of line": "out of line", "on the line": "on the line", "off the line, within the baseline models' spread": "ordinary", "within the baseline models' spread": "ordinary" };

/** What the number means, in words that need no statistics: those of Python's `plain_sentence`. */
function plainSentence(one) {
  const ends = one.within(PLACING.level);
  const outside = !(ends[0] <= one.rho && one.rho <= ends[1]);
  const digits = outside && points(one.rho, 1) === points(ends[one.rho > 0 ? 1 : 0], 1) ? 2 : 1;
  const [low, high] = ends.map((v) => points(v, digits));
  const range = low.slice(1) === high.slice(1) ? `±${high.slice(1)}` : `${low} to ${high}`;
  const chance = outside && !one.out ? ", and of many models some fall outside by chance" : "";
  const others = `${Number((100 * PLACING.level).toPrecision(6))} in 100 baseline models lie within ${range}${chance}`;
  const off = `${Math.abs(100 * one.rho).toFixed(digits)} points ${one.rho >= 0 ? "above" : "below"} the line`;
  if (one.out) return `${one.rho > 0 ? "More" : "Less"} robust than its accuracy predicts: ${off}, where ${others}.`;
  if (one.verdict === "on the line") return `As robust as its accuracy predicts: ${off}, as chance in the test images allows; ${others}.`;
  return `${off}; ${outside ? "not out of line" : "ordinary"}: ${others}.`;
}

function nearestModels(one, most = 5) {
  const { source, target } = one.line;
  return MODELS.map((_, i) => i)
    .filter((i) => known(accuracy(source, i)) && known(accuracy(target, i)))
    .map((i) => ({ i, gap: Math.abs(accuracy(source, i) - one.x) }))
    .sort((a, b) => a.gap - b.gap)
    .slice(0, most)
    .map(({ i }) => ({ i, rho: placeOn(one.line, accuracy(source, i), accuracy(target, i)).rho }));
}

/** A verdict as a word; of models out of line it says on which side. */
function chip(verdict, rho) {
  const out = verdict === "out of line";
  const side = !out ? "" : rho > 0 ? "▲ " : "▼ ";
  return make("span", { class: `chip chip-${out && rho < 0 ? "below" : CHIPS[verdict] ?? "off"}` }, side, VERDICT_WORDS[verdict] ?? verdict ?? "–");
}

/** A probability after its name: "= 0.0715" or "< 0.0001". */
const chance = (p) => (p < 1e-4 ? "<\u00a00.0001" : `=\u00a0${short(p)}`);

/** A line by its OOD set, and by its ID set too where several shifts have that OOD set. */
function titleOfLine(line) {
  const shift = shiftNamed(line.shift);
  return shift?.source.length === 1 && shift.source[0] === line.source ? shiftTitle(shift) : titleOf(line.target);
}

function placedCard(one, several) {
  const { line } = one;
  const show = () => update({ shift: line.shift });
  const around = known(one.low) ? `95 % ` : "";
  return make(
    "article",
    { class: "placed", "data-shift": line.shift, "data-rho": one.rho, "data-low": one.low, "data-high": one.high, "data-verdict": one.verdict, "data-p": one.p, "data-q": one.q },
    make("h3", {}, several ? `${one.model.name} on ` : null, make("button", { type: "button", class: "link", onclick: show }, titleOfLine(line)), " ", chip(one.verdict, one.rho)),
    make("p", { class: "answer" }, plainSentence(one)),
    make(
      "p",
      { class: "small" },
      term("rho", "ρ"),
      ` = ${points(one.rho)} points`,
      known(one.low) ? [", ", around, term("interval", "interval"), ` ${points(one.low)} … ${points(one.high)}`] : null,
      `; ${percent(one.y)} where the line predicts ${percent(one.predicted)}; p ${chance(one.p)}, q ${chance(one.q)}.`,
    ),
    one.caveats.length ? make("ul", { class: "caveats small" }, one.caveats.map((text) => make("li", {}, text))) : null,
    commandOf(one),
  );
}

/** What to type to get the same from the command line, where it knows the testbed. */
function commandOf(one) {
  const [testbed, { source, target, shift }] = [DATA.sources[0], one.line];
  if (!testbed?.published) return null;
  const which = testbed.name === USUAL_TESTBED ? "" : ` --testbed ${testbed.name}`;
  const plain = (name) => /^[\w.+-]+$/.test(name);
  const word = (name, side) => (plain(name) ? `${name}=${shellNumber(one, side)}` : `'${name}=${shellNumber(one, side)}'`);
  const ood = plain(shift) ? shift : DATA.settings[target];
  return make("p", { class: "small command" }, make("code", {}, `shiftbed place${which} --id ${word(DATA.settings[source], 0)} --ood ${word(ood, 1)}`));
}

const USUAL_TESTBED = "imagenet-testbed-2020";

const shellNumber = (one, side) => {
  const n = one.given[side];
  const value = side ? one.y : one.x;
  return n ? `${Math.round(value * n)}/${n}` : String(Number(value.toPrecision(10)));
};

function nearestTable(one) {
  return make(
    "table",
    { class: "nearest" },
    make("caption", {}, `Nearest models by accuracy on ${titleOf(one.line.source)}`),
    make("thead", {}, make("tr", {}, ["Model", "ID", "OOD", "ρ"].map((h) => make("th", { scope: "col" }, h)))),
    make(
      "tbody",
      {},
      nearestModels(one).map(({ i, rho }) =>
        make("tr", {}, make("td", {}, breakable(nameOf(i))), make("td", { class: "number" }, percent(accuracy(one.line.source, i))), make("td", { class: "number" }, percent(accuracy(one.line.target, i))), make("td", { class: "number" }, points(rho))),
      ),
    ),
  );
}

function placedTable(all) {
  const header = ["model", "shift", "ID", "OOD", "predicted", "rho", "low", "high", "p", "q", "verdict", "caveats"];
  return tableView("placed", header, all.map((o) => [o.model.name, o.line.shift, o.x, o.y, o.predicted, o.rho, o.low, o.high, o.p, o.q, o.verdict, o.caveats.join("; ")]));
}

/** The answer below the form; `#place-result` carries the first one's numbers. */
function placeResult(models) {
  const host = make("section", { id: "place-result", "aria-live": "polite", "aria-label": "Where your model stands" });
  const all = [];
  for (const model of models) {
    const { placed, wrong } = placeModel(model);
    all.push(...placed);
    host.append(...wrong.map((text) => make("p", { class: "warning" }, models.length > 1 ? `${model.name}: ${text}.` : `${text}.`)));
  }
  if (!all.length) return { host, all };
  const [first] = all;
  Object.assign(host.dataset, { rho: first.rho, low: first.low, high: first.high, verdict: first.verdict, shift: first.line.shift });
  const several = models.length > 1;
  host.append(...all.slice(0, MOST_PLACED).map((one) => placedCard(one, several)));
  if (all.length > MOST_PLACED) host.append(make("p", { class: "small" }, `${all.length - MOST_PLACED} more in the table.`));
  host.append(nearestTable(first));
  if (all.length > 1) host.append(placedTable(all));
  const cite = DATA.sources.map((s) => s.citation).filter(Boolean)[0];
  host.append(make("p", { class: "small" }, `Cite: ${cite ?? ""} The line and ρ: Taori et al., NeurIPS 2020. This page’s address holds what you typed; nothing was sent.`));
  return { host, all };
}

const MOST_PLACED = 6;

// --- the form -------------------------------------------------------------------------------------

/** Accuracies that a model of the page has, under its own name. */
function exampleOf(line) {
  const found = foundFirst(MODELS.map((_, i) => i), "resnet50").find((i) => known(accuracy(line.source, i)) && known(accuracy(line.target, i)));
  const entries = [line.source, line.target].map((s) => [DATA.settings[s], String(Number(accuracy(s, found).toFixed(4)))]);
  return writePlaced([{ name: `like ${nameOf(found)}`, entries }]);
}

let asked = 0; // rows that the form shows beyond those with a number

function placeForm(onchange) {
  const models = readPlaced(state.place);
  const [first] = models;
  const start = LINES[0];
  const entries = (first?.entries ?? []).map(([s, a]) => [findSetting(s) === null ? s : DATA.settings[findSetting(s)], a]);
  const preset = shiftNamed(state.shift) ? LINES.find((l) => l.shift === state.shift) ?? start : start;
  for (const setting of [preset.source, preset.target]) if (entries.length < 2) entries.push([DATA.settings[setting], ""]);
  while (entries.length < 2 + asked) {
    const spare = LINES.find((l) => !entries.some(([s]) => s === DATA.settings[l.target]));
    entries.push([DATA.settings[spare?.target ?? start.target], ""]);
  }
  const write = (rest = models.slice(1)) => {
    const filled = entries.filter(([, a]) => a.trim() !== "");
    onchange(writePlaced([{ name: name.value.trim() || YOURS, entries: filled }, ...rest]));
  };
  const ids = [...new Set(LINES.map((l) => l.source))];
  const oods = [...new Set(LINES.map((l) => l.target))].filter((s) => !ids.includes(s));
  const group = (label, list, value) => make("optgroup", { label }, list.map((s) => make("option", { value: DATA.settings[s], selected: DATA.settings[s] === value }, titleOf(s))));
  const name = make("input", { type: "text", id: "place-name", "data-name": "place-name", placeholder: YOURS, oninput: () => write() });
  name.value = first && first.name !== YOURS ? first.name : "";
  const rows = entries.map(([setting, text], k) => {
    const side = oods.includes(findSetting(setting)) ? "OOD" : "ID";
    const select = make("select", { "aria-label": `Test set ${k + 1}`, "data-name": `place-setting-${k}`, onchange: (e) => { entries[k][0] = e.target.value; write(); } }, group("Ordinary (ID)", ids, setting), group("Shifted (OOD)", oods, setting));
    const input = make("input", { type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": `Accuracy ${k + 1}`, "data-name": `place-${k}`, placeholder: side === "ID" ? "0.7613" : "0.6321", oninput: (e) => { entries[k][1] = e.target.value; write(); } });
    input.value = text;
    return make("div", { class: "place-row" }, select, input);
  });
  const take = (text) => {
    const read = readTable(text);
    if (read.wrong) fill(said, read.wrong + ".");
    else {
      asked = 0;
      update({ place: writePlaced(read.models) });
    }
  };
  const said = make("p", { class: "warning", role: "status" });
  const area = make("textarea", { id: "place-csv", rows: "3", placeholder: `model,${DATA.settings[start.source]},${DATA.settings[start.target]}\nmine,0.7613,0.6321`, onpaste: (e) => { e.preventDefault(); area.value = e.clipboardData.getData("text"); take(area.value); }, onchange: (e) => take(e.target.value) });
  const form = make(
    "form",
    { class: "place", "aria-label": "Place your model", onsubmit: (e) => e.preventDefault() },
    make("div", { class: "place-rows" }, rows),
    make(
      "div",
      { class: "controls" },
      make("button", { type: "button", "data-name": "place-more", onclick: () => { asked = entries.length - 1; update({}); } }, "+ another test set"),
      make("span", { class: "field" }, make("label", { for: "place-name" }, "Name"), name),
      state.place ? null : make("button", { type: "button", "data-name": "place-example", onclick: () => update({ place: exampleOf(preset) }) }, "Try an example"),
      state.place ? make("button", { type: "button", "data-name": "place-clear", onclick: () => { asked = 0; update({ place: "" }); } }, "Clear") : null,
    ),
    make("details", { class: "csv-in" }, make("summary", {}, "Several models: paste or drop a CSV"), make("label", { for: "place-csv", class: "small" }, "A row per model, a column per test set; or columns model, setting, accuracy, n."), area, said),
  );
  const drop = (e) => {
    e.preventDefault();
    const [file] = e.dataTransfer?.files ?? [];
    if (file) file.text().then(take);
  };
  form.addEventListener("dragover", (e) => e.preventDefault());
  form.addEventListener("drop", drop);
  return form;
}
