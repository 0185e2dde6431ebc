/* A panel drawn by ECharts: its option, and the figure with values, zoom, keyboard and files to save. */
const LIGHT = { ink: "#1d2330", soft: "#596173", grid: "#e8ebf0", guide: "#8f97a6", card: "#ffffff", band: 0.18, dark: false };
const DARK = { ink: "#e6e9ef", soft: "#a3abba", grid: "#2c323e", guide: "#7d8596", card: "#1c2028", band: 0.3, dark: true };
let printing = false;
const theme = () => (dark() && !printing ? DARK : LIGHT);

/* ECharts' axis: linear, with our ticks. */
function drawnAxis(a, name, colours, most, vertical) {
  const at = ticks(a, most).map(a.to);
  return {
    type: "value", min: a.low, max: a.high, name, nameLocation: "middle", nameGap: vertical ? 50 : 26,
    nameTextStyle: { color: colours.soft, fontSize: 12 }, axisLine: { show: true, onZero: false, lineStyle: { color: colours.guide } },
    axisLabel: { color: colours.soft, fontSize: 11, customValues: at, formatter: (u) => tickLabel(+a.back(u).toPrecision(10)), hideOverlap: true },
    axisTick: { customValues: at }, splitLine: { lineStyle: { color: colours.grid } }, axisPointer: { show: false },
  };
}

/* Lines of slope 1/2 and 1 on logarithmic axes, through the end (growth: the start) of the largest curve. */
function guides(panel, { x, y }, colours) {
  if (!panel.guides || x.kind !== "log" || y.kind !== "log") return [];
  const start = panel.kind === "growth";
  const tops = panel.series.map((s) => { const i = start ? 0 : s.x.findLastIndex((v) => v > 0 && x.to(v) <= x.high + 1e-9); return [x.to(s.x[i]), y.to(s.y[i])]; }).filter(([, v]) => there(v));
  if (!tops.length) return [];
  const [u, v] = tops.reduce((a, b) => (b[1] > a[1] ? b : a));
  return [[0.5, "slope 1/2", [2, 3]], [1, "slope 1", [6, 3]]].map(([slope, text, type]) => {
    const far = start ? Math.min(x.high, u + (y.high - v) / slope) : Math.max(x.low, u - (v - y.low) / slope);
    const end = { value: [far, v + slope * (far - u)], symbol: "circle", symbolSize: 1, label: { show: true, formatter: text, color: colours.soft, fontSize: 10, distance: 2, ...(start ? { position: "top", align: "right" } : { position: "bottom", align: "left" }) } };
    return { type: "line", silent: true, z: 1, symbol: "none", data: [[u, v], end], lineStyle: { color: colours.guide, width: 1, type }, itemStyle: { color: colours.guide } };
  });
}

/* The series of one line: its band, line, interval and marks. */
function drawn(panel, s, i, { x, y }, colours) {
  const colour = tint(s.colour, colours.dark), at = (list) => s.x.map((v, k) => [x.to(v), list[k] === null ? null : y.to(list[k])]);
  const floor = (v) => (there(v) ? Math.max(y.to(v) ?? y.low, y.low - (y.high - y.low)) : null);
  const quiet = { type: "line", silent: true, symbol: "none", z: 2 }, out = [];
  if (panel.kind === "points") {
    const path = s.path[0].map((v, k) => [x.to(v), y.to(s.path[1][k])]);
    out.push({ ...quiet, data: path, lineStyle: { color: colour, width: 1, opacity: 0.4, type: s.dash } });
  } else {
    out.push({ type: "line", name: s.name, silent: true, z: 3, data: at(s.y), showSymbol: false, symbol: "path://" + s.mark, symbolSize: 8,
      lineStyle: { color: colour, width: 2, type: s.dash }, itemStyle: painted(s, colour, colours.card, 0) });
  }
  if (s.low && panel.kind === "curve") { // the area between two stacked lines
    const [low, high] = [s.low.map(floor), s.high.map(floor)], band = { ...quiet, stack: "band " + i, stackStrategy: "all", lineStyle: { color: colour, width: 0.7, opacity: 0.5 } };
    out.push({ ...band, data: s.x.map((v, k) => [x.to(v), low[k]]) });
    out.push({ ...band, data: s.x.map((v, k) => [x.to(v), low[k] === null ? null : high[k] - low[k]]), areaStyle: { color: colour, opacity: colours.band * Math.min(1, 4 / panel.series.length) } });
  } else {
    const ends = [];
    s.x.forEach((v, k) => {
      if (s.low && there(s.low[k]) && there(y.to(s.y[k]))) ends.push([x.to(v), floor(s.low[k])], [x.to(v), floor(s.high[k])], [null, null]);
      if (s.xlow && there(s.xlow[k]) && there(x.to(v))) ends.push([x.to(s.xlow[k]) ?? x.low, y.to(s.y[k])], [x.to(s.xhigh[k]), y.to(s.y[k])], [null, null]);
    });
    if (ends.length) out.push({ ...quiet, data: ends, lineStyle: { color: colour, width: 1.5 } });
  }
  return out;
}

/* ECharts' style of a mark: full, or partly filled in the learner's colour with an outline. */
function painted(s, colour, back, border) {
  const [x1, y1, x2, y2] = s.fill, all = x2 - x1 + (y2 - y1);
  if (all === 2) return { color: colour, borderColor: back, borderWidth: border };
  const across = x2 - x1 < 1, [from, to] = across ? [x1, x2] : [y1, y2], stop = (offset, color) => ({ offset, color });
  const half = { type: "linear", x: 0, y: 0, x2: across ? 1 : 0, y2: across ? 0 : 1, colorStops: from === 0
    ? [stop(0, colour), stop(to, colour), stop(to, back), stop(1, back)] : [stop(0, back), stop(from, back), stop(from, colour), stop(1, colour)] };
  return { color: all === 0 ? back : half, borderColor: colour, borderWidth: 1.5 };
}

/* Marks: at each point, or at a few of a curve, a different few for each line. */
function marks(panel, { x, y }, colours) {
  const data = panel.series.flatMap((s, i) => {
    const every = panel.kind === "curve" || panel.kind === "path" ? Math.ceil(s.x.length / (panel.small ? 2 : 4)) : 1;
    const item = { symbol: "path://" + s.mark, symbolSize: s.size * (panel.kind === "points" ? 10 : 7), itemStyle: painted(s, tint(s.colour, colours.dark), colours.card, panel.kind === "points" ? 1 : 0) };
    return s.x.map((v, k) => ({ value: [x.to(v), y.to(s.y[k])], ...item, name: s.name }))
      .filter((point, k) => (s.x.length - 1 - k + i * 3) % every === 0 && point.value.every(there));
  });
  return { type: "scatter", silent: true, z: 4, data };
}

function straight(points, colours) {
  return { type: "line", silent: true, symbol: "none", z: 1, data: points, lineStyle: { color: colours.guide, type: [2, 3], width: 1.5 } };
}

/* The whole option. `file`: with title and legend, in light colours, for a file of its own. */
function option(panel, both, { width, height, file }) {
  const colours = file ? LIGHT : theme(), { x, y } = both, names = panel.series.map((s) => s.name);
  const rows = file ? Math.ceil(names.reduce((sum, name) => sum + 48 + 7 * name.length, 0) / (width - 60)) : 0;
  const series = [...guides(panel, both, colours), ...panel.series.flatMap((s, i) => drawn(panel, s, i, both, colours)), marks(panel, both, colours)];
  if (panel.flat > 0 || (panel.flat === 0 && y.kind === "linear")) series.push(straight([[x.low, y.to(panel.flat)], [x.high, y.to(panel.flat)]], colours));
  if (panel.diagonal) {
    const [a, b] = [Math.max(x.back(x.low), y.back(y.low)), Math.min(x.back(x.high), y.back(y.high))];
    const points = Array.from({ length: 41 }, (_, k) => x.back(x.to(a) + ((x.to(b) - x.to(a)) * k) / 40)).map((v) => [x.to(v), y.to(v)]);
    if (a < b) series.push(straight(points, colours));
  }
  if (file && panel.kind === "points") for (const s of panel.series) series.push({ type: "scatter", name: s.name, symbol: "path://" + s.mark, itemStyle: painted(s, s.colour, colours.card, 0), data: [] });
  return {
    animation: false, backgroundColor: file ? "#ffffff" : "transparent", textStyle: { fontFamily: "system-ui, DejaVu Sans, sans-serif" },
    title: { show: Boolean(file), text: file, left: "center", top: 8, textStyle: { fontSize: 14, color: colours.ink, width: width - 40, overflow: "break" } },
    legend: { show: Boolean(file), data: [...new Set(names)], bottom: 6, left: 30, right: 30, selectedMode: false, textStyle: { color: colours.ink } },
    grid: { left: 68, right: 16, top: file ? 52 : 10, bottom: 46 + (file ? 22 * rows + 6 : 0), containLabel: false, outerBoundsMode: "none" },
    xAxis: drawnAxis(x, panel.x, colours, Math.max(3, Math.floor(width / 75))),
    yAxis: drawnAxis(y, panel.small && panel.y.length > 30 ? panel.y.slice(0, 29) + "…" : panel.y, colours, Math.max(3, Math.floor(height / 45)), true),
    toolbox: { left: -100, itemSize: 1, feature: { dataZoom: panel.kind === "curve" ? { yAxisIndex: "none", filterMode: "none" } : { filterMode: "none" } } },
    series,
  };
}

class Figure {
  constructor(panel) {
    this.title = html("h3");
    this.note = html("p", { class: "note" });
    this.place = html("div", { class: "chart", tabindex: "0", role: "img", keydown: (e) => this.key(e), blur: () => this.hide() });
    this.cursor = html("div", { class: "cursor", hidden: "" });
    this.tip = html("div", { class: "tip", role: "status", hidden: "" });
    const menu = html("details", { class: "save" }, html("summary", {}, "save"), html("div", {}, ...["SVG", "PNG", "CSV"].map((format) =>
      html("button", { "data-format": format, click: () => { this.save(format); menu.open = false; } }, format))));
    this.node = html("figure", { class: "card" }, html("header", {}, this.title, menu), html("div", { class: "plot" }, this.place, this.cursor, this.tip), this.note);
    this.place.addEventListener("pointermove", (e) => this.point(e));
    this.place.addEventListener("pointerleave", () => this.hide());
    this.place.addEventListener("dblclick", () => this.zoom(null));
    this.set(panel);
    Figure.watch.observe(this.node);
    Figure.sizes.observe(this.place);
  }

  set(panel) {
    this.panel = panel;
    this.stale = true;
    this.node.dataset.id = panel.id;
    this.title.textContent = panel.title;
    this.place.setAttribute("aria-label", `${panel.title}: ${panel.series.length} lines; arrow keys read values, plus and minus zoom`);
    this.hide();
    if (this.near) this.draw();
  }

  draw() {
    if (!this.stale) return;
    this.stale = false;
    this.chart ??= this.start();
    this.axes = axes(this.panel);
    this.remark();
    this.chart.setOption(option(this.panel, this.axes, { width: this.chart.getWidth(), height: this.chart.getHeight() }), true);
    if (!performance.getEntriesByName("first panel").length) performance.mark("first panel");
    if (!matchMedia("(pointer: coarse)").matches) this.chart.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
  }

  start() {
    const chart = echarts.init(this.place, null, { renderer: "svg" });
    chart.on("datazoom", (e) => {
      const range = (dim) => { const zoomed = (e.batch || [e]).find((b) => b.dataZoomId.includes(dim)); return zoomed ? [zoomed.startValue, zoomed.endValue].map(this.axes[dim[0]].back) : []; };
      const found = [...range("xAxis"), ...range("yAxis")];
      if (found.length && found.every(isFinite)) this.zoom(found);
    });
    return chart;
  }

  /* Curves that the axes cannot show, in words. */
  remark() {
    const { y } = this.axes, names = (test) => this.panel.series.filter((s) => s.y.some(there) && test(Math.max(...s.y.filter(there)))).map((s) => s.name);
    const parts = y.kind === "log" ? [["0 throughout", names((top) => top <= 0)], ["below the axis", names((top) => top > 0 && y.to(top) < y.low)]] : [];
    if (y.kind === "linear" && this.panel.series.length && !this.panel.series.some((s) => s.y.some((v) => v))) parts.push(["0 throughout", this.panel.series.map((s) => s.name)]);
    this.note.textContent = parts.filter(([, list]) => list.length).map(([what, list]) => `${what}: ${list.slice(0, 4).join("; ")}${list.length > 4 ? ` and ${list.length - 4} more` : ""}`).join(". ");
    this.note.hidden = !this.note.textContent;
  }

  zoom(range) {
    const key = zoomKey(this.panel);
    if (range) state.zoom[key] = range; else delete state.zoom[key];
    update();
  }

  /* Zoom by a factor around the middle or the cursor; an axis's range as it is shown. */
  zoomBy(factor) {
    const range = (a, middle) => [middle - ((a.high - a.low) * factor) / 2, middle + ((a.high - a.low) * factor) / 2].map(a.back);
    const { x, y } = this.axes, at = this.at && this.values(this.at)[0];
    const middle = (a, v) => (there(v) && there(a.to(v)) ? a.to(v) : (a.low + a.high) / 2);
    const across = range(x, middle(x, at && at[0]));
    if (this.panel.kind === "curve") across[0] = Math.max(across[0], this.panel.episodes[0]), across[1] = Math.min(across[1], this.panel.episodes.at(-1));
    this.zoom(this.panel.kind === "curve" ? across : [...across, ...range(y, middle(y, at && at[1]))]);
  }

  /* Where values can be read: the checkpoints of curves, else the points of all lines, [line, index]. */
  get places() {
    const { panel } = this, inside = (u, a) => there(u) && u >= a.low - 1e-9 && u <= a.high + 1e-9;
    if (panel.kind === "curve" || panel.kind === "growth") return (panel.series[0]?.x || []).map((v, k) => [null, k]).filter(([, k]) => inside(this.axes.x.to(panel.series[0].x[k]), this.axes.x));
    return panel.series.flatMap((s, i) => s.x.map((_, k) => [i, k])).filter(([i, k]) => inside(this.axes.x.to(panel.series[i].x[k]), this.axes.x) && inside(this.axes.y.to(panel.series[i].y[k]), this.axes.y));
  }

  values([i, k]) {
    return (i === null ? this.panel.series : [this.panel.series[i]]).map((s) => [s.x[k], s.y[k], s, k]);
  }

  point(event) {
    if (!this.chart) return;
    const box = this.place.getBoundingClientRect(), at = [event.clientX - box.left, event.clientY - box.top];
    if (!this.chart.containPixel({ gridIndex: 0 }, at)) return this.hide();
    const distance = (p) => { const q = this.pixel(p); return p[0] === null ? Math.abs(q[0] - at[0]) : Math.hypot(q[0] - at[0], q[1] - at[1]); };
    let best = null, least = Infinity;
    for (const p of this.places) { const d = distance(p); if (d < least) [best, least] = [p, d]; }
    if (best) this.show(best);
  }

  pixel(p) {
    const [x, y] = this.values(p)[0];
    return this.chart.convertToPixel({ gridIndex: 0 }, [this.axes.x.to(x), this.axes.y.to(y) ?? this.axes.y.low]);
  }

  show(p) {
    const { panel } = this, interval = (low, high) => (there(low) ? ` [${number(low)}, ${number(high)}]` : "");
    this.at = p;
    const found = this.values(p);
    if (p[0] === null) found.sort((a, b) => (b[1] ?? -Infinity) - (a[1] ?? -Infinity));
    const rows = found.map(([x, y, s, k]) => html("div", {}, glyph(tint(s.colour, dark()), s.mark, s.dash, s.fill), p[0] === null
      ? ` ${s.name}: ${number(y)}${interval(s.low?.[k], s.high?.[k])}`
      : ` ${s.name}: ${panel.x} ${number(x)}${interval(s.xlow?.[k], s.xhigh?.[k])}; ${panel.y} ${number(y)}${interval(s.low?.[k], s.high?.[k])}`));
    const x = p[0] === null ? found[0][0] : panel.episodes[panel.kind === "path" ? p[1] : panel.episodes.length - 1];
    this.tip.replaceChildren(html("b", {}, `${panel.kind === "growth" ? "T =" : "episode"} ${x.toLocaleString("en")}`), ...rows);
    this.tip.hidden = false;
    Figure.cursors(panel.kind === "curve" ? x : null);
    if (panel.kind !== "curve") this.mark(this.pixel(p)[0]);
  }

  /* The cursor line at a pixel; null: none. */
  mark(pixel) {
    this.cursor.hidden = pixel === null;
    if (pixel !== null) Object.assign(this.cursor.style, { left: pixel + "px", top: "10px", height: this.chart.getHeight() - 56 + "px" });
  }

  /* Panels over episodes share their cursor. */
  static cursors(episode) {
    for (const figure of Figure.all) {
      if (!figure.chart || figure.stale || figure.panel.kind !== "curve") { figure.mark(null); continue; }
      const u = episode === null ? null : figure.axes.x.to(episode);
      figure.mark(u !== null && u >= figure.axes.x.low && u <= figure.axes.x.high ? figure.chart.convertToPixel({ gridIndex: 0 }, [u, figure.axes.y.low])[0] : null);
    }
  }

  hide() {
    if (this.tip.hidden) return;
    this.tip.hidden = true;
    this.at = null;
    Figure.cursors(null);
  }

  key(event) {
    this.draw();
    const { places } = this, now = this.at ? places.findIndex((p) => p[0] === this.at[0] && p[1] === this.at[1]) : -1;
    const step = { ArrowRight: now + 1, ArrowLeft: now < 0 ? places.length - 1 : now - 1, Home: 0, End: places.length - 1 }[event.key];
    if (step !== undefined && places.length) this.show(places[Math.max(0, Math.min(places.length - 1, step))]);
    else if (event.key === "+" || event.key === "=") this.zoomBy(0.5);
    else if (event.key === "-") this.zoomBy(2);
    else if (event.key === "0") this.zoom(null);
    else if (event.key === "Escape") this.hide();
    else return;
    event.preventDefault();
  }

  save(format) {
    const { panel } = this, name = `${panel.id}-${state.environment}-${state.instance}-T${state.T}.${format.toLowerCase()}`;
    if (format === "CSV") return save(name, "text/csv", csv(panelRows(panel)));
    const size = { width: 720, height: 480 }, vector = format === "SVG";
    const chart = vector ? echarts.init(null, null, { renderer: "svg", ssr: true, ...size }) : echarts.init(document.createElement("canvas"), null, { ...size, devicePixelRatio: 3 });
    const where = `${panel.small ? MULTIPLES[state.multiple][0] : panel.title}, ${place(panel.view)}`;
    chart.setOption(option(panel, axes(panel), { ...size, file: panel.kind === "growth" ? where : `${where}, T = ${state.T.toLocaleString("en")}` }));
    if (vector) save(name, "image/svg+xml", chart.renderToSVGString());
    else save(name, "image/png", chart.getDataURL({ type: "png", pixelRatio: 3 }));
    chart.dispose();
  }

  remove() {
    this.chart?.dispose();
    Figure.watch.unobserve(this.node);
    Figure.sizes.unobserve(this.place);
    Figure.all.delete(this);
  }

  /* The panels in `target` become these, with as few new figures as possible. */
  static fill(target, panels) {
    const old = [...Figure.all].filter((figure) => figure.node.parentNode === target);
    panels.forEach((panel, i) => {
      if (old[i]) return old[i].set(panel);
      const figure = new Figure(panel);
      Figure.all.add(figure);
      target.append(figure.node);
    });
    for (const figure of old.slice(panels.length)) { figure.remove(); figure.node.remove(); }
  }
}
Figure.all = new Set();
const figureOf = (node) => [...Figure.all].find((figure) => figure.node === node || figure.place === node);
/* Panels are drawn when they come near the window, and again when their size changes. */
Figure.watch = new IntersectionObserver((entries) => {
  for (const e of entries) { const figure = figureOf(e.target); if (figure) { figure.near = e.isIntersecting; if (figure.near) figure.draw(); } }
}, { rootMargin: "300px" });
Figure.sizes = new ResizeObserver((entries) => {
  for (const e of entries) {
    const figure = figureOf(e.target);
    if (!figure?.chart || (figure.chart.getWidth() === Math.round(e.contentRect.width) && figure.chart.getHeight() === Math.round(e.contentRect.height))) continue;
    figure.chart.resize();
    figure.stale = true;
    if (figure.near) figure.draw();
  }
});
