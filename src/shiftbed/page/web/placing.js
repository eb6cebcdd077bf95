// Effective robustness of a model from its two accuracies and their sizes, as `shiftbed place` has it:
// page/placing.py gives what depends on the line alone. docs/statistics.md has the formulas.

const PLACING = DATA.placing ?? { lines: [], names: {}, level: 0.95, fdr: 0.05 };
const NODES = 109;
const WIDEST = 2.7;
const FEW = 30;

const quadratic = (a, matrix) => a.reduce((s, v, i) => s + v * a.reduce((t, w, j) => t + w * matrix[i][j], 0), 0);
const clip = (v, low, high) => Math.min(high, Math.max(low, v));

/** (k+½)/(n+1) for an accuracy of exactly 0 or 1 over a known number of images. */
const offBoundary = (p, n) => ((p <= 0 || p >= 1) && n > 0 ? (p * n + 0.5) / (n + 1) : p);
const binomialVariance = (p, n) => (n > 0 ? (offBoundary(p, n) * (1 - offBoundary(p, n))) / n : 0);

/** What |t| exceeds with probability 1 − level; for many degrees of freedom by Fisher's expansion. */
function tQuantile(level, dof) {
  if (dof < 400) return studentQuantile(0.5 + level / 2, dof);
  const z = normalQuantile(0.5 + level / 2);
  const s = z * z;
  const terms = [
    (s + 1) / 4,
    (5 * s * s + 16 * s + 3) / 96,
    (3 * s ** 3 + 19 * s * s + 17 * s - 15) / 384,
    (79 * s ** 4 + 776 * s ** 3 + 1482 * s * s - 1920 * s - 945) / 92160,
  ];
  return z * terms.reduce((sum, term, i) => sum + term / dof ** (i + 1), 1);
}

/** Two-sided p-value of a t statistic. */
const tProbability = (t, dof) => betaCdf(dof / (dof + t * t), dof / 2, 0.5);

/** Covariance of a model's accuracy in a setting (0 ID, 1 OOD) with the line's coefficients. */
function withLine(piece, side, p, n) {
  const z = clip(normalQuantile(clip(p, 1e-9, 1 - 1e-9)), -WIDEST, WIDEST);
  const at = ((z + WIDEST) / (2 * WIDEST)) * (NODES - 1);
  const node = Math.min(Math.floor(at), NODES - 2);
  const [low, high] = [piece.mixed[side][node], piece.mixed[side][node + 1]];
  const spread = Math.sqrt(binomialVariance(p, n));
  return low.map((v, j) => spread * ((1 - (at - node)) * v + (at - node) * high[j]));
}

/** Score interval of a proportion (Wilson 1927). */
function wilson(p, n, z) {
  const middle = (p + (z * z) / (2 * n)) / (1 + (z * z) / n);
  const half = (z / (1 + (z * z) / n)) * Math.sqrt((p * (1 - p)) / n + (z * z) / (4 * n * n));
  return [middle - half, middle + half];
}

/** How far an interval reaches down and up where an accuracy rests on few errors (Zou and Donner). */
function fewErrors(line, piece, here, t, half) {
  const { forward, inverse } = SCALES[line.scale];
  let [down, up] = [half * half, half * half];
  [here.x, here.y].forEach((p, side) => {
    const n = here.n[side];
    if (!(n > 0 && Math.min(p, 1 - p) * n < FEW)) return;
    const usual = (t * here.own[side]) ** 2 * binomialVariance(p, n);
    const moved = wilson(p, n, t).map((end) =>
      side ? end - here.y : here.beta - inverse(piece.coefficients[0] + piece.coefficients[1] * forward(clip(end, 1e-9, 1 - 1e-9))),
    );
    down += Math.min(...moved) ** 2 - usual;
    up += Math.max(...moved) ** 2 - usual;
  });
  return [down, up].map((v) => Math.sqrt(Math.max(v, half * half)));
}

/** Benjamini and Hochberg's q of one p-value among those of the models judged on the shift. */
function qValue(p, others) {
  let rank = others.filter((v) => v <= p).length + 1;
  const count = others.length + 1;
  let least = (p * count) / rank;
  for (const v of others.slice(rank - 1)) least = Math.min(least, (v * count) / ++rank);
  return Math.min(least, 1);
}

/**
 * ρ of a model on a line, with its interval, where other baseline models fall, its p- and q-value,
 * verdict and caveats. `n` are the numbers of images, 0 for the testbed's own.
 */
function placeOn(line, x, y, n = [0, 0]) {
  const level = PLACING.level;
  const scale = SCALES[line.scale];
  const sizes = n.map((v, side) => v || line.usual[side]);
  const piece = line.pieces.findLast((one) => x >= one.low) ?? line.pieces[0];
  const inner = [offBoundary(x, sizes[0]), offBoundary(y, sizes[1])];
  const apart = sizes.some((v, side) => v > 0 && line.sizes[side] > 0 && v !== line.sizes[side]);
  const a = [1, scale.forward(inner[0])];
  const eta = piece.coefficients[0] + piece.coefficients[1] * a[1];
  const beta = scale.inverse(eta);
  const slope = scale.slope(eta);
  const rho = y - beta;
  const reach = a.map((v) => slope * v);
  const own = [-slope * piece.coefficients[1] * scale.derivative(inner[0]), 1];
  const here = { x: inner[0], y: inner[1], n: sizes, own, beta };

  // How precisely is ρ measured?
  const fit = quadratic(reach, piece.fit);
  let total = fit + quadratic(reach, piece.line_noise);
  inner.forEach((p, side) => {
    total += own[side] ** 2 * binomialVariance(p, sizes[side]);
    if (line.modelled && !apart) {
      const mixed = withLine(piece, side, p, sizes[side]);
      total -= 2 * own[side] * mixed.reduce((s, v, j) => s + v * reach[j], 0);
    }
  });
  if (!sizes.every((v) => v > 0)) total = NaN;
  const dof = piece.fit_dof * Math.min(total / Math.max(fit, 1e-300), 1e6) ** 2;
  const corrected = rho + beta - scale.inverse(piece.corrected[0] + piece.corrected[1] * a[1]);
  const t = tQuantile(level, Number.isFinite(dof) ? dof : 1e12);
  const half = t * Math.sqrt(total);
  const other = !line.modelled || Math.abs(corrected - rho) > half ? rho : corrected;
  const [down, up] = fewErrors(line, piece, here, t, half);
  const low = Math.min(corrected, other) - down;
  const high = Math.max(corrected, other) + up;

  // Is the model unusual?
  const pull = quadratic(a, piece.pull);
  let variance = piece.scatter + pull;
  let freedom = piece.dof[0];
  if (piece.dof.length > 1) freedom = variance ** 2 / Math.max(piece.scatter ** 2 / piece.dof[0] + pull ** 2 / piece.dof[1], 1e-300);
  if (apart) {
    const mid = clip(beta, 1e-6, 1 - 1e-6);
    const onX = binomialVariance(inner[0], sizes[0]) * (scale.derivative(inner[0]) * piece.coefficients[1]) ** 2;
    const onY = binomialVariance(mid, sizes[1]) * scale.derivative(mid) ** 2;
    variance += Math.max(onX + onY + quadratic(a, piece.line_noise) - piece.residual, 0);
  }
  freedom = 1 / (1 / (piece.nu ?? Infinity) + 1 / freedom);
  const spread = Math.sqrt(variance);
  const p = tProbability((scale.forward(inner[1]) - eta) / spread / piece.width, freedom);
  const q = qValue(p, line.p);
  const within = (share) => {
    const wide = piece.width * tQuantile(share, freedom) * spread;
    return [scale.inverse(eta - wide) - beta, scale.inverse(eta + wide) - beta];
  };
  const found = { line, x, y, n: sizes, given: n, predicted: beta, rho, low, high, p, q, within, interval: line.modelled && !apart ? "modelled" : "independent" };
  found.out = q <= PLACING.fdr;
  found.verdict = verdictOf(found);
  found.extrapolated = x < line.support[0] - 1e-12 || x > line.support[1] + 1e-12;
  found.caveats = placeCaveats(found);
  return found;
}

function verdictOf({ out, low, high }) {
  if (out) return "out of line";
  if (!known(low)) return "within the baseline models' spread";
  return low <= 0 && high >= 0 ? "on the line" : "off the line, within the baseline models' spread";
}

/** All that a reader must know, in the order and words of Python's. */
function placeCaveats({ line, x, y, n, low, extrapolated }) {
  const said = [...line.caveats];
  const ends = line.support.map((v) => (100 * v).toFixed(1));
  if (extrapolated) said.push(`extrapolated: ID accuracy beyond the fitted ${ends[0]} to ${ends[1]} %`);
  if (!known(low) && n.some((v) => !v)) said.push("number of test images unknown: no measurement interval");
  if ([x, y].some((v) => v <= 0 || v >= 1)) said.push("an accuracy of exactly 0 or 1, moved to (k+½)/(n+1) where the scale needs it");
  said.push(...line.flags);
  if ([x, y].some((v, side) => n[side] > 0 && Math.min(v, 1 - v) * n[side] < FEW - 1e-9)) said.push(`fewer than ${FEW} errors or right answers`);
  return said;
}
