/* What each panel shows, in data: {id, kind, title, x, y, series, ...}.
   kinds: curve (over episodes), path (one metric over another), points (their ends, with intervals), growth (over T). */
const MARKS = { // on 10 by 10
  o: "M5 0A5 5 0 1 1 5 10A5 5 0 1 1 5 0Z", s: "M0 0H10V10H0Z", "^": "M5 0L10 10H0Z", D: "M5 0L10 5L5 10L0 5Z", v: "M0 0H10L5 10Z",
  P: "M3 0H7V3H10V7H7V10H3V7H0V3H3Z", X: "M2 0L5 3L8 0L10 2L7 5L10 8L8 10L5 7L2 10L0 8L3 5L0 2Z", p: "M5 0L10 3.8L8 10H2L0 3.8Z",
  h: "M5 0L9.5 2.5V7.5L5 10L.5 7.5V2.5Z", "<": "M10 0V10L0 5Z",
};
const DASHES = ["solid", [7, 3], [2, 3], [9, 3, 2, 3], [4, 2, 1, 2, 1, 2], [14, 4], [1, 2]];

/* The learner's colour; on dark ground lighter, and black becomes white. */
function tint(colour, onDark) {
  if (!onDark) return colour;
  if (colour === "#000000") return "#f2f4f8";
  const parts = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return `rgb(${parts.map((c) => Math.round(c + (255 - c) * 0.3)).join(",")})`;
}

/* The dash of the hparams; of the learner, if there is only one hparams. */
const dashOf = (learner, hparams) => DASHES[(D.hparams.length > 1 ? hparams : D.learners[learner].dash) % DASHES.length];
/* The mark is filled by hparams, to distinguish its points: the part of it that has the learner's colour. */
const FILLS = [[0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0.5, 1], [0.5, 0, 1, 1], [0, 0.5, 1, 1], [0, 0, 1, 0.5]]; // left, right, bottom, top
const fillOf = (hparams) => (D.hparams.length > 1 ? FILLS[hparams % FILLS.length] : FILLS[0]);
const sizeOf = (hparams) => (D.hparams.length > 1 ? 0.65 ** Math.floor(hparams / FILLS.length) : 1);
const look = (line) => ({ name: label(line), fill: fillOf(line.hparams), size: sizeOf(line.hparams), colour: D.learners[line.learner].colour, mark: MARKS[D.learners[line.learner].mark],
  dash: dashOf(line.learner, line.hparams), learner: D.learners[line.learner].name, hparams: D.hparams[line.hparams] });
const plus = (mean, away) => mean.map((v, i) => (there(v) && there(away[i]) ? v + away[i] : null));

/* Metric m of a line with its band. */
function withBand(line, m) {
  const [below, above] = state.band === "none" ? [[], []] : line[state.band];
  const y = line.mean[m], banded = state.band !== "none";
  return { y, low: banded ? plus(y, below[m]) : null, high: banded ? plus(y, above[m]) : null };
}

const unitOf = (v, m) => (m < 2 ? v.reward_unit : v.cost_units[0]);
const shown = (v) => v.lines.filter(visible);
const common = (v, signed = false) => ({ view: v, episodes: v.x, signed }); // signed: of a weak metric

function metricPanel(v, m) {
  return { ...common(v, m % 2 === 1), id: METRICS[m].replace(" ", "_"), kind: "curve", title: METRICS[m][0].toUpperCase() + METRICS[m].slice(1), guides: true,
    x: "episode", y: `cumulative, ${unitOf(v, m)}`, series: shown(v).map((line) => ({ ...look(line), x: v.x, ...withBand(line, m) })) };
}

/* Regret (vertical) against violation at T: the trade-off; kind 0 strong, 1 weak. The thin line is the path up to T. */
function tradeoffPanel(v, kind) {
  const word = kind ? "weak" : "strong", last = v.x.length - 1;
  const series = shown(v).map((line) => {
    const [r, c] = [withBand(line, kind), withBand(line, 2 + kind)], end = (list) => (list ? [list[last]] : null);
    return { ...look(line), x: [c.y[last]], y: [r.y[last]], xlow: end(c.low), xhigh: end(c.high), low: end(r.low), high: end(r.high), path: [c.y, r.y] };
  });
  return { ...common(v, kind === 1), id: `tradeoff_${word}`, kind: "points", title: `Trade-off: ${word} regret against ${word} violation at T`,
    x: `${word} violation, ${unitOf(v, 2)}`, y: `${word} regret, ${unitOf(v, 0)}`, series };
}

function cancellationPanel(v, what) {
  const m = what === "regret" ? 0 : 2;
  const series = shown(v).map((line) => ({ ...look(line), x: line.mean[m + 1], y: line.mean[m] }));
  return { ...common(v), id: `strong_weak_${what}`, kind: "path", title: `Strong against weak ${what} (dotted: equal)`, diagonal: true,
    x: `weak ${what}, ${unitOf(v, m)}`, y: `strong ${what}, ${unitOf(v, m)}`, series };
}

function constraintPanels(v) {
  return v.optimal.flatMap((optimal, i) => {
    const of = v.optimal.length > 1 ? ` of constraint ${i}` : "", unit = v.cost_units[i + 1];
    const series = (name) => shown(v).map((line) => ({ ...look(line), x: v.x, y: line[name][i] }));
    const multipliers = { ...common(v), id: `multiplier_${i}`, kind: "curve", title: `Running mean of the multiplier${of} (dotted: optimal)`,
      x: "episode", y: `${v.reward_unit} per ${unit}`, flat: optimal, series: series("multipliers") };
    const violations = { ...common(v), id: `violation_${i}`, kind: "curve", title: `Strong violation${of}`, guides: true, x: "episode",
      y: `cumulative, ${unit}`, series: series("violations") };
    return v.optimal.length > 1 ? [multipliers, violations] : [multipliers];
  });
}

const MULTIPLES = {
  strong: ["trade-off, strong", (v) => tradeoffPanel(v, 0)], weak: ["trade-off, weak", (v) => tradeoffPanel(v, 1)],
  ...Object.fromEntries(METRICS.map((name, m) => [name.replace(" ", "_"), [name, (v) => metricPanel(v, m)]])),
};

function mainPanels(v) {
  return [tradeoffPanel(v, 0), tradeoffPanel(v, 1), ...[0, 2, 1, 3].map((m) => metricPanel(v, m)), cancellationPanel(v, "regret"),
    cancellationPanel(v, "violation"), ...constraintPanels(v)];
}

/* The same panel for each instance of the environment and pooled; without several instances, for each environment. */
function multiplePanels() {
  const views = D.views.filter((v) => v.T === state.T && (view().several ? v.environment === state.environment : v.instance === null || !v.several));
  if (views.length < 2) return [];
  const panels = views.map((v) => ({ ...MULTIPLES[state.multiple][1](v), title: !view().several ? v.environment : v.instance === null ? "pooled" : `instance ${v.instance}`, small: true }));
  const all = panels.map(values), joined = (name) => all.flatMap((entry) => entry[name]);
  const extent = { x: joined("x"), xbands: joined("xbands"), y: joined("y"), bands: joined("bands") };
  return panels.map((panel) => ({ ...panel, id: panel.id + "_" + panel.title, zoom: panel.id, extent }));
}

function growthPanels() {
  return growthViews().map((g) => ({ view: g, id: `growth_${g.metric}`, kind: "growth", title: g.metric.replace("_", " ") + " at T", guides: true,
    x: "T", y: `at T, ${g.unit}`, series: shown(g).map((line) => ({ ...look(line), x: g.x, y: line.mean, low: line.low, high: line.high })) }));
}
const growthViews = () => D.growth.filter((g) => g.environment === state.environment && instanceName(g.instance) === state.instance);

/* The numbers that the axes must contain: means and the ends of bands. */
function values(panel) {
  const range = panel.kind === "curve" && state.zoom.x, used = (x) => !range || (x >= range[0] && x <= range[1]);
  const of = (s, lists) => lists.filter(Boolean).flatMap((list) => list.filter((_, i) => used(s.x[i])));
  const all = (...names) => panel.series.flatMap((s) => of(s, names.map((name) => s[name])));
  const found = { x: all("x"), xbands: all("xlow", "xhigh"), y: panel.flat > 0 ? [...all("y"), panel.flat] : all("y"), bands: all("low", "high") };
  return panel.signed ? { ...found, x: [...found.x, ...found.xbands], y: [...found.y, ...found.bands] } : found; // bands may cross 0
}

const zoomKey = (panel) => (panel.kind === "curve" ? "x" : panel.zoom || panel.id);

/* Both axes of a panel. Episodes are logarithmic from a decade on. */
function axes(panel) {
  const { x, xbands, y, bands } = panel.extent || values(panel), zoom = state.zoom[zoomKey(panel)], [first, last] = extent(x.filter(there));
  const over = panel.kind === "curve", growth = panel.kind === "growth", zeros = panel.kind === "points";
  const xAxis = axis(x, xbands, { log: state.log && (!over || last >= 10 * first), zoom: zoom && zoom.slice(0, 2), pad: over ? 0 : 0.06, zero: !over && !growth, zeros });
  const yAxis = axis(y, bands, { log: state.log && (!over || xAxis.kind === "log"), zoom: zoom && zoom.length === 4 ? zoom.slice(2) : null, zero: !growth, zeros, pad: 0.05 });
  return { x: xAxis, y: yAxis };
}

/* The rows of a panel as a table, heads first: all that is drawn. */
function panelRows(panel) {
  const banded = panel.series.some((s) => s.low), wide = panel.series.some((s) => s.xlow);
  const head = ["learner", "hparams", ...(panel.kind === "path" ? ["episode"] : []), panel.x, ...(wide ? [panel.x + " low", panel.x + " high"] : []),
    panel.y, ...(banded ? [panel.y + " low", panel.y + " high"] : [])];
  const cell = (list, i) => (list ? [list[i] ?? ""] : [""]);
  return [head, ...panel.series.flatMap((s) => s.x.map((x, i) => [s.learner, s.hparams, ...(panel.kind === "path" ? [panel.episodes[i]] : []), x ?? "",
    ...(wide ? [...cell(s.xlow, i), ...cell(s.xhigh, i)] : []), s.y[i] ?? "", ...(banded ? [...cell(s.low, i), ...cell(s.high, i)] : [])]))];
}
