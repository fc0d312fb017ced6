// The page: what a reader has chosen, which the address keeps, and how it is shown.

byId("listed-runs").append(await unpack(byId("listed-runs")));
const tabs = all("[role=tab]");
const panelOf = (tab) => byId(tab.getAttribute("aria-controls"));
// The reader's own results come first.
const firstTab = tabs.find((tab) => panelOf(tab).querySelector("tr.own")) ?? tabs[0];
const boxes = all("#mixers input");
const mixers = new Set(boxes.map((box) => box.value));
tables.forEach((table) => nameRows(table, mixers));
const box = byId("search"), reference = byId("reference"), theme = byId("theme");
const state = { tab: firstTab.id, hide: new Set(), search: "", row: "", theme: "", at: "" };

const items = all(".item").map((element) => {
  const rows = all("tbody tr", element);
  // The command of a measurement names all mixers that were measured in turns.
  const head = [...element.children].filter((child) => !child.matches(".scroll, pre"));
  const texts = [...head.map((part) => part.textContent), element.dataset.rows ?? ""];
  return {
    element, rows, text: texts.join(" ").toLowerCase(), panel: element.closest("[role=tabpanel]"),
    mixers: element.dataset.mixers?.split(" ").filter((mixer) => mixers.has(mixer)) ?? [],
    kind: element.matches("figure") ? "figure" : element.matches(".run") ? "run" : "table",
  };
});
const folds = all("details.fold");

function search() {
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  const isIn = (text) => words.every((word) => text.includes(word));
  const counts = { table: 0, figure: 0, run: 0 }, byPanel = new Map();
  for (const { element, rows, text, panel, mixers, kind } of items) {
    let shown = isIn(text);
    for (const row of rows) row.hidden = !shown && !isIn(`${text} ${row.textContent.toLowerCase()}`);
    shown ||= rows.some((row) => !row.hidden);
    if (mixers.length && mixers.every((mixer) => state.hide.has(mixer))) shown = false;
    element.hidden = !shown;
    counts[kind] += shown;
    byPanel.set(panel, (byPanel.get(panel) ?? 0) + shown);
  }
  for (const group of all(".group")) group.hidden = words.length > 0 && !group.querySelector(".item:not([hidden])");
  for (const fold of folds) {
    fold.dataset.before ??= fold.open;
    fold.open = words.length ? !fold.hidden : fold.dataset.before === "true";
    if (!words.length) delete fold.dataset.before;
  }
  for (const tab of tabs) {
    if (words.length) tab.dataset.found = byPanel.get(panelOf(tab)) ?? 0;
    else delete tab.dataset.found;
  }
  byId("found").textContent = words.length
    ? Object.entries(counts).map(([kind, n]) => `${n} ${kind}${n === 1 ? "" : "s"}`).join(", ") : "";
}

/** List the rows that the shown tab has numbers of. */
function listReferences() {
  const rows = all("table.sortable tbody tr", panelOf(byId(state.tab)));
  const names = new Set(rows.filter((row) => row.dataset.mixer).map(nameOf));
  if (state.row) names.add(state.row);
  reference.replaceChildren(new Option("no row", ""), ...[...names].sort().map((name) => new Option(name, name)));
  reference.value = state.row;
}

function listContents() {
  const links = all("h3[id], figure", panelOf(byId(state.tab))).map((part) => {
    const link = document.createElement("a");
    link.href = `#${part.id}`;
    link.textContent = part.matches("figure") ? part.querySelector("strong").textContent.replace(/\.$/, "") : part.firstChild.textContent;
    const entry = document.createElement("li");
    entry.append(link);
    return entry;
  });
  byId("contents").hidden = !links.length;
  byId("contents").querySelector("ul").replaceChildren(...links);
}

function writeAddress() {
  const words = new URLSearchParams();
  if (state.tab !== firstTab.id) words.set("tab", state.tab);
  if (state.hide.size) words.set("hide", [...state.hide].sort().join(","));
  for (const name of ["search", "row", "theme", "at"]) if (state[name]) words.set(name, state[name]);
  history.replaceState(null, "", `#${words}`);
}

/** Read what the address asks for: what a reader has chosen, or the name of a part of the page. */
function readAddress() {
  const written = decode(location.hash.slice(1));
  if (byId(written)) state.at = written;
  else {
    const words = new URLSearchParams(location.hash.slice(1));
    for (const name of ["search", "row", "theme", "at"]) state[name] = words.get(name) ?? "";
    state.tab = tabs.some((tab) => tab.id === words.get("tab")) ? words.get("tab") : firstTab.id;
    state.hide = new Set((words.get("hide") ?? "").split(",").filter((mixer) => mixers.has(mixer)));
  }
  const target = byId(state.at);
  const panel = target?.closest("[role=tabpanel]");
  if (panel) state.tab = panel.getAttribute("aria-labelledby");
  show();
  if (target?.closest("[hidden]")) {
    state.search = "";
    show();
  }
  for (let node = target; node; node = node.parentElement) if (node instanceof HTMLDetailsElement) node.open = true;
  target?.scrollIntoView();
}

/** Show what was chosen. */
function show() {
  document.documentElement.style.colorScheme = state.theme || "light dark";
  theme.value = state.theme;
  byId("hidden-mixers").textContent = [...state.hide]
    .map((mixer) => `[data-mixer="${CSS.escape(mixer)}"] { display: none !important; }`).join("\n");
  for (const one of boxes) one.checked = !state.hide.has(one.value);
  byId("mixers").querySelector("summary span").textContent = state.hide.size
    ? `${mixers.size - state.hide.size} of ${mixers.size}` : "";
  if (box.value !== state.search) box.value = state.search;
  search();
  for (const tab of tabs) {
    const chosen = tab.id === state.tab;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    panelOf(tab).hidden = !chosen;
  }
  listReferences();
  listContents();
  showDifferences(state.row);
  writeAddress();
  drawFigures(panelOf(byId(state.tab)));
}

function choose(changes) {
  Object.assign(state, { at: "" }, changes);
  show();
}

for (const tab of tabs) tab.addEventListener("click", () => choose({ tab: tab.id }));
tabs[0].parentElement.addEventListener("keydown", (event) => {
  const direction = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!direction) return;
  const next = tabs[(tabs.indexOf(byId(state.tab)) + direction + tabs.length) % tabs.length];
  choose({ tab: next.id });
  next.focus();
});
byId("mixers").addEventListener("change", () =>
  choose({ hide: new Set(boxes.filter((one) => !one.checked).map((one) => one.value)) }));
for (const button of all("#mixers button")) {
  button.addEventListener("click", () => choose({ hide: new Set(button.dataset.shown === "none" ? mixers : []) }));
}
addEventListener("click", (event) => {
  if (!event.target.closest("#mixers")) byId("mixers").open = false;
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape") byId("mixers").open = false;
});
box.addEventListener("input", () => choose({ search: box.value }));
reference.addEventListener("change", () => choose({ row: reference.value }));
theme.addEventListener("change", () => choose({ theme: theme.value }));
addEventListener("hashchange", readAddress);
readAddress();
