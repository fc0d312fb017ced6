// Shows the page's data: a table with its charts. What is chosen stands in the page's address.
const page = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const MOST_ROWS = 400, FEW = 6;
let state = {}, sheet = {}, views = [];

// Text is only ever set as text, so that no name is read as HTML.
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter(Boolean));
  return element;
}
const select = (id, options, value, onchange) => make("select", { id, onchange: (event) => onchange(event.target.value) },
  ...options.map(([name, text]) => make("option", { value: name, selected: name === value }, text)));
const check = (id, text, checked, onchange, ...before) =>
  make("label", {}, make("input", { type: "checkbox", id, checked, onchange }), " ", ...before, text);
function glyph(row) {
  const style = page.styles[row], mark = make("span", { ariaHidden: "true" }, style && `${style.glyph} `);
  mark.style.color = style?.colour ?? "";
  return mark;
}

// The state: texts by name; lists have a line for each item.
function readAddress() {
  state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  render();
}
function change(changes) {
  state = Object.fromEntries(Object.entries({ ...state, ...changes }).filter(([, value]) => value));
  history.replaceState(null, "", `#${new URLSearchParams(state)}`);
  render();
}
const list = (name) => (state[name] ? state[name].split("\n") : []);
function toggle(name, item) {
  const others = list(name).filter((one) => one !== item);
  change({ [name]: (others.length < list(name).length ? others : [...others, item]).join("\n") });
}
const leave = { sort: "", order: "", columns: "", from: "", panel: "" };  // what is of one table

function render() {
  const focused = document.activeElement.id;
  document.documentElement.dataset.theme = state.theme ?? "";
  const view = page.views.find((one) => one.id === (state.view ?? page.start.view)) ?? page.views[0];
  if (!view) return;
  sheet = view.sheets.find((one) => one.id === (state.sheet ?? page.start.sheet)) ?? view.sheets[0];
  $("summary").textContent = page.summary;
  $("views").replaceChildren(...page.views.map((one) => make("button", {
    id: `view-${one.id}`, ariaCurrent: one === view ? "page" : null,
    onclick: () => change({ ...leave, view: one.id, sheet: one.sheets[0].id }),
  }, one.title)));
  $("question").textContent = view.question;
  renderTools(view);
  const rows = sortedRows();
  renderTable(rows);
  renderCharts(rows.filter((row) => row.mixer));
  document.getElementById(focused)?.focus({ preventScroll: true });
}

function renderTools(view) {
  const chosen = (id, options, name) => {
    $(id).replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
    $(id).value = name;
  };
  chosen("sheet", view.sheets.map((one) => [one.id, one.title]), sheet.id);
  $("sheet").hidden = view.sheets.length < 2;
  $("search").value = state.search ?? "";
  $("theme").value = state.theme ?? "";
  const mixers = [...new Set(sheet.rows.map((row) => row.mixer).filter(Boolean))].sort(), hidden = list("hide");
  $("mixers-count").textContent = `Mixers ${mixers.filter((one) => !hidden.includes(one)).length} of ${mixers.length}`;
  $("mixers-menu").hidden = !mixers.length;
  $("mixers").replaceChildren(
    make("button", { id: "show-all", onclick: () => change({ hide: "" }) }, "Show all"), " ",
    make("button", { id: "hide-all", onclick: () => change({ hide: mixers.join("\n") }) }, "Hide all"),
    ...mixers.map((one) => check(`mixer-${one}`, one, !hidden.includes(one), () => toggle("hide", one), glyph(one))));
  $("columns").replaceChildren(...sheet.columns.slice(1).map(({ name }) =>
    check(`column-${name}`, name, !list("columns").includes(name), () => toggle("columns", name))));
  const names = sheet.charts.length ? sheet.rows.filter((row) => row.mixer).map((row) => row.name) : [];
  chosen("from", [["", "no row"], ...names.map((name) => [name, name])], state.from ?? "");
  $("from-label").hidden = names.length < 2;
  $("clear").hidden = !list("pick").length;
  $("own-note").hidden = !sheet.rows.some((row) => row.own);
  $("caption").textContent = sheet.caption;
}

const columnOf = (name) => sheet.columns.findIndex((one) => one.name === name);
const sorted = () => (columnOf(state.sort) < 0 ? sheet.sort : state.sort);
function sortedRows() {
  const words = (state.search ?? "").toLowerCase().split(" "), place = columnOf(sorted()), column = sheet.columns[place];
  const rows = sheet.rows.filter((row) => !list("hide").includes(row.mixer)
    && words.every((word) => row.cells.some((cell) => cell.text?.toLowerCase().includes(word)) || !word));
  if (!column) return rows;
  const sign = (column.lowest || !column.numeric ? 1 : -1) * (state.order ? -1 : 1);
  // A missing number stands behind all others, and a mean that is not ranked behind those that are.
  const group = ({ value, ranked, seeds }) => (value === undefined ? 2 : seeds && !ranked ? 1 : 0);
  const compare = (a, b) => (column.numeric ? group(a) - group(b) || sign * (a.value - b.value)
    : sign * (a.text ?? "").localeCompare(b.text ?? "", "en", { numeric: true }));
  return rows.toSorted((a, b) => a.beneath - b.beneath || compare(a.cells[place], b.cells[place]) || 0);
}

function renderTable(rows) {
  const place = columnOf(sorted()), from = sheet.rows.find((row) => row.name === state.from);
  let shown = [...sheet.columns.keys()].filter((number) => !list("columns").includes(sheet.columns[number].name));
  if (innerWidth < 600 && place > 0) shown = [0, place, ...shown.filter((number) => number && number !== place)];
  const heads = shown.map((number) => {
    const { name, numeric, lowest } = sheet.columns[number], isRising = (lowest || !numeric) !== Boolean(state.order);
    const sort = () => change({ sort: name, panel: "", order: number === place && !state.order ? "reversed" : "" });
    return make("th", { scope: "col", className: numeric ? "" : "text", ariaSort: number === place ? (isRising ? "ascending" : "descending") : null },
      make("button", { id: `sort-${name}`, onclick: sort }, name || "what"));
  });
  const classes = (row) => [row.own && "own", row.beneath && "beneath", list("pick").includes(row.name) && "picked"];
  const body = rows.slice(0, MOST_ROWS).map((row) => make("tr", { className: classes(row).filter(Boolean).join(" ") },
    ...shown.map((number) => (number ? renderCell(row, number, from) : renderName(row)))));
  $("table").replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body)));
  $("note").textContent = [
    !rows.length && "No row matches.",
    rows.length > MOST_ROWS && `The first ${MOST_ROWS} of ${rows.length} rows are shown: search for others.`,
    from && `Differences from ${from.name}. Gray ones are within the 95 % interval of chance. For a test on the same `
      + `examples: python report.py --compare "${from.name}" OTHER`].filter(Boolean).join(" ");
}

function renderName(row) {
  const name = row.name, runs = row.cells[0].runs;
  return make("th", { scope: "row" }, row.own && make("small", { className: "own" }, "yours"),
    runs ? make("button", { id: `run-${runs[0]}`, onclick: () => showRuns(row.name, runs) }, glyph(row.name), name)
      : row.mixer ? check(`pick-${row.name}`, name, list("pick").includes(row.name), () => toggle("pick", row.name), glyph(row.name))
        : name);
}

function renderCell(row, place, from) {
  const cell = row.cells[place], column = sheet.columns[place], notes = cell.notes ?? [], other = from?.cells[place].value;
  const isCompared = from && from !== row && row.mixer && other !== undefined && cell.value !== undefined;
  const difference = cell.value - other, isChance = notes.includes("at chance");
  const isNoise = isCompared && column.margin !== null && Math.abs(difference) <= column.margin;
  const text = isCompared ? `${difference < 0 ? "−" : "+"}${Math.abs(difference).toFixed(column.digits)}` : cell.text ?? "-";
  const seeds = cell.seeds > 1 ? `mean ± standard deviation over ${cell.seeds} seeds` : cell.seeds ? "1 seed" : "";
  const classes = [!isCompared && cell.mark, cell.own && "own", isNoise && "noise", isChance && "chance", !column.numeric && "text"];
  return make("td", { className: classes.filter(Boolean).join(" "), title: [`${row.name}, ${column.name}`, seeds, ...notes].filter(Boolean).join("; ") },
    cell.runs ? make("button", { id: `cell-${row.name}-${column.name}`, onclick: () => showRuns(`${row.name}: ${column.name}`, cell.runs) }, text)
      : make("span", {}, text),
    make("small", {}, [!isCompared && cell.deviation, ...notes].filter(Boolean).map((word) => ` ${word.replace("at chance", "chance")}`).join(",")));
}

// Points of each kind of chart: of the chart itself, of the table, or of the runs behind it.
const write = (value) => value.toLocaleString("en", { maximumSignificantDigits: 5 });
const fieldOf = (chart, axis) => state[`${chart.kind}-${axis}`] ?? chart.axes[axis];
const titleOf = (chart, axis) => chart.fields.find((one) => one.name === fieldOf(chart, axis));
const pointsOf = {
  bubbles: (chart, panel, rows) => chart.points.filter((point) => point.panel === panel && rows.some((row) => row.name === point.row)).map((point) => {
    const [x, y, size] = ["x", "y", "size"].map((axis) => point[fieldOf(chart, axis)]), interval = point.low !== undefined && [point.low, point.high];
    const lines = chart.fields.filter(({ name }) => name !== "same" && point[name] !== undefined).map(({ name, title }) =>
      `${title}: ${write(point[name])}${name === "score" && interval ? ` (${interval.map(write).join(" to ")})` : ""}`);
    const bars = fieldOf(chart, "y") === "score" && interval ? { low: interval[0], high: interval[1] } : {};
    return { row: point.row, own: point.is_own, x, y, size, ...bars, tip: [...lines, `seeds: ${point.seeds}`, `device: ${point.device}`, point.remarks] };
  }),
  curves: (chart, panel, rows) => curvesOf(chart, rows.flatMap((row) => row.cells[columnOf(panel)]?.runs ?? [])),
  lines: (chart, panel, rows) => rows.flatMap((row) => Object.entries(chart.groups[panel].places).map(([name, x]) => {
    const { value, text, deviation } = row.cells[columnOf(name)];
    return { row: row.name, line: row.name, own: row.own, x, y: value, tip: [`${name}: ${text} ${deviation ?? ""}`] };
  })),
  dots: (chart, panel, rows) => rows.map((row) => {
    const { value, text } = row.cells[columnOf(panel)];
    return { row: row.name, own: row.own, x: value, y: row.name, tip: [`${panel}: ${text}`] };
  }),
};
pointsOf.steps = pointsOf.lines;
function curvesOf(chart, names) {
  const done = names.filter((name) => page.runs[name].is_done);  // one that stopped early is shown alone
  return (done.length ? done : names).flatMap((name) => {
    const { curve, row, title, is_own } = page.runs[name], ys = curve[fieldOf(chart, "y")];
    return curve[fieldOf(chart, "x")].map((x, place) => ({ row, line: name, own: is_own, x, y: ys[place], tip: [title, `${write(x)}: ${ys[place]}`] }))
      .filter((point) => point.y !== null);
  });
}

// Choose which bubbles have their names beside them: one's own and the highest first, none upon another.
function chooseNames(points) {
  const heights = points.map((point) => point.y), apart = (Math.max(...heights) - Math.min(...heights)) / 20, chosen = [];
  const isFirst = (point) => point.own || list("pick").includes(point.row);
  for (const point of points.toSorted((a, b) => isFirst(b) - isFirst(a) || b.y - a.y))
    if (chosen.every((other) => Math.abs(point.y - other.y) > apart)) chosen.push(point);
  return chosen;
}

function draw(place, kind, points, titles) {
  const css = getComputedStyle(document.documentElement), [ink, soft, line] = ["--ink", "--soft", "--line"].map((name) => css.getPropertyValue(name));
  const picked = list("pick"), spec = structuredClone(page.charts[kind]);
  (function fill(node) {  // titles and scales of the axes
    if (titles[node.field]?.title) Object.assign(node, { title: titles[node.field].title.split(/, (?=on )/), scale: { ...node.scale, ...(titles[node.field].is_logarithmic && { type: "log", nice: false }) } });
    if (node.field === "size" && titles.size?.name === "same") node.scale.range = [0, 200];
    for (const child of Object.values(node)) if (child instanceof Object) fill(child);
  })(spec);
  const named = kind === "bubbles" ? chooseNames(points) : [];
  spec.datasets = { points: points.map((point) => {
    const style = page.styles[point.row], isPicked = picked.includes(point.row);
    return { ...style, ...point, ink, opacity: picked.length && !isPicked ? 0.2 : 0.85, stroke: point.own || isPicked ? ink : "transparent",
      width: point.own ? 4 : 2, label: named.includes(point) ? point.row.slice(0, 16) : "", tip: [point.row, ...point.tip].filter(Boolean).join("\n") };
  }) };
  const axis = { labelColor: soft, titleColor: ink, gridColor: line, domainColor: line, tickColor: line, titleFontWeight: 400, titleFontSize: 13, labelFontSize: 12, titleLimit: 420 };
  const config = { background: "transparent", font: "system-ui, sans-serif", view: { stroke: "transparent" }, axis };
  return vegaEmbed(place, spec, { config, renderer: "svg", actions: { export: true, source: false, compiled: false, editor: false } }).then(({ view }) => {
    views.push(view);
    view.addEventListener("click", (_, item) => item?.datum?.row && toggle("pick", item.datum.row));
  });
}

function renderCharts(rows) {
  views.splice(0).forEach((view) => view.finalize());
  const picked = list("pick"), few = picked.length ? rows.filter((row) => picked.includes(row.name)) : rows.filter((row, place) => row.own || place < FEW);
  $("charts").replaceChildren(...sheet.charts.map((chart) => {
    const panel = [state.panel, sorted()].find((name) => chart.panels.includes(name)) ?? chart.panels[0];
    const isLines = ["curves", "lines", "steps"].includes(chart.kind), group = chart.groups[panel];
    const points = pointsOf[chart.kind](chart, panel, isLines ? few : rows), place = make("div", { className: chart.kind });
    const shown = points.filter((point) => [point.x, point.y, "size" in point ? point.size : 0].every((value) => value !== undefined));
    const missing = [...new Set((isLines ? few : rows).map((row) => row.name))].filter((name) => !shown.some((point) => point.row === name));
    const choices = Object.keys(chart.axes).map((axis) => make("label", {}, axis === "size" ? "area " : `${axis} `, select(`${chart.kind}-${axis}`,
      chart.fields.filter(({ name }) => name !== "same" || axis === "size").map(({ name, title }) => [name, title]), fieldOf(chart, axis), (value) => change({ [`${chart.kind}-${axis}`]: value }))));
    if (chart.panels.length > 1) choices.unshift(make("label", {}, "Show ", select(`panel-${chart.kind}`, chart.panels.map((name) => [name, name]), panel,
      (name) => change(columnOf(name) < 0 ? { panel: name } : { sort: name, panel: "", order: "" }))));
    if (shown.length) draw(place, chart.kind, shown, chart.fields.length ? { x: titleOf(chart, "x"), y: titleOf(chart, "y"), size: titleOf(chart, "size") }
      : { x: { title: group?.x ?? panel }, y: { title: group?.y, is_logarithmic: group?.is_logarithmic } });
    return make("figure", {}, make("h3", {}, `${chart.title}: ${panel}`), make("div", { className: "choices" }, ...choices), place,
      isLines && make("div", { className: "legend" }, ...[...new Set(shown.map((point) => point.row))].map((row) => make("span", {}, glyph(row), row))),
      make("figcaption", {}, [isLines && !picked.length && rows.length > FEW && `The first ${FEW} rows and your own. Select rows in the table to choose.`,
        missing.length && `Without these numbers: ${missing.slice(0, 4).join(", ")}${missing.length > 4 ? ` and ${missing.length - 4} more` : ""}.`].filter(Boolean).join(" ")));
  }));
}

function showRuns(title, names) {
  $("runs-title").textContent = title;
  const runs = names.map((name) => page.runs[name]), texts = (numbers) => numbers.map((number) => make("li", {}, page.texts[number]));
  $("runs-list").replaceChildren(...runs.map((run) => make("section", {}, make("h3", {}, run.is_own && make("small", { className: "own" }, "yours"), run.title),
    make("pre", {}, run.command), make("ul", { className: "facts" }, ...texts(run.facts)),
    run.settings && make("details", {}, make("summary", {}, "All settings"), make("ul", { className: "facts" }, ...texts(page.settings[run.settings]))),
    make("p", {}, make("a", { href: run.record }, "record of the run")))));
  $("runs-chart").replaceChildren();
  $("runs").showModal();
  const y = runs.some((run) => run.curve?.loss.some(Number.isFinite)) && !runs.some((run) => run.curve?.val.some((value) => value > 0)) ? "loss" : "val";
  const points = runs[0].curve ? curvesOf({ kind: "run", axes: { x: "step", y } }, names) : [];
  if (points.length) draw($("runs-chart"), "curves", points, { x: { title: "optimizer steps" }, y: { title: `validation ${y === "val" ? "accuracy, %" : "loss, nats"}` } });
}

for (const name of ["search", "theme", "sheet", "from"])
  $(name).addEventListener(name === "search" ? "input" : "change", (event) => change({ ...(name === "sheet" && leave), [name]: event.target.value }));
$("clear").addEventListener("click", () => change({ pick: "" }));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
addEventListener("hashchange", readAddress);
readAddress();
