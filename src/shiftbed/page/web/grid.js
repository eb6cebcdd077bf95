// Models × settings as a heat map: sorted by any setting, zoomed to where every cell has its number.

const CIVIDIS = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];
const DIVERGING = [[33, 102, 172], [146, 197, 222], [247, 247, 247], [244, 165, 130], [178, 24, 43]];

function ramp(stops, t) {
  const at = Math.max(0, Math.min(1, t)) * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(at));
  return stops[i].map((v, k) => Math.round(v + (stops[i + 1][k] - v) * (at - i)));
}

const luminance = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b) / 255;

/** A heat map on a canvas, scrolled within its frame; cells are `wide` × `high` pixels. */
class Cells extends Canvas {
  constructor(host, label, data) {
    super(host, label, Math.min(660, 170 + data.rows.length * data.high), (c, width, height) => this.render(c, width, height));
    this.data = data;
    this.scroll = [0, 0];
    this.at = null;
    this.canvas.addEventListener("wheel", (e) => {
      const before = [...this.scroll];
      this.move(e.shiftKey ? e.deltaY : e.deltaX, e.shiftKey ? 0 : e.deltaY);
      if (before[0] !== this.scroll[0] || before[1] !== this.scroll[1]) e.preventDefault();
    }, { passive: false });
    let held = null; // where a finger is, and how far it has gone
    this.canvas.addEventListener("pointerdown", (e) => {
      held = e.pointerType === "mouse" ? null : { x: e.clientX, y: e.clientY, gone: 0 };
    });
    this.canvas.addEventListener("pointermove", (e) => {
      if (!held) return this.point(e);
      const [dx, dy] = [held.x - e.clientX, held.y - e.clientY];
      held = { x: e.clientX, y: e.clientY, gone: held.gone + Math.hypot(dx, dy) };
      this.move(dx, dy);
    });
    this.canvas.addEventListener("pointerleave", (e) => e.pointerType === "mouse" && this.focusCell(null));
    this.canvas.addEventListener("pointercancel", () => {
      held = null;
    });
    this.canvas.addEventListener("click", (e) => {
      const swiped = held && held.gone > 8;
      held = null;
      const cell = this.cellAt(e);
      if (swiped || !cell) return;
      if (cell[0] < 0) data.sort?.(cell[1]);
      else this.focusCell(cell);
    });
    this.canvas.style.touchAction = "none";
    this.canvas.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
      if (!step) return;
      e.preventDefault();
      const [r, k] = this.at ?? [0, -step[1]];
      const next = [Math.max(0, Math.min(data.rows.length - 1, r + step[0])), Math.max(0, Math.min(data.columns.length - 1, k + step[1]))];
      this.reveal(next);
      this.focusCell(next);
    });
    this.draw();
  }

  get room() {
    const { rows, columns, wide, high } = this.data;
    return [columns.length * wide - (this.frame.clientWidth - this.left), rows.length * high - (this.frame.clientHeight - this.top)];
  }

  move(dx, dy) {
    const [w, h] = this.room;
    this.scroll = [Math.max(0, Math.min(w, this.scroll[0] + dx)), Math.max(0, Math.min(h, this.scroll[1] + dy))];
    this.draw();
  }

  reveal([r, k]) {
    const { wide, high } = this.data;
    const [x, y] = [k * wide - this.scroll[0], r * high - this.scroll[1]];
    const [w, h] = [this.frame.clientWidth - this.left - wide, this.frame.clientHeight - this.top - high];
    this.move(x < 0 ? x : x > w ? x - w : 0, y < 0 ? y : y > h ? y - h : 0);
  }

  render(c, width, height) {
    const { rows, columns, values, wide, high, shade: at, text, stops, marked } = this.data;
    this.left = Math.min(220, width * 0.32);
    this.top = 150;
    const first = [Math.floor(this.scroll[1] / high), Math.floor(this.scroll[0] / wide)];
    const last = [Math.min(rows.length, first[0] + Math.ceil(height / high) + 1), Math.min(columns.length, first[1] + Math.ceil(width / wide) + 1)];
    const numbers = wide >= 34 && high >= 14;
    c.textBaseline = "middle";
    c.save();
    c.beginPath();
    c.rect(this.left, this.top, width, height);
    c.clip();
    c.textAlign = "center";
    c.font = "10px system-ui, sans-serif";
    for (let r = first[0]; r < last[0]; r++) {
      for (let k = first[1]; k < last[1]; k++) {
        const v = values(r, k);
        if (!known(v)) continue;
        const colour = ramp(stops, at(v, k));
        const x = this.left + k * wide - this.scroll[0];
        const y = this.top + r * high - this.scroll[1];
        c.fillStyle = `rgb(${colour})`;
        c.fillRect(x, y, wide - (wide > 6 ? 1 : 0), high - (high > 6 ? 1 : 0));
        if (numbers) {
          c.fillStyle = luminance(colour) > 0.5 ? "#000" : "#fff";
          c.font = marked?.(r, k) ? "bold 11px system-ui, sans-serif" : "10px system-ui, sans-serif";
          c.fillText(text(v, k), x + wide / 2, y + high / 2);
        }
      }
    }
    c.restore();
    this.names(c, first, last, width, height);
    if (this.at) {
      const [r, k] = this.at;
      c.strokeStyle = ink("ink");
      c.lineWidth = 2;
      c.strokeRect(this.left + k * wide - this.scroll[0], this.top + r * high - this.scroll[1], wide, high);
    }
  }

  names(c, first, last, width, height) {
    const { rows, columns, wide, high, sorted } = this.data;
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = ink("ink");
    c.textAlign = "right";
    const every = Math.max(1, Math.ceil(11 / high));
    c.save();
    c.beginPath();
    c.rect(0, this.top, this.left, height);
    c.clip();
    for (let r = first[0]; r < last[0]; r++) {
      if (r % every) continue;
      c.fillText(fitText(c, rows[r], this.left - 8), this.left - 5, this.top + (r + 0.5) * high - this.scroll[1]);
    }
    c.restore();
    const step = Math.max(1, Math.ceil(11 / wide));
    c.save();
    c.beginPath();
    c.rect(this.left, 0, width, this.top);
    c.clip();
    for (let k = first[1]; k < last[1]; k++) {
      if (k % step) continue;
      c.save();
      c.translate(this.left + (k + 0.5) * wide - this.scroll[0], this.top - 5);
      c.rotate(-Math.PI / 2);
      c.textAlign = "left";
      c.font = k === sorted ? "bold 11px system-ui, sans-serif" : "11px system-ui, sans-serif";
      c.fillText(fitText(c, columns[k], this.top - 10), 0, 0);
      c.restore();
    }
    c.restore();
  }

  /** [row, column] under the pointer; row −1 is the heading. */
  cellAt(e) {
    const { rows, columns, wide, high } = this.data;
    const box = this.canvas.getBoundingClientRect();
    const k = Math.floor((e.clientX - box.left - this.left + this.scroll[0]) / wide);
    const y = e.clientY - box.top - this.top;
    const r = y < 0 ? -1 : Math.floor((y + this.scroll[1]) / high);
    return k >= 0 && k < columns.length && r < rows.length && e.clientX - box.left > this.left ? [r, k] : null;
  }

  point(e) {
    const cell = this.cellAt(e);
    this.canvas.style.cursor = cell && cell[0] < 0 && this.data.sort ? "pointer" : "default";
    this.focusCell(cell && cell[0] >= 0 ? cell : null);
  }

  focusCell(cell) {
    if (String(cell) === String(this.at)) return;
    this.at = cell;
    this.draw();
    if (!cell) {
      this.say(null);
      return;
    }
    const [r, k] = cell;
    const { wide, high } = this.data;
    this.say(this.data.hover(r, k), this.left + (k + 1) * wide - this.scroll[0], this.top + (r + 1) * high - this.scroll[1]);
  }
}

const ZOOM = { all: [7, 5], names: [16, 14], numbers: [44, 18] };

function gridView(host) {
  const settings = DATA.settings.map((_, i) => i).filter((s) => state.columns !== "shifts" || DATA.shifts.some((h) => h.target === s || h.source.includes(s)));
  const usual = DATA.shifts[0]?.source[0];
  const by = settingAt.get(state.sort) ?? (settings.includes(usual) ? usual : settings[0]);
  const rows = [...shownModels()].sort((a, b) => (accuracy(by, b) ?? -1) - (accuracy(by, a) ?? -1));
  if (state.ascending) rows.reverse();
  const zoom = ZOOM[state.zoom] ? state.zoom : rows.length > 60 ? "names" : "numbers";
  fill(
    host,
    make(
      "div",
      { class: "controls" },
      choice("Sort by", settings.map((s) => [DATA.settings[s], titleOf(s)]), DATA.settings[by], (v) => update({ sort: v, ascending: "" }), { "data-name": "sort" }),
      tick("Lowest first", Boolean(state.ascending), (on) => update({ ascending: on ? "yes" : "" }), { "data-name": "ascending" }),
      choice("Zoom", [["all", "whole grid"], ["names", "names"], ["numbers", "every number"]], zoom, (v) => update({ zoom: v }), { "data-name": "zoom" }),
      choice("Settings", [["", "all"], ["shifts", "of shifts only"]], state.columns ?? "", (v) => update({ columns: v }), { "data-name": "columns" }),
    ),
    filterControls(),
  );
  const [wide, high] = ZOOM[zoom];
  const ends = settings.map((s) => {
    const there = isMetric(s) ? MODELS.map((_, i) => accuracy(s, i)).filter(known) : [0, 1];
    return [Math.min(...there), Math.max(...there)];
  });
  const cells = new Cells(host, `Accuracies of ${rows.length} models in ${settings.length} settings`, {
    rows: rows.map(nameOf),
    columns: settings.map(titleOf),
    values: (r, k) => accuracy(settings[k], rows[r]),
    shade: (v, k) => (v - ends[k][0]) / (ends[k][1] - ends[k][0] || 1),
    text: (v, k) => (isMetric(settings[k]) ? short(v) : minus((100 * v).toFixed(1))),
    wide,
    high,
    stops: CIVIDIS,
    sorted: settings.indexOf(by),
    sort: (k) => update(settings[k] === by ? { ascending: state.ascending ? "" : "yes" } : { sort: DATA.settings[settings[k]], ascending: "" }),
    hover: (r, k) => [nameOf(rows[r]), titleOf(settings[k]), known(accuracy(settings[k], rows[r])) ? `${valueText(settings[k], rows[r])}, n = ${size(settings[k], rows[r]) || "unknown"}` : "not evaluated"],
  });
  cells.canvas.id = "grid";
  host.append(make("p", { class: "small" }, "Click a setting's name to sort by it; scroll within the grid, or walk through its cells with the arrow keys."));
  host.append(tableView("grid", ["model", ...settings.map((s) => DATA.settings[s])], () => rows.map((i) => [MODELS[i], ...settings.map((s) => accuracy(s, i) ?? null)]), rows.length));
}

views.set("grid", { title: "Grid", group: "Explore", question: "How do all models do on all test sets?", show: gridView });
