// Shows the page's data: a table with its charts. What is chosen stands in the page's address.
const page = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const MOST_ROWS = 400,
  FEW = 6,
  views = [];
let state, sheet;
// Text is only ever set as text, so that no name is read as HTML.
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter(Boolean));
  return element;
}
function fill(select, options, value) {
  select.replaceChildren(...options.map(([name, text]) => make("option", { value: name }, text)));
  return Object.assign(select, { value });
}
const select = (id, options, value, onchange) =>
  fill(make("select", { id, onchange: (event) => onchange(event.target.value) }), options, value);
const yours = () => make("small", { className: "own" }, "yours"),
  join = (separator, ...texts) => texts.filter(Boolean).join(separator);
const check = (id, text, checked, onchange, ...before) =>
  make(
    "label",
    {},
    make("input", { type: "checkbox", id, checked, onchange }),
    " ",
    ...before,
    text,
  );
const glyph = (row) =>
  make(
    "span",
    { ariaHidden: "true", style: `color: ${page.styles[row]?.colour}` },
    page.styles[row] && `${page.styles[row].glyph} `,
  );
// The state: texts by name; lists have a line for each item.
function change(changes) {
  render(Object.fromEntries(Object.entries({ ...state, ...changes }).filter(([, value]) => value)));
  history.replaceState(null, "", `#${new URLSearchParams(state)}`);
}
const list = (name) => (state[name] ? state[name].split("\n") : []);
const has = (name, item) => list(name).includes(item);
const toggle = (name, item) =>
  change({
    [name]: (has(name, item)
      ? list(name).filter((one) => one !== item)
      : [...list(name), item]
    ).join("\n"),
  });
const leave = { sort: "", order: "", panel: "" }; // what is of one table

function render(chosen) {
  state = chosen;
  const focused = document.activeElement.id;
  const view = page.views.find((one) => one.id === state.view) ?? page.views[0];
  sheet = view.sheets.find((one) => one.id === state.sheet) ?? view.sheets[0];
  const show = (one) => change({ ...leave, view: one.id, sheet: one.sheets[0].id });
  $("views").replaceChildren(
    ...page.views.map((one) =>
      make(
        "button",
        {
          id: `view-${one.id}`,
          ariaCurrent: one === view ? "page" : null,
          onclick: () => show(one),
        },
        one.title,
      ),
    ),
  );
  for (const [id, text] of [
    ["summary", page.summary],
    ["question", view.question],
    ["caption", sheet.caption],
  ])
    $(id).textContent = text;
  renderTools(view);
  renderPair();
  renderTable(sortedRows());
  renderCharts(sortedRows().filter((row) => row.mixer));
  document.getElementById(focused)?.focus({ preventScroll: true });
}
function renderTools(view) {
  fill(
    $("sheet"),
    view.sheets.map((one) => [one.id, one.title]),
    sheet.id,
  );
  $("search").value = state.search ?? "";
  const shown = {
    sheet: view.sheets.length > 1,
    clear: state.pick,
    "own-note": sheet.rows.some((row) => row.own),
  };
  for (const [id, isShown] of Object.entries(shown)) $(id).hidden = !isShown;
}
// The differences of two selected rows, as `report.py --compare` prints them.
function renderPair() {
  const { pairs, rows } = sheet,
    picked = list("pick").filter((name) => rows.some((row) => row.name === name)),
    [first, second] = pairs[picked[0]]?.[picked[1]] ? picked : picked.toReversed();
  const quote = (name) => `'${name.replaceAll("'", "'\\''")}'`,
    points = (value) => (value < 0 ? "" : "+") + value.toFixed(2),
    cell = (text, place) => make("td", { className: place < 2 ? "text" : "" }, `${text}`),
    line = (...texts) => make("tr", {}, ...texts.map(cell));
  const lines = Object.entries(pairs[first]?.[second] ?? {}).map(([task, found]) => {
    if (typeof found === "string") return line(task, `not compared: they ${found}`);
    const [difference, low, high, seeds, p, isNoise] = found,
      verdict = isNoise ? "within noise" : `${difference > 0 ? first : second} is better`;
    return line(task, verdict, points(difference), `${points(low)} to ${points(high)}`, seeds, p);
  });
  $("pair").hidden = rows.length < 2 || !Object.keys(pairs).length;
  $("pair").replaceChildren(
    ...(picked.length !== 2
      ? ["Select two rows to test whether their difference is more than chance."]
      : lines.length
        ? [
            make("h3", {}, `${first} less ${second}, percentage points of test accuracy`),
            make("table", {}, line("task", "verdict", "points", "95 % interval", "seeds", "p"), ...lines),
            make("details", {}, make("summary", {}, "What the numbers mean"), page.notes),
          ]
        : [
            "The page does not compare these rows. Use this command:",
            make("pre", {}, `python report.py --compare ${picked.map(quote).join(" ")}`),
          ]),
  );
}
const columnOf = (name) => sheet.columns.findIndex((one) => one.name === name);
const sorted = () => (columnOf(state.sort) < 0 ? sheet.sort : state.sort);
function sortedRows() {
  const words = (state.search ?? "").toLowerCase().split(" "),
    place = columnOf(sorted()),
    column = sheet.columns[place];
  let rows = sheet.rows.filter((row) =>
    words.every(
      (word) => row.cells.some((cell) => cell.text?.toLowerCase().includes(word)) || !word,
    ),
  );
  if (!column) return rows;
  const sign = (column.lowest || !column.numeric ? 1 : -1) * (state.order ? -1 : 1);
  const isMissing = ({ value }) => value === undefined; // and stands behind all others
  const isShown = (row) => row.own || !isMissing(row.cells[place]);
  // Of a task of one's own the shipped rows have no number.
  const isOwnTask = !sheet.rows.some((row) => !row.own && !row.beneath && isShown(row));
  if (column.numeric && !state.search && isOwnTask) rows = rows.filter(isShown);
  const compare = (a, b) =>
    column.numeric
      ? isMissing(a) - isMissing(b) || sign * (a.value - b.value)
      : sign * (a.text ?? "").localeCompare(b.text ?? "", "en", { numeric: true });
  return rows.toSorted(
    (a, b) =>
      a.beneath - b.beneath || b.own - a.own || compare(a.cells[place], b.cells[place]) || 0,
  );
}
function renderTable(rows) {
  const place = columnOf(sorted());
  let shown = [...sheet.columns.keys()];
  if (innerWidth < 600 && place > 0)
    shown = [0, place, ...shown.filter((number) => number && number !== place)];
  const heads = shown.map((number) => {
    const { name, numeric, lowest } = sheet.columns[number],
      isRising = (lowest || !numeric) !== Boolean(state.order);
    const sort = () =>
      change({ sort: name, panel: "", order: number === place && !state.order ? "reversed" : "" });
    return make(
      "th",
      {
        scope: "col",
        className: numeric ? "" : "text",
        ariaSort: number === place ? (isRising ? "ascending" : "descending") : null,
      },
      make("button", { id: `sort-${name}`, onclick: sort }, name || "what"),
    );
  });
  const body = rows.slice(0, MOST_ROWS).map((row) =>
    make(
      "tr",
      {
        className: join(
          " ",
          row.own && "own",
          row.beneath && "beneath",
          has("pick", row.name) && "picked",
        ),
      },
      ...shown.map((number) => (number ? renderCell(row, number) : renderName(row))),
    ),
  );
  $("table").replaceChildren(
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body)),
  );
  const hidden = sheet.rows.length - rows.length;
  $("note").textContent = join(
    " ",
    hidden &&
      !state.search &&
      `${hidden} rows without a number for ${sorted()} are not shown: sort by another column.`,
    !rows.length && "No row matches.",
    rows.length > MOST_ROWS &&
      `The first ${MOST_ROWS} of ${rows.length} rows are shown: search for others.`,
  );
}
function renderName(row) {
  const { name, mixer, own } = row,
    { runs } = row.cells[0];
  const pick = mixer
    ? check(`pick-${name}`, name, has("pick", name), () => toggle("pick", name), glyph(name))
    : name;
  return make(
    "th",
    { scope: "row" },
    own && yours(),
    runs
      ? make(
          "button",
          { id: `run-${runs[0]}`, onclick: () => showRuns(name, runs) },
          glyph(name),
          name,
        )
      : pick,
  );
}
function renderCell(row, place) {
  const cell = row.cells[place],
    { name } = sheet.columns[place],
    text = cell.text ?? "-";
  return make(
    "td",
    {
      className: cell.classes ?? "",
      title: join("; ", `${row.name}, ${name}`, cell.runs && "select it to see its runs"),
    },
    cell.runs
      ? make(
          "button",
          {
            id: `cell-${row.name}-${name}`,
            onclick: () => showRuns(`${row.name}: ${name}`, cell.runs),
          },
          text,
        )
      : make(cell.link ? "a" : "span", cell.link && { href: cell.link }, text),
    cell.small && make("small", {}, ` ${cell.small}`),
  );
}

// Points of a chart: those of the chart itself, which come field by field, or of the runs behind the table.
const pointAt = (fields, i) =>
  Object.fromEntries(
    Object.entries(fields).flatMap(([name, values]) =>
      values[i] === null ? [] : [[name, values[i]]],
    ),
  );
const fieldOf = (chart, axis) =>
  chart.fields.find((one) => one.name === (state[`${chart.kind}-${axis}`] ?? chart.axes[axis])) ??
  chart.fields.find((one) => one.name === chart.axes[axis]);
function pointsOf(chart, panel, rows) {
  const [x, y, size] = ["x", "y", "size"].map(
    (axis) => axis in chart.axes && fieldOf(chart, axis).name,
  );
  if (chart.kind === "curves")
    return curvesOf(
      x,
      y,
      rows.flatMap((row) => row.cells[columnOf(panel)]?.runs ?? []),
    );
  const shown = rows.map((row) => row.name),
    known = sheet.rows.map((row) => row.name),
    ends = y === chart.axes.y ? {} : { low: undefined, high: undefined };
  return (chart.points.row ?? [])
    .map((_, i) => pointAt(chart.points, i))
    .filter(
      (point) => point.panel === panel && (shown.includes(point.row) || !known.includes(point.row)),
    )
    .map((point) => ({
      line: point.row,
      ...point,
      ...ends,
      x: point[x],
      y: point[y],
      ...(size && { size: point[size] }),
      tip: tipOf(chart, point),
    }))
    .filter((point) =>
      [point.x, point.y, size ? point.size : 0].every((value) => value !== undefined),
    );
}
const write = (value) =>
  (Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(4))).toLocaleString("en");
const tipOf = (chart, point) =>
  [
    point.row,
    ...chart.fields
      .filter(({ name }) => name in point)
      .map(
        ({ name, title }) =>
          `${title}: ${write(point[name])}${name === "score" && "low" in point ? ` (${write(point.low)} to ${write(point.high)})` : ""}`,
      ),
    point.note,
  ]
    .filter(Boolean)
    .join("\n");
function curvesOf(x, y, names) {
  const done = names.filter((name) => page.runs[name].is_done); // one that stopped early is shown alone
  return (done.length ? done : names).flatMap((name) => {
    const { curve, row, title, is_own } = page.runs[name],
      { score, ...places } = curve[y];
    return places[x].map((value, place) => ({
      row,
      line: name,
      own: is_own,
      x: value,
      y: score[place],
      tip: `${title}\n${value.toLocaleString("en")}: ${score[place]}`,
    }));
  });
}

// Names beside circles, where there is room: Vega's mark, which Vega-Lite does not have.
function addNames(vega, isAlone) {
  const [circles, bars] = ["symbol", "rule"].map((type) =>
    vega.marks.find((mark) => mark.type === type),
  );
  const names = { ...structuredClone(page.names), from: { data: circles.name } };
  names.transform[0].avoidMarks = isAlone ? [] : [bars.name];
  names.transform[0].size = { signal: "[width, height]" };
  vega.marks.push(names);
  return vega;
}
function draw(place, kind, points, fields) {
  const css = getComputedStyle(document.documentElement),
    [ink, soft, line] = ["--ink", "--soft", "--line"].map((name) => css.getPropertyValue(name));
  const picked = list("pick").filter((name) => points.some((point) => point.row === name)),
    spec = structuredClone(page.charts[kind]);
  (function adapt(node) {
    // titles and scales of the axes
    const { title, is_logarithmic } = fields[node.field === "low" ? "y" : node.field] ?? {};
    if (title)
      Object.assign(node, {
        title: title.split(/, (?=on )/),
        scale: { ...node.scale, ...(is_logarithmic && node.field !== "size" && { type: "log" }) },
      });
    for (const child of Object.values(node)) if (child instanceof Object) adapt(child);
  })(spec);
  spec.datasets = {
    points: points.map((point) => {
      const isPicked = picked.includes(point.row);
      return {
        ...page.styles[point.row],
        ...point,
        opacity: picked.length && !isPicked ? 0.2 : 0.85,
        stroke: point.own || isPicked ? ink : "transparent",
        width: point.own ? 4 : 2,
      };
    }),
  };
  const config = {
    axis: {
      labelColor: soft,
      titleColor: ink,
      gridColor: line,
      domainColor: line,
      tickColor: line,
    },
    rule: { color: ink },
  };
  vegaEmbed(place, spec, {
    config,
    renderer: "svg",
    actions: { export: true, source: false, compiled: false, editor: false },
    ...(kind === "bubbles" && { patch: (vega) => addNames(vega, points.length === 1) }),
  }).then(({ view }) => {
    views.push(view);
    view.addEventListener("click", (_, item) => item?.datum?.row && toggle("pick", item.datum.row));
  });
}
const legendOf = (row) => make("span", {}, glyph(row), row);
function families(rows) {
  const found = new Map(rows.map((row) => [page.styles[row].family, page.styles[row].colour]));
  return [...found].map(([family, color]) =>
    make("span", {}, make("span", { style: `color: ${color}` }, "● "), family),
  );
}
function renderCharts(rows) {
  views.splice(0).forEach((view) => view.finalize());
  const few = rows.filter((row, place) =>
    list("pick").length ? has("pick", row.name) : row.own || place < FEW,
  );
  $("charts").replaceChildren(
    ...sheet.charts.map((chart) => {
      const panel =
        [state.panel, sorted()].find((name) => chart.panels.includes(name)) ?? chart.panels[0];
      const isLines = chart.kind !== "bubbles",
        place = make("div", { className: chart.kind });
      const drawn = isLines ? few : rows,
        points = pointsOf(chart, panel, drawn),
        names = [...new Set(points.map((point) => point.row))];
      const missing = drawn.map((row) => row.name).filter((name) => !names.includes(name));
      const show = (name) =>
        change(columnOf(name) < 0 ? { panel: name } : { sort: name, panel: "", order: "" });
      const choices = [
        chart.panels.length > 1 &&
          make(
            "label",
            {},
            "Show ",
            select(
              `panel-${chart.kind}`,
              chart.panels.map((name) => [name, name]),
              panel,
              show,
            ),
          ),
      ];
      const fields = Object.fromEntries(
        Object.keys(chart.axes).map((axis) => [axis, fieldOf(chart, axis)]),
      );
      for (const [axis, { name }] of Object.entries(fields)) {
        const options = chart.fields.map((one) => [one.name, one.title]),
          id = `${chart.kind}-${axis}`;
        choices.push(
          make(
            "label",
            {},
            axis === "size" ? "area " : `${axis} `,
            select(id, options, name, (value) => change({ [id]: value })),
          ),
        );
      }
      if (points.length) draw(place, isLines ? "lines" : "bubbles", points, fields);
      return make(
        "figure",
        {},
        make("h3", {}, join(": ", chart.title, chart.panels.length > 1 && panel)),
        make("div", { className: "choices" }, ...choices),
        points.length && place,
        make("div", { className: "legend" }, ...(isLines ? names.map(legendOf) : families(names))),
        make(
          "figcaption",
          {},
          join(
            " ",
            isLines &&
              rows.length > few.length &&
              "Select rows in the table to choose what is drawn.",
            missing.length &&
              `Without these numbers: ${join(", ", ...missing.slice(0, 4), missing.length > 4 && `${missing.length - 4} more`)}.`,
          ),
        ),
      );
    }),
  );
}
function showRuns(title, names) {
  $("runs-title").textContent = title;
  const runs = names.map((name) => page.runs[name]),
    texts = (numbers) => numbers.map((number) => make("li", {}, page.texts[number]));
  $("runs-list").replaceChildren(
    ...runs.map((run) =>
      make(
        "section",
        {},
        make("h3", {}, run.is_own && yours(), run.title),
        run.command && make("pre", {}, run.command),
        make("ul", { className: "facts" }, ...texts(run.facts)),
        run.settings &&
          make(
            "details",
            {},
            make("summary", {}, "All settings"),
            make("ul", { className: "facts" }, ...texts(page.settings[run.settings])),
          ),
        run.record && make("p", {}, make("a", { href: run.record }, "record of the run")),
      ),
    ),
  );
  $("runs").showModal();
  const y = runs[0].measure,
    points = y ? curvesOf("step", y, names) : [];
  const titles = {
    x: { title: "optimizer steps" },
    y: { title: runs[0].measured },
  };
  $("runs-chart").replaceChildren(make("div"));
  if (points.length) draw($("runs-chart").firstChild, "lines", points, titles);
}
for (const name of ["search", "sheet"])
  $(name).addEventListener(name === "search" ? "input" : "change", (event) =>
    change({ ...(name === "sheet" && leave), [name]: event.target.value }),
  );
$("clear").addEventListener("click", () => change({ pick: "" }));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => render(state));
addEventListener("hashchange", () =>
  render(Object.fromEntries(new URLSearchParams(location.hash.slice(1)))),
);
dispatchEvent(new Event("hashchange"));
