// Tables: which rows are of which mixer, sorting, differences from a row, and the runs behind a number.

const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const decode = (text) => {
  try { return decodeURIComponent(text); } catch { return text; }
};
const byId = (id) => document.getElementById(id);
const tables = all("table.sortable");
const textOf = (cell) => cell.dataset.text ?? cell.textContent;
const nameOf = (row) => row.cells[0].dataset.name;
const isTrivial = (row) => /^(best )?trivial baseline/.test(nameOf(row));

function numberIn(cell) {
  const found = textOf(cell).trim().match(/^[-+]?[\d,]*\.?\d+(e[+-]?\d+)?(?![\d.]| [a-z])/);
  return found && { value: parseFloat(found[0].replaceAll(",", "")), digits: (found[0].split(".")[1] ?? "").length };
}

const LONG = 30;  // letters of a cell from which its text may wrap

function nameRows(table, mixers) {
  const column = [...table.tHead.rows[0].cells].findIndex((head) => head.textContent === "mixer");
  for (const row of table.tBodies[0].rows) {
    for (const cell of row.cells) cell.classList.toggle("long", cell.textContent.length > LONG);
    row.cells[0].dataset.name = row.cells[0].textContent;
    const mixer = row.cells[column]?.textContent.split(/:? /)[0];
    if (mixers.has(mixer)) row.dataset.mixer = mixer;
    if (row.matches(".own")) {
      row.cells[0].insertAdjacentHTML("beforeend", '<span class="yours">yours</span>');
    }
  }
}

function sortBy(table, heads, column) {
  const rows = [...table.tBodies[0].rows];
  const key = (row) => (column ? numberIn(row.cells[column])?.value ?? null : null);
  // Numbers start with the highest, names with the first.
  const before = heads[column].getAttribute("aria-sort");
  const down = rows.some((row) => key(row) !== null) ? before !== "descending" : before === "ascending";
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
  rows.sort((a, b) => {
    if (isTrivial(a) !== isTrivial(b)) return isTrivial(a) ? 1 : -1;
    const x = key(a), y = key(b);
    if (x !== null && y !== null) return down ? y - x : x - y;
    if (x !== null || y !== null) return x === null ? 1 : -1;
    const order = textOf(a.cells[column]).localeCompare(textOf(b.cells[column]));
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
}

for (const table of tables) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.scope = "col";
    const button = document.createElement("button");
    button.textContent = head.textContent;
    button.addEventListener("click", () => sortBy(table, heads, column));
    head.replaceChildren(button);
  });
}

/** Show numbers as differences from those of the row with this name, or as they are for "". */
function showDifferences(name) {
  for (const cell of all("td[data-text]")) {
    (cell.querySelector("a") ?? cell).textContent = cell.dataset.text;
    delete cell.dataset.text;
    cell.removeAttribute("title");
  }
  for (const table of tables) {
    const rows = [...table.tBodies[0].rows];
    const reference = name ? rows.find((row) => nameOf(row) === name) : undefined;
    for (const row of rows) {
      row.classList.toggle("reference", row === reference);
      if (!reference || row === reference) continue;
      for (const [column, cell] of [...row.cells].entries()) {
        const own = numberIn(cell), other = numberIn(reference.cells[column]);
        if (!column || !own || !other) continue;
        cell.dataset.text = cell.title = cell.textContent;
        const difference = own.value - other.value;
        const digits = Math.max(own.digits, other.digits);
        (cell.querySelector("a") ?? cell).textContent = (difference < 0 ? "" : "+") + difference.toFixed(digits);
      }
    }
  }
}

/** Show all runs behind a number: those of all seeds for a mean. */
function showRuns(link) {
  const anchors = [link.getAttribute("href").slice(1), ...(link.dataset.runs ?? "").split(" ").filter(Boolean)];
  const runs = anchors.map((anchor) => byId(decode(anchor)));
  if (runs.includes(null)) return false;
  const cell = link.closest("td"), heads = cell.closest("table").tHead.rows[0].cells;
  byId("behind-title").textContent =
    `${nameOf(cell.parentElement)}, ${heads[cell.cellIndex].textContent}: ${textOf(cell)}`;
  const copies = runs.map((run) => {
    const copy = run.cloneNode(true);
    copy.removeAttribute("id");
    copy.hidden = false;
    copy.open = true;
    return copy;
  });
  byId("behind").querySelector("div").replaceChildren(...copies);
  byId("behind").showModal();
  return true;
}

addEventListener("click", (event) => {
  const link = event.target.closest("td a[href^='#']");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey && showRuns(link)) event.preventDefault();
});
byId("behind").addEventListener("click", (event) => {
  if (event.target === event.currentTarget) event.currentTarget.close();  // beside the dialog
});
