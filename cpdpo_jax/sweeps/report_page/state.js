/* What is selected, kept in the address after #, and what of the data it selects. */
const METRICS = ["strong regret", "weak regret", "strong violation", "weak violation"];
const $ = (id) => document.getElementById(id);
const about = JSON.parse($("about").textContent);
let D; // the unpacked data
let state;

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

const environments = () => [...new Set(D.views.map((v) => v.environment))];
const viewsOf = (environment) => D.views.filter((v) => v.environment === environment);
const episodesOf = (environment) => [...new Set(viewsOf(environment).map((v) => v.T))];
const instanceName = (instance) => (instance === null ? "pooled" : String(instance));
const instancesOf = (environment) => [...new Set(viewsOf(environment).map((v) => instanceName(v.instance)))];
const place = (v) => v.environment + (!v.several ? "" : v.instance === null ? ", pooled" : ", instance " + v.instance);

/* The selection that the address describes; what it leaves out or names wrongly has its default. */
function readState() {
  const query = new URLSearchParams(location.hash.slice(1));
  const choice = (key, known, fallback) => (known.includes(query.get(key)) ? query.get(key) : fallback);
  const environment = choice("env", environments(), environments()[0]);
  const times = episodesOf(environment).map(String), instances = instancesOf(environment);
  const zoom = {};
  for (const [key, value] of query) {
    const range = value.split("_").map(Number);
    if (key.startsWith("zoom.") && range.every(isFinite) && range[0] < range[1]) zoom[key.slice(5)] = range;
  }
  state = {
    environment, zoom, instance: choice("instance", instances, instances.at(-1)), T: +choice("T", times, times.at(-1)),
    band: choice("band", ["interval", "quantiles", "none"], "interval"), log: query.get("log") !== "0",
    hidden: new Set(query.getAll("hide")), multiple: choice("show", Object.keys(MULTIPLES), "strong"),
    all: query.get("all") === "1", sort: query.get("sort"), down: query.get("down") === "1", theme: choice("theme", ["light", "dark"], null),
  };
}

function writeState() {
  const out = new URLSearchParams(), put = (key, value, fallback) => value !== fallback && value !== null && out.set(key, value);
  put("env", state.environment, environments()[0]);
  put("instance", state.instance, instancesOf(state.environment).at(-1));
  put("T", state.T, episodesOf(state.environment).at(-1));
  put("band", state.band, "interval");
  put("log", state.log ? "1" : "0", "1");
  put("show", state.multiple, "strong");
  put("all", state.all ? "1" : "0", "0");
  put("sort", state.sort, null);
  put("down", state.down ? "1" : "0", "0");
  put("theme", state.theme, null);
  for (const name of state.hidden) out.append("hide", name);
  for (const [key, range] of Object.entries(state.zoom)) out.set("zoom." + key, range.map((v) => +v.toPrecision(4)).join("_"));
  history.replaceState(null, "", "#" + out);
}

const view = () => D.views.find((v) => v.environment === state.environment && instanceName(v.instance) === state.instance && v.T === state.T);
const visible = (line) => !state.hidden.has("l:" + D.learners[line.learner].name) && !state.hidden.has("s:" + D.hparams[line.hparams]);
const starred = (learner) => D.learners[learner].name + (D.learners[learner].extra ? "*" : "");
const label = (line) => starred(line.learner) + (D.hparams.length > 1 ? ", " + D.hparams[line.hparams] : "");
const dark = () => (state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
