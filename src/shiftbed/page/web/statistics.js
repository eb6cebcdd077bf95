// The same numbers as Python: scales, least squares in scaled space, Clopper–Pearson intervals and
// Student's t, all in double precision. tests/report compare them with the package.

// --- scales ---------------------------------------------------------------------------------------

/** Φ(z), by erfc's continued fraction or series: relative error about 1e-15. */
function normalCdf(z) {
  const t = Math.abs(z);
  let tail;
  if (t < 2.5) {
    let term = t;
    let sum = t;
    for (let k = 1; k < 200 && Math.abs(term) > 1e-18 * Math.abs(sum); k++) {
      term *= (t * t) / (2 * k + 1);
      sum += term;
    }
    tail = 0.5 - (sum * Math.exp(-0.5 * t * t)) / Math.sqrt(2 * Math.PI);
  } else {
    let fraction = 0;
    for (let k = 120; k > 0; k--) fraction = k / (t + fraction);
    tail = Math.exp(-0.5 * t * t) / Math.sqrt(2 * Math.PI) / (t + fraction);
  }
  return z > 0 ? 1 - tail : tail;
}

/** Φ⁻¹(p): a rough start and Newton's steps on Φ, from the nearer tail. */
function normalQuantile(p) {
  if (!(p > 0 && p < 1)) return p === 0 ? -Infinity : p === 1 ? Infinity : NaN;
  if (p > 0.5) return -normalQuantile(1 - p);
  const r = Math.sqrt(-2 * Math.log(p));
  let z = -(r - (2.30753 + 0.27061 * r) / (1 + 0.99229 * r + 0.04481 * r * r));
  for (let i = 0; i < 6; i++) {
    const density = Math.exp(-0.5 * z * z) / Math.sqrt(2 * Math.PI);
    const step = (normalCdf(z) - p) / density;
    z -= step / (1 + 0.5 * z * step);
    if (Math.abs(step) < 1e-15 * Math.max(1, Math.abs(z))) break;
  }
  return z;
}

const SCALES = {
  linear: { forward: (p) => p, inverse: (z) => z, derivative: () => 1, slope: () => 1 },
  probit: {
    forward: normalQuantile,
    inverse: normalCdf,
    derivative: (p) => Math.sqrt(2 * Math.PI) * Math.exp(0.5 * normalQuantile(p) ** 2),
    slope: (z) => Math.exp(-0.5 * z * z) / Math.sqrt(2 * Math.PI),
  },
  logit: {
    forward: (p) => Math.log(p / (1 - p)),
    inverse: (z) => (z < 0 ? Math.exp(z) / (1 + Math.exp(z)) : 1 / (1 + Math.exp(-z))),
    derivative: (p) => 1 / (p * (1 - p)),
    slope: (z) => 1 / (2 + Math.exp(z) + Math.exp(-z)),
  },
};

const TICKS = [0, 0.001, 0.005, 0.01, 0.02, 0.05];
for (let i = 2; i < 19; i++) TICKS.push(i / 20);
TICKS.push(0.95, 0.98, 0.99, 0.995, 0.999, 1);

function roughness(value) {
  const steps = [0.5, 0.1, 0.05, 0.01];
  const at = steps.findIndex((step) => Math.abs(value / step - Math.round(value / step)) < 1e-9);
  return at < 0 ? steps.length : at;
}

/** Round accuracies between two positions of a scale, at most so many, well apart. */
function scaleTicks(scale, low, high, most) {
  const { forward, inverse } = SCALES[scale];
  const inside = TICKS.filter((t) => {
    const z = forward(t);
    return Number.isFinite(z) && z >= low - 1e-9 && z <= high + 1e-9;
  });
  if (inside.length < 4) {
    const even = niceTicks(Math.max(0, inverse(low)), Math.min(1, inverse(high)), most);
    return even.filter((t) => Number.isFinite(forward(t)));
  }
  const apart = (high - low) / most;
  const order = [...inside].sort((a, b) => roughness(a) - roughness(b) || a - b);
  const kept = [];
  for (const t of order) if (kept.every((k) => Math.abs(forward(k) - forward(t)) >= apart * 0.999)) kept.push(t);
  return kept.sort((a, b) => a - b);
}

/** Evenly spaced round numbers between two values. */
function niceTicks(low, high, most) {
  if (!(high > low)) return [low];
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9); i++) {
    ticks.push(Number((i * step).toPrecision(12)));
  }
  return ticks;
}

// --- intervals ------------------------------------------------------------------------------------

function logGamma(x) {
  if (x < 10) return logGamma(x + 1) - Math.log(x); // Stirling's series is exact enough from 10 on
  const inverse = 1 / (x * x);
  const series = (1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse * (1 / 1680 - inverse / 1188)))) / x;
  return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series;
}

/** Regularised incomplete beta function Iₓ(a, b), by its continued fraction (Lentz). */
function betaCdf(x, a, b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - betaCdf(1 - x, b, a);
  const front = Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x)) / a;
  const tiny = 1e-300;
  let c = 1;
  let d = 1 - ((a + b) * x) / (a + 1);
  d = 1 / (Math.abs(d) < tiny ? tiny : d);
  let h = d;
  for (let m = 1; m < 2000; m++) {
    for (const odd of [false, true]) {
      const top = odd ? (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1)) : (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
      d = 1 + top * d;
      d = 1 / (Math.abs(d) < tiny ? tiny : d);
      c = 1 + top / c;
      if (Math.abs(c) < tiny) c = tiny;
      h *= c * d;
      if (odd && Math.abs(c * d - 1) < 1e-15) return front * h;
    }
  }
  return front * h;
}

/** The p-quantile of a Beta(a, b) distribution, by bisection with secant steps. */
function betaQuantile(p, a, b) {
  let low = 0;
  let high = 1;
  const mean = a / (a + b);
  const spread = Math.sqrt((mean * (1 - mean)) / (a + b + 1));
  let x = Math.min(0.999999, Math.max(1e-6, mean + spread * normalQuantile(p)));
  for (let i = 0; i < 100; i++) {
    const error = betaCdf(x, a, b) - p;
    if (error > 0) high = x;
    else low = x;
    const density = Math.exp((a - 1) * Math.log(x) + (b - 1) * Math.log1p(-x) - logGamma(a) - logGamma(b) + logGamma(a + b));
    let next = x - error / density;
    if (!(next > low && next < high)) next = (low + high) / 2;
    if (Math.abs(next - x) < 1e-15 + 1e-13 * x) return next;
    x = next;
  }
  return x;
}

/** Clopper–Pearson interval of an accuracy over n images. */
function clopperPearson(value, n, level) {
  if (!known(value) || !n) return [NaN, NaN];
  const right = Math.round(value * n);
  const tail = (1 - level) / 2;
  return [
    right === 0 ? 0 : betaQuantile(tail, right, n - right + 1),
    right === n ? 1 : betaQuantile(1 - tail, right + 1, n - right),
  ];
}

/** The p-quantile of Student's t, p > 1/2. */
function studentQuantile(p, dof) {
  const x = betaQuantile(2 * (1 - p), dof / 2, 0.5);
  return Math.sqrt((dof * (1 - x)) / x);
}

// --- least squares --------------------------------------------------------------------------------

/** Inverse of a small symmetric matrix, by Gauss–Jordan with pivots; null if it is singular. */
function inverseOf(matrix) {
  const k = matrix.length;
  const rows = matrix.map((row, i) => [...row, ...row.map((_, j) => (i === j ? 1 : 0))]);
  for (let i = 0; i < k; i++) {
    let best = i;
    for (let j = i + 1; j < k; j++) if (Math.abs(rows[j][i]) > Math.abs(rows[best][i])) best = j;
    if (Math.abs(rows[best][i]) < 1e-12) return null;
    [rows[i], rows[best]] = [rows[best], rows[i]];
    const pivot = rows[i][i];
    rows[i] = rows[i].map((v) => v / pivot);
    for (let j = 0; j < k; j++) {
      if (j === i) continue;
      const factor = rows[j][i];
      rows[j] = rows[j].map((v, c) => v - factor * rows[i][c]);
    }
  }
  return rows.map((row) => row.slice(k));
}

/**
 * β(x) = S⁻¹(w·S(x) + b) through the given models (taori2020, Section 2; shi2023, Section 4.2).
 * Settings are numbers; models without a finite scaled value are left out and counted.
 */
function fitLine(sources, target, scale, rows) {
  const scales = [...sources, target].map((s) => SCALES[isMetric(s) ? "linear" : scale]);
  const { inverse } = scales[sources.length];
  const k = sources.length + 1;
  const used = [];
  const design = [];
  const heights = [];
  for (const i of rows) {
    const values = [...sources, target].map((s) => accuracy(s, i));
    if (!values.every(known)) continue;
    const z = values.map((v, j) => scales[j].forward(v));
    if (!z.every(Number.isFinite)) continue;
    used.push(i);
    design.push([1, ...z.slice(0, -1)]);
    heights.push(z[k - 1]);
  }
  const none = { n: used.length, leftOut: rows.length - used.length };
  if (used.length <= k) return { ...none, reason: `needs at least ${k + 1} models, has ${used.length}` };
  // Centred columns keep the normal equations well-conditioned.
  const centre = design[0].map((_, j) => (j ? design.reduce((s, r) => s + r[j], 0) / used.length : 0));
  const centred = design.map((r) => r.map((v, j) => v - centre[j]));
  const gram = centre.map((_, a) => centre.map((_, b) => centred.reduce((s, r) => s + r[a] * r[b], 0)));
  const shifted = inverseOf(gram);
  if (!shifted) return { ...none, reason: "ID accuracies do not vary, or vary together" };
  const moment = centre.map((_, a) => centred.reduce((s, r, i) => s + r[a] * heights[i], 0));
  const theta = shifted.map((row) => row.reduce((s, v, j) => s + v * moment[j], 0));
  const weights = theta.slice(1);
  const intercept = theta[0] - weights.reduce((s, w, j) => s + w * centre[j + 1], 0);
  const predictZ = (z) => z.reduce((s, v, j) => s + v * weights[j], intercept);
  const mean = heights.reduce((s, v) => s + v, 0) / used.length;
  let residual = 0;
  let total = 0;
  let absolute = 0;
  used.forEach((model, i) => {
    const z = predictZ(design[i].slice(1));
    residual += (heights[i] - z) ** 2;
    total += (heights[i] - mean) ** 2;
    absolute += Math.abs(accuracy(target, model) - inverse(z));
  });
  const dof = used.length - k;
  const sigma = Math.sqrt(residual / dof);
  let quantile = null; // of the level last asked for
  const half = (z, level) => {
    const a = [1, ...z.map((v, j) => v - centre[j + 1])];
    const variance = a.reduce((s, v, i) => s + v * a.reduce((t, w, j) => t + w * shifted[i][j], 0), 0);
    if (quantile?.level !== level) quantile = { level, t: studentQuantile(0.5 + level / 2, dof) };
    return quantile.t * sigma * Math.sqrt(variance);
  };
  const support = sources.map((_, j) => {
    const column = design.map((r) => r[j + 1]);
    return [Math.min(...column), Math.max(...column)];
  });
  return {
    ...none,
    n: used.length,
    models: new Set(used),
    weights,
    intercept,
    r2: total > 0 ? 1 - residual / total : NaN,
    mae: absolute / used.length,
    sigma,
    dof,
    support,
    predictZ,
    half,
    predict: (x) => inverse(predictZ(x.map((v, j) => scales[j].forward(v)))),
  };
}

/** A shift's baseline: one line, or two that part at a knee (ImageNet-A), its own models left out. */
function fitShift(sources, target, scale, rows, knee = null) {
  if (knee === null || sources.length > 1) {
    const line = fitLine(sources, target, scale, rows);
    return { ...line, lines: line.reason ? [] : [{ ...line, low: -Infinity, high: Infinity }] };
  }
  const close = (v) => Math.abs(v - knee) < 1e-12;
  const left = fitLine(sources, target, scale, rows.filter((i) => known(accuracy(sources[0], i)) && accuracy(sources[0], i) < knee && !close(accuracy(sources[0], i))));
  const right = fitLine(sources, target, scale, rows.filter((i) => known(accuracy(sources[0], i)) && accuracy(sources[0], i) > knee && !close(accuracy(sources[0], i))));
  const both = [
    { ...left, low: -Infinity, high: knee },
    { ...right, low: knee, high: Infinity },
  ];
  const reason = left.reason || right.reason;
  if (reason) return { n: left.n + right.n, reason, lines: [] };
  return {
    n: left.n + right.n,
    models: new Set([...left.models, ...right.models]),
    lines: both,
    mae: (left.mae * left.n + right.mae * right.n) / (left.n + right.n),
    predict: (x) => both[x[0] < knee ? 0 : 1].predict(x),
  };
}

const baselines = new Map();

/** A shift's own baseline on a scale, whatever is filtered; fitted once. */
function baselineFit(shift, scale = "logit") {
  const key = `${shift.name} ${scale}`;
  if (!baselines.has(key)) {
    const rows = MODELS.map((_, i) => i).filter((i) => isFitted(i, shift));
    baselines.set(key, fitShift(shift.source, shift.target, scale, rows, shift.knee ?? null));
  }
  return baselines.get(key);
}

/** ρ = OOD accuracy − what the baseline predicts from ID accuracy. */
function effective(fit, sources, target, model) {
  const x = sources.map((s) => accuracy(s, model));
  const y = accuracy(target, model);
  if (fit.reason || !x.every(known) || !known(y)) return NaN;
  return y - fit.predict(x);
}

function pearson(a, b) {
  const rows = a.map((_, i) => i).filter((i) => Number.isFinite(a[i]) && Number.isFinite(b[i]));
  const n = rows.length;
  if (n < 3) return { r: NaN, n };
  const ma = rows.reduce((s, i) => s + a[i], 0) / n;
  const mb = rows.reduce((s, i) => s + b[i], 0) / n;
  let ab = 0;
  let aa = 0;
  let bb = 0;
  for (const i of rows) {
    ab += (a[i] - ma) * (b[i] - mb);
    aa += (a[i] - ma) ** 2;
    bb += (b[i] - mb) ** 2;
  }
  return { r: aa > 0 && bb > 0 ? ab / Math.sqrt(aa * bb) : NaN, n };
}
