/* The controls and sections of the page; `update` brings all of it to the state. */
const option_ = (value, text) => html("option", { value }, text);

function picker(text, id, choices, get, set) {
  const select = html("select", { id, change: () => { set(select.value); update(); } });
  const node = html("label", {}, text, select);
  node.refresh = () => {
    const all = choices();
    select.replaceChildren(...all.map(([value, name]) => option_(value, name)));
    select.value = get();
    node.hidden = all.length < 2;
  };
  return node;
}

function bound(text, id, i) {
  const input = html("input", { id, type: "number", min: "1", change: () => {
    const x = view().x, range = [...(state.zoom.x || [x[0], x.at(-1)])];
    range[i] = +input.value || x.at(i ? -1 : 0);
    if (range[0] < range[1]) state.zoom.x = range;
    update();
  } });
  const node = html("label", {}, text, input);
  node.refresh = () => { const x = view().x; input.value = Math.round((state.zoom.x || [x[0], x.at(-1)])[i]); };
  return node;
}

function toggle(key, text, sign) {
  const node = html("button", { "data-toggle": key, click: () => { state.hidden.has(key) ? state.hidden.delete(key) : state.hidden.add(key); update(); } });
  node.refresh = () => { node.setAttribute("aria-pressed", String(!state.hidden.has(key))); node.replaceChildren(sign(), text); };
  return node;
}

/* Keep the selection possible: T and instance that the environment has. */
function settle() {
  const times = episodesOf(state.environment), instances = instancesOf(state.environment);
  if (!times.includes(state.T)) state.T = times.at(-1);
  if (!instances.includes(state.instance)) state.instance = instances.at(-1);
}

let widgets = [];
function controls() {
  const named = (list) => list.map((value) => [value, value]);
  const log = html("input", { type: "checkbox", id: "log", change: () => { state.log = log.checked; update(); } });
  const reset = html("button", { id: "reset", click: () => { state.zoom = {}; update(); } }, "reset zoom");
  reset.refresh = () => { log.checked = state.log; reset.disabled = !Object.keys(state.zoom).length; };
  const first = [
    picker("environment", "place", () => named(environments()), () => state.environment, (v) => { state.environment = v; state.zoom = {}; settle(); }),
    picker("instance", "instance", () => named(instancesOf(state.environment)), () => state.instance, (v) => { state.instance = v; }),
    picker("T", "T", () => episodesOf(state.environment).map((t) => [t, t.toLocaleString("en")]), () => state.T, (v) => { state.T = +v; state.zoom = {}; }),
    picker("bands", "band", () => [["interval", "95 % interval"], ["quantiles", "10 to 90 % of seeds"], ["none", "none"]], () => state.band, (v) => { state.band = v; }),
  ];
  const second = [bound("episodes from", "from", 0), bound("to", "to", 1), reset];
  const soft = () => (dark() ? DARK.soft : LIGHT.soft);
  const learners = D.learners.map((learner, i) => toggle("l:" + learner.name, starred(i), () => glyph(tint(learner.colour, dark()), MARKS[learner.mark], D.hparams.length > 1 ? "solid" : dashOf(i))));
  const hparams = D.hparams.length > 1 ? D.hparams.map((name, i) => toggle("s:" + name, name, () => glyph(soft(), MARKS.o, DASHES[i % DASHES.length], fillOf(i)))) : [];
  const multiple = $("multiple");
  multiple.append(...Object.entries(MULTIPLES).map(([key, [text]]) => option_(key, text)));
  multiple.addEventListener("change", () => { state.multiple = multiple.value; update(); });
  $("all").addEventListener("change", () => { state.all = $("all").checked; update(); });
  $("controls").append(html("div", {}, ...first), html("div", {}, ...second, html("label", {}, log, "logarithmic")), html("div", {}, ...learners, ...hparams));
  widgets = [...first, ...second, ...learners, ...hparams];
  const kinds = [...new Set(D.learners.map((learner) => learner.extra).filter(Boolean))];
  $("extra").textContent = kinds.map((kind) => `* extra knowledge, which the others do not have: ${kind}`).join(". ");
}

function summary() {
  const v = view(), several = v.several;
  const pooled = D.views.filter((view) => view.several && view.instance === null).flatMap((view) => view.lines.map((line) => ({ ...line,
    environment: view.environment, instance: null, T: view.T, seeds: "all", metrics: line.mean.map((mean, m) => [mean.at(-1), ...line.interval.map((side) => plus(mean, side[m]).at(-1))]) })));
  const here = (row) => row.environment === v.environment && row.T === v.T && row.instance === (several ? v.instance : row.instance);
  const rows = [...D.rows, ...pooled].filter((row) => visible(row) && (state.all || here(row)));
  const columns = [
    ...(state.all ? [{ name: "environment", get: (r) => r.environment }, { name: "instance", get: (r) => instanceName(r.instance) }, { name: "T", get: (r) => r.T, numeric: true }] : []),
    { name: "learner", get: (r) => starred(r.learner), glyph: true }, ...(D.hparams.length > 1 ? [{ name: "hparams", get: (r) => D.hparams[r.hparams] }] : []),
    { name: "seeds", get: (r) => r.seeds, numeric: true }, ...METRICS.map((name, m) => ({ name, get: (r) => r.metrics[m], numeric: true, interval: true, best: m % 2 === 0 }))];
  const units = v.units ? ", " + v.units : "";
  $("table-title").textContent = state.all ? "At T, all environments" : `At T = ${v.T.toLocaleString("en")}, ${place(v)}${units}`;
  const by = (name) => { state.down = state.sort === name && !state.down; state.sort = name; update(); };
  table($("summary"), "summary", columns, rows, { column: state.sort, down: state.down, by });
}

const slopesSorted = { column: null, down: false };
function exponents() {
  const views = growthViews();
  const rows = views.length ? views[0].lines.filter(visible).map((line) => ({ ...line, slopes: views.map((g) => g.lines.find((l) => l.learner === line.learner && l.hparams === line.hparams)?.exponent || [null]) })) : [];
  const columns = [{ name: "learner", get: (r) => starred(r.learner), glyph: true }, ...(D.hparams.length > 1 ? [{ name: "hparams", get: (r) => D.hparams[r.hparams] }] : []),
    ...views.map((g, i) => ({ name: `exponent of ${g.metric.replace("_", " ")}`, get: (r) => r.slopes[i], numeric: true, interval: true, missing: "none" }))];
  const by = (name) => { Object.assign(slopesSorted, { down: slopesSorted.column === name && !slopesSorted.down, column: name }); exponents(); };
  table($("exponents"), "exponents", columns, rows, { ...slopesSorted, by });
}

function update() {
  const v = view();
  if (state.theme) document.documentElement.dataset.theme = state.theme; else delete document.documentElement.dataset.theme;
  widgets.forEach((widget) => widget.refresh());
  $("multiple").value = state.multiple;
  $("all").checked = state.all;
  Figure.fill($("charts"), mainPanels(v));
  const multiples = multiplePanels(), growth = growthPanels();
  $("multiples-part").hidden = !multiples.length;
  Figure.fill($("multiples"), multiples);
  $("growth-part").hidden = !growth.length;
  Figure.fill($("growth"), growth);
  exponents();
  summary();
  $("environment").textContent = v.description;
  writeState();
}

function runs() {
  for (const r of about.runs) {
    $("runs").append(html("h3", {}, r.directory), html("p", { class: "soft" }, r.about),
      html("details", {}, html("summary", {}, "config.toml, complete"), html("pre", {}, r.config), html("button", { click: () => save("config.toml", "application/toml", r.config) }, "save it")),
      html("details", {}, html("summary", {}, "manifest.json"), html("pre", {}, r.manifest)),
      html("p", {}, "The same run again, and this page:"), html("pre", {}, r.commands));
  }
  $("runs").append(html("p", {}, "Each figure, from Python:"), html("pre", {}, about.figures));
}

function redraw(all) {
  for (const figure of Figure.all) { figure.stale = true; if (all || figure.near) figure.draw(); }
}

unpack($("data").textContent).then((data) => {
  D = data;
  $("subtitle").textContent = about.subtitle;
  readState();
  controls();
  runs();
  update();
  addEventListener("hashchange", () => { readState(); update(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
  addEventListener("beforeprint", () => { printing = true; redraw(true); });
  addEventListener("afterprint", () => { printing = false; redraw(); });
  document.documentElement.dataset.ready = "";
});
