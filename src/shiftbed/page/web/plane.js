// Two ID settings and one OOD setting: models in space, the plane through the baseline models
// (shi2023, Section 4.2), turned by dragging or with the arrow keys; and its two projections.

const FRAME = [
  [0, 1], [1, 3], [3, 2], [2, 0], [4, 5], [5, 7], [7, 6], [6, 4], [0, 4], [1, 5], [2, 6], [3, 7],
];

function planeSettings() {
  const two = DATA.shifts.find((s) => s.source.length === 2);
  const one = DATA.shifts.find((s) => s.source.length === 1);
  const given = [state.p1, state.p2, state.p3].map((name) => settingAt.get(name));
  const twin = DATA.shifts.find((s) => s.source.length === 1 && known(s.full_source));
  const other = DATA.shifts.find((s) => s.source.length === 1 && s.target !== one?.target);
  const usual = two
    ? [...two.source, two.target]
    : twin
      ? [twin.full_source, twin.source[0], twin.target]
      : [one?.source[0] ?? 0, other?.target ?? 1, one?.target ?? 2];
  return given.map((value, i) => value ?? usual[i]);
}

function planeView(host) {
  const [a, b, y] = planeSettings();
  const settings = [a, b, y];
  const rows = shownModels().filter((i) => settings.every((s) => known(accuracy(s, i)) && Number.isFinite(SCALES[scaleOf(s)].forward(accuracy(s, i)))));
  const fit = fitLine([a, b], y, state.scale, fitRows(rows));
  const { of: groupOf, groups } = colouring(state.colour, rows);
  const styles = looks(groups);
  const names = DATA.settings;
  const pick = (key, at) => choice({ p1: "ID 1", p2: "ID 2", p3: "OOD" }[key], names.map((name, i) => [name, titleOf(i)]), names[at], (v) => update({ p1: names[a], p2: names[b], p3: names[y], [key]: v }), { "data-name": key });
  fill(
    host,
    make(
      "div",
      { class: "controls" },
      pick("p1", a),
      pick("p2", b),
      pick("p3", y),
      choice("Scale", ["logit", "probit", "linear"], state.scale, (v) => update({ scale: v }), { "data-name": "scale" }),
      choice("Fit", [["baseline", "baseline models shown"], ["shown", "all models shown"]], state.fit, (v) => update({ fit: v }), { "data-name": "fit" }),
      choice("Colour", Object.keys(DATA.models.columns), state.colour, (v) => update({ colour: v }), { "data-name": "colour" }),
    ),
    filterControls(),
    planeNote(fit, settings),
    legend(groups, styles, state.colour === "kind" ? KIND_NAMES : {}),
  );
  const axes = settings.map((s) => axisFor(rows.map((i) => accuracy(s, i)), s));
  const unit = (k, value) => (SCALES[scaleOf(settings[k])].forward(value) - axes[k].low) / (axes[k].high - axes[k].low) - 0.5;
  const cube = rows.map((i) => settings.map((s, k) => unit(k, accuracy(s, i))));
  const space = new Space(host, `Models in space: ${titleOf(y)} over ${titleOf(a)} and ${titleOf(b)}`, {
    cube,
    axes,
    look: (k) => styles.get(groupOf(rows[k])),
    filled: (k) => fit.models?.has(rows[k]),
    plane: fit.reason ? null : fit.predictZ,
    hover: (k) => {
      const rho = effective(fit, [a, b], y, rows[k]);
      return [nameOf(rows[k]), ...settings.map((s) => `${titleOf(s)}: ${valueText(s, rows[k])}`), known(rho) ? `ρ from both ID settings: ${points(rho)} points` : ""].filter(Boolean);
    },
  });
  space.canvas.id = "plane";
  const stalks = rows.length > MANY ? "" : "; stalks join a model to it";
  host.append(make("p", { class: "small" }, `Drag or use the arrow keys to turn. The net is the plane through the filled models${stalks}.`));
  host.append(make("h3", {}, "Its two projections"));
  const pair = make("div", { class: "pair" });
  host.append(pair);
  for (const x of [a, b]) projection(pair, x, y, rows, styles, groupOf);
  const table = () => rows.map((i) => {
    const rho = effective(fit, [a, b], y, i);
    return [MODELS[i], groupOf(i), ...settings.map((s) => accuracy(s, i)), known(rho) ? rho : null, fit.models?.has(i) ? "yes" : "no"];
  });
  host.append(tableView("plane", ["model", state.colour, ...settings.map((s) => names[s]), "rho", "fitted"], table, rows.length));
}

function planeNote(fit, settings) {
  const note = make("p", { class: "equation", id: "plane-equation" }, planeEquation(fit, settings));
  figures(note, fit.reason ? [] : [fit], fit);
  return note;
}

function planeEquation(fit, settings) {
  if (fit.reason) return `No plane: ${fit.reason}.`;
  const [u, v] = fit.weights;
  const sign = (w) => (w < 0 ? "−" : "+");
  const [one, two, ood] = settings.map((s) => `${state.scale === "linear" ? "" : state.scale}(${titleOf(s)})`);
  return `${ood} = ${number(u)} · ${one} ${sign(v)} ${number(Math.abs(v))} · ${two} ${sign(fit.intercept)} ${number(Math.abs(fit.intercept))}; n = ${fit.n}, R² ${number(fit.r2)}, MAE ${number(100 * fit.mae, 3)} points.`;
}

function projection(host, x, y, rows, styles, groupOf) {
  const fit = fitLine([x], y, state.scale, fitRows(rows));
  const xs = rows.map((i) => accuracy(x, i));
  const ys = rows.map((i) => accuracy(y, i));
  const box = make("div", {});
  host.append(box);
  const said = fit.reason ? `no line: ${fit.reason}` : `R² ${number(fit.r2)}, MAE ${number(100 * fit.mae, 2)} points, n = ${fit.n}`;
  box.append(make("p", { class: "small" }, `${titleOf(y)} from ${titleOf(x)} alone: ${said}`));
  new Plot(box, `${titleOf(y)} over ${titleOf(x)}`, 340, () => {
    const xAxis = axisFor(xs, x);
    const yAxis = axisFor(ys, y);
    return {
      x: xAxis,
      y: yAxis,
      points: {
        x: positions(xs, x, xAxis),
        y: positions(ys, y, yAxis),
        look: rows.map((i) => styles.get(groupOf(i))),
        open: rows.map((i) => !fit.models?.has(i)),
      },
      under: (c, p) => {
        stroke(c, p, [p.x.low, p.x.high], [p.x.low, p.x.high], ink("muted"), { dash: [6, 4], width: 1 });
        if (!fit.reason) drawLines(c, p, { lines: [{ ...fit, low: -Infinity, high: Infinity }] }, x);
      },
      hover: (k) => describe(rows[k], x, y, null, fit),
      pick: (k) => togglePin(MODELS[rows[k]]),
    };
  });
}

/**
 * Points in a cube seen from a direction; nearer ones are drawn later and larger. `data` has
 *   cube: [u, v, w] of each point in [−½, ½]³    axes: {low, high, title, ticks(low, high, most)} × 3
 *   look, filled, hover, name: (k) => …          plane: ([z₁, z₂]) => height in scaled values, or null
 */
class Space extends Canvas {
  constructor(host, label, data) {
    super(host, label, 520, (c, width, height) => this.render(c, width, height));
    this.data = data;
    this.turn = Number(state.turn ?? "") || -35;
    this.tilt = Number(state.tilt ?? "") || 18;
    this.at = -1;
    let start = null;
    this.canvas.addEventListener("pointerdown", (e) => {
      start = [e.clientX, e.clientY, this.turn, this.tilt];
      this.canvas.setPointerCapture(e.pointerId);
    });
    this.canvas.addEventListener("pointermove", (e) => {
      if (start) this.rotate(start[2] + (e.clientX - start[0]) / 2.5, start[3] + (e.clientY - start[1]) / 3);
      else this.point(e);
    });
    this.canvas.addEventListener("pointerup", () => {
      start = null;
      this.keep();
    });
    this.canvas.addEventListener("pointerleave", () => this.say(null));
    this.canvas.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: [-6, 0], ArrowRight: [6, 0], ArrowUp: [0, -6], ArrowDown: [0, 6] }[e.key];
      if (!step) return;
      e.preventDefault();
      this.rotate(this.turn + step[0], this.tilt + step[1]);
      this.keep();
    });
    this.draw();
  }

  rotate(turn, tilt) {
    this.turn = turn;
    this.tilt = Math.max(-85, Math.min(85, tilt));
    this.draw();
  }

  keep() {
    update({ turn: this.turn.toFixed(1), tilt: this.tilt.toFixed(1) }, { quiet: true });
    this.canvas.dataset.turn = this.turn.toFixed(1);
  }

  /** x₁ and x₂ lie flat, y stands; returns screen x, screen y and depth. */
  view([u, v, w]) {
    const [cosT, sinT, cosP, sinP] = this.angles;
    const x = u * cosT - v * sinT;
    const depth = u * sinT + v * cosT;
    const up = w * cosP + depth * sinP;
    const away = depth * cosP - w * sinP;
    const near = 1 / (1 + 0.28 * away);
    return [this.mid[0] + x * this.scale * near, this.mid[1] - up * this.scale * near, away];
  }

  render(c, width, height) {
    const { cube, axes, look, filled, plane, name } = this.data;
    const [t, p] = [(this.turn * Math.PI) / 180, (this.tilt * Math.PI) / 180];
    this.angles = [Math.cos(t), Math.sin(t), Math.cos(p), Math.sin(p)];
    const many = cube.length > MANY;
    this.mid = [width / 2, 0.47 * height];
    this.scale = Math.min(width * 0.58, height * 0.62);
    const corners = [...Array(8).keys()].map((i) => this.view([(i & 1) - 0.5, ((i >> 1) & 1) - 0.5, ((i >> 2) & 1) - 0.5]));
    c.strokeStyle = ink("grid");
    c.lineWidth = 1;
    for (const [a, b] of FRAME) {
      c.beginPath();
      c.moveTo(corners[a][0], corners[a][1]);
      c.lineTo(corners[b][0], corners[b][1]);
      c.stroke();
    }
    this.ticks(c, axes);
    if (plane) this.net(c, axes, plane);
    this.placed = cube.map((at, k) => {
      const one = this.view(at);
      one.push(k);
      return one;
    });
    this.placed.sort((a, b) => b[2] - a[2]);
    for (const [x, y, depth, k] of this.placed) {
      const [colour, marker] = look(k);
      const size = dotSize(cube.length, 4.2) * (1 - 0.35 * depth);
      if (many) {
        dot(c, x, y, size, colour, !filled(k));
        continue;
      }
      if (plane) this.stalk(c, cube[k], axes, plane, x, y, colour);
      c.beginPath();
      MARKERS[marker](c, x, y, size);
      if (filled(k)) {
        c.fillStyle = colour;
        c.fill();
      } else {
        c.strokeStyle = colour;
        c.lineWidth = 1.3;
        c.stroke();
      }
    }
    c.fillStyle = ink("ink");
    c.textAlign = "left";
    c.textBaseline = "middle";
    for (const [x, y, , k] of this.placed) if (name?.(k)) c.fillText(fitText(c, name(k), 220), x + 8, y);
  }

  /** Height of the plane over a place of the floor, in the cube. */
  over(u, v, axes, plane) {
    const z = [u, v].map((t, k) => axes[k].low + (t + 0.5) * (axes[k].high - axes[k].low));
    return (plane(z) - axes[2].low) / (axes[2].high - axes[2].low) - 0.5;
  }

  net(c, axes, plane) {
    c.strokeStyle = lineColour();
    c.lineWidth = 0.8;
    c.globalAlpha = 0.55;
    const at = [...Array(11).keys()].map((i) => i / 10 - 0.5);
    for (const [fixed, along] of [[0, 1], [1, 0]]) {
      for (const t of at) {
        c.beginPath();
        let open = false;
        for (const s of at) {
          const place = [0, 0];
          place[fixed] = t;
          place[along] = s;
          const w = this.over(place[0], place[1], axes, plane);
          if (Math.abs(w) > 0.52) {
            open = false;
            continue;
          }
          const [x, y] = this.view([...place, w]);
          c[open ? "lineTo" : "moveTo"](x, y);
          open = true;
        }
        c.stroke();
      }
    }
    c.globalAlpha = 1;
  }

  stalk(c, at, axes, plane, x, y, colour) {
    const foot = this.view([at[0], at[1], Math.max(-0.5, Math.min(0.5, this.over(at[0], at[1], axes, plane)))]);
    c.globalAlpha = 0.35;
    c.strokeStyle = colour;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(x, y);
    c.lineTo(foot[0], foot[1]);
    c.stroke();
    c.globalAlpha = 1;
  }

  ticks(c, axes) {
    c.fillStyle = ink("muted");
    c.textAlign = "center";
    c.textBaseline = "middle";
    const along = [(t) => [t, -0.58, -0.5], (t) => [0.58, t, -0.5], (t) => [-0.56, -0.56, t]];
    const taken = [];
    const write = (text, x, y) => {
      const at = this.kept(c, text, x);
      c.fillText(text, at, y);
      taken.push([at, y, c.measureText(text).width / 2]);
    };
    axes.forEach((axis, k) => {
      for (const [at, text] of axis.ticks(axis.low, axis.high, 5)) {
        const t = (at - axis.low) / (axis.high - axis.low) - 0.5;
        if (t >= -0.5 && t <= 0.5) write(text, ...this.view(along[k](t)));
      }
    });
    c.fillStyle = ink("ink");
    axes.forEach((axis, k) => {
      const title = fitText(c, axis.title, 220);
      const half = c.measureText(title).width / 2;
      const clear = ([x, y]) => taken.every(([a, b, w]) => Math.abs(this.kept(c, title, x) - a) > half + w + 4 || Math.abs(y - b) > 14);
      const places = [1.28, 1.4, 1.55, 1.7].map((far) => this.view(k === 2 ? [-0.56, -0.56, far - 0.68] : along[k](0).map((v, j) => (j === 2 ? v : v * far))));
      write(title, ...(places.find(clear) ?? places[0]));
    });
  }

  /** Where a text centred there must be centred to stay on the canvas. */
  kept(c, text, x) {
    const half = c.measureText(text).width / 2;
    return Math.max(half, Math.min(2 * this.mid[0] - half, x));
  }

  point(e) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [e.clientX - box.left, e.clientY - box.top];
    let best = null;
    for (const one of this.placed ?? []) {
      const d = Math.hypot(one[0] - x, one[1] - y);
      if (d < 12 && (!best || d <= best[0])) best = [d, one];
    }
    if (!best) {
      this.say(null);
      return;
    }
    this.say(this.data.hover(best[1][3]), best[1][0], best[1][1]);
  }
}

views.set("plane", { title: "Plane", group: "Explore", question: "Do two ordinary accuracies predict more than one?", show: planeView, possible: () => DATA.settings.length >= 3 });
