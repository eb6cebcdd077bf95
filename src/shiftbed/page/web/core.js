// What every view uses: the data, making elements, formatting numbers, and the state, which is kept
// in the address after '#' so that a link to the page is a link to what it shows.
// Text from data only ever becomes text: nothing here or elsewhere parses HTML.

/** The data block: JSON, deflated, in base64. */
async function readData() {
  const bytes = Uint8Array.from(atob(document.getElementById("data").textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).json();
}

const DATA = await readData();
const MODELS = DATA.models.name;
const COUNT = MODELS.length;
/** What to call a model: what sets it apart, where its own name is a hash. */
const nameOf = (i) => DATA.models.label?.[i] ?? MODELS[i];

/** An element with attributes, listeners (onclick, …) and children; strings become text. */
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Put children into an element in place of what it holds. */
function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** A name that may be broken after its separators, and nowhere else. */
function breakable(name) {
  const pieces = String(name).split(/(?<=[-_.,/@=+])(?=.)/);
  return pieces.flatMap((piece, k) => (k ? [document.createElement("wbr"), piece] : [piece]));
}

// --- numbers as text ------------------------------------------------------------------------------

const minus = (text) => text.replace("-", "−");
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const percent = (value, digits = 2) => (known(value) ? `${minus((100 * value).toFixed(digits))} %` : "–");
const points = (value, digits = 2) =>
  known(value) ? `${value < 0 ? "−" : "+"}${Math.abs(100 * value).toFixed(digits)}` : "–";
const number = (value, digits = 4) => (known(value) ? minus(value.toFixed(digits)) : "–");
/** R², with a third digit where two would make it perfect. */
const r2Text = (value) => number(value, value > 0.99 ? 3 : 2);
/** A count, with commas from a thousand on. */
const many = (count) => count.toLocaleString("en-US");
const short = (value) => (known(value) ? minus(String(Number(value.toPrecision(4)))) : "–");

// --- state ----------------------------------------------------------------------------------------

const DEFAULTS = {
  view: "start",
  place: "",
  shift: "",
  x: "",
  y: "",
  scale: "logit",
  colour: "kind",
  fit: "baseline",
  bars: "",
  band: "yes",
  search: "",
  pins: "",
  filter: "",
  filtering: "",
  table: "",
};
let state = { ...DEFAULTS };
const views = new Map(); // id → {title, show(host)}
const listeners = new Set();

function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  const next = { ...DEFAULTS };
  for (const [name, value] of given) next[name] = value;
  return next;
}

function address(next) {
  const kept = Object.entries(next).filter(([name, value]) => value !== (DEFAULTS[name] ?? ""));
  const plain = (text) => encodeURIComponent(text).replace(/%(2C|3A|3B|2F|40)/g, decodeURIComponent).replaceAll("%20", "+");
  return `#${kept.map(([name, value]) => `${plain(name)}=${plain(value)}`).join("&")}`;
}

/** Change some of the state and show it; with `quiet` only the address changes. */
function update(changes, { quiet = false } = {}) {
  state = { ...state, ...changes };
  history.replaceState(null, "", address(state));
  if (!quiet) for (const listener of listeners) listener(changes);
}

/** Lists in the state: names of models, filters. JSON, as names may hold any character. */
function listOf(name) {
  try {
    const value = JSON.parse(state[name] || "[]");
    return Array.isArray(value) ? value : [];
  } catch {
    return [];
  }
}

const pinned = () => new Set(listOf("pins"));

function togglePin(name) {
  const pins = pinned();
  if (!pins.delete(name)) pins.add(name);
  update({ pins: pins.size ? JSON.stringify([...pins]) : "" });
}

// --- which models are shown -----------------------------------------------------------------------

/** Filters are {column: [values], {has: text} or {from, to}}: a model is shown if every column agrees. */
function filters() {
  try {
    const value = JSON.parse(state.filter || "{}");
    return value && typeof value === "object" && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}

const asText = (value) => (value === null || value === undefined ? "–" : String(value));
const column = (name) => DATA.models.columns[name];

/** What is the same for every view of a column: its values, and whether they are numbers. */
const about = new Map();
function columnFacts(name) {
  if (!about.has(name)) {
    const there = column(name).filter((v) => v !== null && v !== undefined);
    const numeric = there.length > 0 && there.every((v) => typeof v === "number");
    about.set(name, { numeric, values: [...new Set(column(name).map(asText))].sort() });
  }
  return about.get(name);
}
const isNumeric = (name) => columnFacts(name).numeric;

/** A test of one column's value, from what is wanted of it. */
function agrees(wanted) {
  if (Array.isArray(wanted)) {
    const kept = new Set(wanted);
    return (value) => kept.has(asText(value));
  }
  if (wanted && ("from" in wanted || "to" in wanted)) {
    return (value) => known(value) && value >= (wanted.from ?? -Infinity) && value <= (wanted.to ?? Infinity);
  }
  const text = String(wanted?.has ?? "").toLowerCase();
  return (value) => asText(value).toLowerCase().includes(text);
}

let lastShown = { key: null, rows: [] };

function shownModels() {
  if (lastShown.key !== state.filter) {
    const tests = Object.entries(filters())
      .filter(([name]) => column(name))
      .map(([name, wanted]) => [column(name), agrees(wanted)]);
    const rows = [];
    for (let i = 0; i < COUNT; i++) if (tests.every(([values, test]) => test(values[i]))) rows.push(i);
    lastShown = { key: state.filter, rows };
  }
  return lastShown.rows;
}

let lastSearch = { key: null, words: [] };
const lowerNames = MODELS.map((name, i) => `${name} ${nameOf(i)}`.toLowerCase());

/** Models whose name has all the words of the search. */
function matches(i) {
  if (lastSearch.key !== state.search) lastSearch = { key: state.search, words: state.search.toLowerCase().split(/\s+/).filter(Boolean) };
  return lastSearch.words.length > 0 && lastSearch.words.every((word) => lowerNames[i].includes(word));
}

// --- settings and shifts --------------------------------------------------------------------------

const settingAt = new Map(DATA.settings.map((name, i) => [name, i]));
const titleOf = (setting) => DATA.titles[setting];
const accuracy = (setting, model) => DATA.value[setting][model];
function size(setting, model) {
  const n = DATA.n[setting];
  return Array.isArray(n) ? n[model] : n;
}
/** Settings whose values are no accuracies (a norm, a distance) have a linear axis of their own. */
const isMetric = (setting) => DATA.settings[setting] in DATA.metrics;
const valueText = (setting, model) =>
  isMetric(setting) ? short(accuracy(setting, model)) : percent(accuracy(setting, model));
const shiftNamed = (name) => DATA.shifts.find((shift) => shift.name === name);
/** Whether a model is in the fit set of a shift, which may be narrower than the testbed's. */
const isFitted = (model, shift) => (shift?.fit_set ?? DATA.models.in_fit_set)[model];

// --- small widgets --------------------------------------------------------------------------------

let widgets = 0;

/** A labelled choice; `options` are [value, text] or texts. */
function choice(label, options, value, onchange, attributes = {}) {
  const id = `w${++widgets}`;
  const select = make("select", { id, ...attributes, onchange: (e) => onchange(e.target.value) });
  for (const option of options) {
    const [v, t] = Array.isArray(option) ? option : [option, option];
    select.append(make("option", { value: v, selected: v === value }, t));
  }
  return make("span", { class: "field" }, make("label", { for: id }, label), select);
}

const narrow = () => window.innerWidth < 600;

/** Controls that are folded on a small screen, so that the chart is on it. */
function folded(title, controls) {
  const kept = controls.filter((one) => one !== null);
  if (!narrow()) return kept;
  const details = make("details", { class: "columns", open: state.more === "open" }, make("summary", { "data-name": "more" }, title), make("div", { class: "controls" }, kept));
  details.addEventListener("toggle", () => update({ more: details.open ? "open" : "" }, { quiet: true }));
  return [details];
}

function tick(label, checked, onchange, attributes = {}) {
  const id = `w${++widgets}`;
  const box = make("input", { type: "checkbox", id, ...attributes, onchange: (e) => onchange(e.target.checked) });
  box.checked = checked;
  return make("span", { class: "field" }, box, make("label", { for: id }, label));
}

// --- tables and their download --------------------------------------------------------------------

/** RFC 4180, with a leading apostrophe where a spreadsheet would run a cell as a formula. */
function csv(header, rows) {
  const cell = (value) => {
    if (value === null || value === undefined || (typeof value === "number" && !Number.isFinite(value))) return "";
    let text = String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [header, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const MOST_ROWS = 2000;

/** The numbers of a chart as a table below it, folded, with a button that saves them as CSV. */
function tableView(name, header, given, count = given.length) {
  let made = Array.isArray(given) ? given : null;
  const rowsOf = () => (made ??= given());
  const show = (value) => (typeof value === "number" ? (Number.isInteger(value) ? String(value) : short(value)) : asText(value));
  const body = make("tbody");
  const details = make(
    "details",
    { class: "table", open: state.table === name },
    make("summary", {}, `Table (${many(count)} rows)`),
    make("button", { type: "button", class: "csv", onclick: () => download(`${name}.csv`, csv(header, rowsOf())) }, "Download CSV"),
    make(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${name}` },
      make("table", {}, make("thead", {}, make("tr", {}, header.map((h) => make("th", { scope: "col" }, h)))), body),
    ),
    count > MOST_ROWS ? make("p", { class: "small" }, `The first ${MOST_ROWS} rows; the CSV has all.`) : null,
  );
  const build = () => {
    if (body.childElementCount || !details.open) return;
    for (const row of rowsOf().slice(0, MOST_ROWS)) {
      body.append(make("tr", {}, row.map((v) => make("td", { class: typeof v === "number" ? "number" : null }, typeof v === "string" ? breakable(v) : show(v)))));
    }
  };
  details.addEventListener("toggle", () => {
    build();
    update({ table: details.open ? name : "" }, { quiet: true });
  });
  build();
  return details;
}
