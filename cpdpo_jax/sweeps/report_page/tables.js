/* Elements, files to save, and tables that sort. */
function html(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== false) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/* A learner's mark on a line in its colour, with the filling and the dash of its hparams. */
function glyph(colour, mark, dash, fill = FILLS[0]) {
  const box = html("span", { class: "mark" });
  const dashes = Array.isArray(dash) ? `stroke-dasharray="${dash.join(" ")}"` : "";
  const [x1, y1, x2, y2] = fill, cut = `inset(${100 * y1}% ${100 * (1 - x2)}% ${100 * (1 - y2)}% ${100 * x1}%)`, place = 'transform="translate(8.5 .5) scale(.9)"';
  const outline = fill === FILLS[0] ? "" : `<path d="${mark}" fill="var(--card)" stroke="${colour}" stroke-width="1.5" ${place}/>`;
  const shape = mark ? `${outline}<path d="${mark}" fill="${colour}" style="clip-path: ${cut}" ${place}/>` : "";
  box.innerHTML = `<svg class="mark" viewBox="0 0 26 10" aria-hidden="true"><path d="M0 5H26" stroke="${colour}" stroke-width="2" ${dashes}/>${shape}</svg>`;
  return box;
}
const glyphOf = (line) => glyph(tint(look(line).colour, dark()), look(line).mark, look(line).dash, look(line).fill);

function save(name, type, content) {
  const address = typeof content === "string" && content.startsWith("data:") ? content : URL.createObjectURL(new Blob([content], { type }));
  html("a", { href: address, download: name.replace(/[^A-Za-z0-9.]+/g, "-") }).click();
}

const csv = (rows) => rows.map((row) => row.map((v) => (/[",\n]/.test(v) ? `"${String(v).replaceAll('"', '""')}"` : v)).join(",")).join("\n") + "\n";
const TEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" };
const tex = (text) => String(text).replace(/[\\~^&%#_${}]/g, (c) => TEX[c] || "\\" + c).replace("–", "--");
const texNumber = (text) => "$" + text.replace(/,/g, "{,}").replace("–", "\\text{--}").replace(/e(-?)(\d+)/, "\\times 10^{$1$2}") + "$";

/* (column, row) => the number format of that column for the rows of the same environment, instance and T. */
function formatsOf(columns, rows) {
  const key = (column, row) => [column.name, row.environment, row.instance, row.T].join("\n"), values = new Map();
  for (const column of columns.filter((c) => c.interval)) for (const row of rows) {
    const k = key(column, row);
    values.set(k, [...(values.get(k) || []), ...[column.get(row)].flat()]);
  }
  const formats = new Map([...values].map(([k, list]) => [k, columnFormat(list)]));
  return (column, row) => formats.get(key(column, row));
}

const REFERENCES = ["lp_optimal", "unconstrained_optimal"]; // they know the solution
/* A table for LaTeX with booktabs; an interval stands in brackets after its mean, and the best strong metric is bold. */
function latex(columns, rows) {
  const formats = formatsOf(columns, rows), same = (a, b) => a.environment === b.environment && a.instance === b.instance && a.T === b.T;
  const fair = (row) => row.learner === undefined || !(D.learners[row.learner].extra || REFERENCES.includes(D.learners[row.learner].name));
  const least = (column, row) => { // the lowest mean of learners without extra knowledge, if there are several
    const means = rows.filter((other) => same(row, other) && fair(other)).map((other) => column.get(other)[0]).filter(there);
    return fair(row) && means.length > 1 ? Math.min(...means) : null;
  };
  const cell = (column, row) => {
    const v = column.get(row), show = (v) => texNumber(formats(column, row)(v));
    if (!column.numeric || typeof v === "string") return tex(v);
    const best = column.best && v[0] === least(column, row), mean = (text) => (best ? `\\textbf{\\boldmath${text}}` : text);
    return Array.isArray(v) ? `${mean(show(v[0]))}${there(v[1]) ? ` [${show(v[1])}, ${show(v[2])}]` : ""}` : texNumber(v.toLocaleString("en"));
  };
  const line = (cells) => "  " + cells.join(" & ") + " \\\\";
  return ["% needs \\usepackage{booktabs, amsmath}", `\\begin{tabular}{${columns.map((c) => (c.numeric ? "r" : "l")).join("")}}`, "  \\toprule", line(columns.map((c) => tex(c.name))),
    "  \\midrule", ...rows.map((row) => line(columns.map((c) => cell(c, row)))), "  \\bottomrule", "\\end{tabular}", ""].join("\n");
}

/* Fill a place with a table. columns: {name, get(row), numeric}; get gives a text, a number or [mean, low, high]. */
function table(target, name, columns, rows, sorted) {
  const value = (column, row) => { const v = column.get(row); return Array.isArray(v) ? v[0] : v; };
  const chosen = columns.find((c) => c.name === sorted.column);
  if (chosen) {
    rows = [...rows].sort((a, b) => {
      const [p, q] = [value(chosen, a), value(chosen, b)];
      const order = typeof p === "string" ? p.localeCompare(q) : (p ?? Infinity) - (q ?? Infinity);
      return sorted.down ? -order : order;
    });
  }
  const head = html("tr", {}, ...columns.map((column) => html("th", { class: column.numeric ? "n" : "", scope: "col", "data-column": column.name,
    "aria-sort": column === chosen ? (sorted.down ? "descending" : "ascending") : null },
    html("button", { click: () => { sorted.by(column.name); target.querySelector(`[data-column="${column.name}"] button`).focus(); } }, column.name))));
  const formats = formatsOf(columns, rows);
  const body = rows.map((row) => html("tr", {}, ...columns.map((column) => {
    const v = column.get(row), content = html("span"), show = formats(column, row);
    if (Array.isArray(v)) content.append(html("b", {}, v[0] === null ? column.missing || "not finite" : show(v[0])), html("small", {}, there(v[1]) ? `[${show(v[1])}, ${show(v[2])}]` : ""));
    else content.append(...(column.glyph ? [glyphOf(row), " "] : []), column.numeric ? v.toLocaleString("en") : v);
    return html("td", { class: column.numeric ? "n" : "", "data-name": column.name }, content);
  })));
  const flat = [columns.flatMap((c) => (c.interval ? [c.name, c.name + " low", c.name + " high"] : [c.name])),
    ...rows.map((row) => columns.flatMap((c) => c.get(row)).map((v) => v ?? ""))];
  target.replaceChildren(html("table", {}, html("thead", {}, head), html("tbody", {}, ...body)), html("div", { class: "tools" },
    html("button", { click: () => save(name + ".csv", "text/csv", csv(flat)) }, "save as CSV"),
    html("button", { click: () => save(name + ".tex", "application/x-tex", latex(columns, rows)) }, "save as LaTeX")));
}
