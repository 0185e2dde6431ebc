"use strict";
/* Numbers and axes. An axis maps data to a linear coordinate, in which the library draws; kinds: linear, log, symlog. */
const DECADES = 5; // a logarithmic axis reaches at most that far below its largest value
const there = (v) => v !== null && v !== undefined && isFinite(v);
const extent = (values) => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);

/* Four digits with thousands separators; powers of ten for very large and very small values. */
function number(v) {
  if (!there(v)) return "–";
  const size = Math.abs(v);
  if (size && (size >= 1e7 || size < 1e-3)) return v.toExponential(2).replace("e+", "e");
  return size >= 1000 ? Math.round(v).toLocaleString("en") : String(+v.toPrecision(4));
}

/* The common format of a column's numbers, as `column_format` in Python: equal decimals, or powers of ten for all. */
function columnFormat(values, digits = 4) {
  const [least, largest] = extent(values.filter((v) => there(v) && v !== 0).map(Math.abs)), some = isFinite(least);
  if (some && !(largest >= 1e-3 && largest < 1e7)) return (v) => (there(v) ? v.toExponential(digits - 2).replace("e+", "e") : "–");
  const decimals = some ? Math.max(digits - 1 - Math.floor(Math.log10(largest)), least < 10 ? 1 : 0) : 0;
  const options = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return (v) => (there(v) ? (+v.toFixed(decimals) || 0).toLocaleString("en", options) : "–");
}

function tickLabel(v) {
  const size = Math.abs(v), text = size >= 1e6 ? +(v / 1e6).toPrecision(4) + "M" : size >= 1e4 ? +(v / 1e3).toPrecision(4) + "k"
    : size && size < 1e-3 ? v.toExponential(0) : String(+v.toPrecision(4));
  return text.replace("-", "\u2212");
}

const SCALES = {
  linear: () => ({ to: (v) => v, back: (u) => u }),
  log: () => ({ to: (v) => (v > 0 ? Math.log10(v) : null), back: (u) => 10 ** u }),
  symlog: (bend) => ({ bend, to: (v) => Math.asinh(v / bend), back: (u) => bend * Math.sinh(u) }),
};

/* An axis that shows means and the ends of their bands: {kind, to, back, low, high}, low and high in the linear coordinate.
   The means alone decide the kind: a band that crosses 0 is cut off by a logarithmic axis. `zeros`: means of 0 and below the last decade
   have a place too (symlog), else a logarithmic axis leaves them out. `zoom`: the range in data. */
function axis(means, bands, { log, zoom, zero, zeros, pad = 0.03 }) {
  means = means.filter(there);
  const [least, most] = extent(means), floor = most / 10 ** DECADES;
  const kind = !log || !means.length || (least === 0 && most === 0) ? "linear" : least < 0 || (zeros && least < floor) ? "symlog" : "log";
  const scale = SCALES[kind](least < 0 ? Math.max(most, -least) / 1000 : Math.max(floor, Math.min(...means.filter((v) => v > 0)) / 2));
  let values = [...means, ...bands.filter((v) => there(v) && (v >= 0 || least < 0 || kind === "linear"))];
  if (kind === "log") values = values.filter((v) => v >= floor);
  if (kind === "linear" && zero) values.push(0);
  let [low, high] = zoom ? zoom.map(scale.to) : extent(values.map(scale.to));
  if (!(zoom && there(low) && there(high) && low < high)) {
    if (!(low <= high)) [low, high] = [0, 1];
    const margin = high > low ? pad * (high - low) : kind === "linear" ? Math.abs(high) / 2 || 1 : 0.15;
    low -= kind === "linear" && zero && low === 0 ? 0 : margin;
    high += margin;
  }
  return { kind, ...scale, low, high };
}

function linearTicks(low, high, most) {
  const raw = (high - low) / most, unit = 10 ** Math.floor(Math.log10(raw)), out = [];
  const step = unit * [1, 2, 2.5, 5, 10].find((s) => s * unit >= raw);
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-6; k++) out.push(+(k * step).toPrecision(12));
  return out;
}

/* At most about `most` round values on an axis. */
function ticks(a, most) {
  const [low, high] = [a.back(a.low), a.back(a.high)];
  if (a.kind === "linear") return linearTicks(low, high, most);
  const inside = (v) => v >= low * (low > 0 ? 0.999 : 1.001) && v <= high * 1.001;
  const top = Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high))));
  const bottom = Math.floor(Math.log10(a.kind === "log" ? low : a.bend * 10));
  const powers = Array.from({ length: top - bottom + 1 }, (_, i) => 10 ** (top - i));
  const signed = (list) => (a.kind === "log" ? list : [...list.map((v) => -v), 0, ...list]).filter(inside);
  for (const steps of [[1], [3, 1], [5, 2, 1]]) {
    const list = powers.flatMap((p) => steps.map((s) => s * p)).filter((v) => inside(v) || (a.kind === "symlog" && inside(-v)));
    const found = signed(list);
    if (found.length >= 3) {
      const every = Math.ceil(found.length / most);
      return every === 1 ? found : signed(list.filter((_, i) => i % every === 0));
    }
  }
  return linearTicks(low, high, most);
}
