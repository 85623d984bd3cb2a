// Sorting and unfolding. Cells are moved, never rewritten: names cannot become markup.

/** Compare two cells: numbers by their key, text as a person would; what is missing comes last in both directions. */
function compareCells(one, other, numeric, direction) {
  const [a, b] = [one, other].map((cell) => (numeric ? cell.dataset.key : cell.textContent));
  const gone = (value) => value === undefined || value === "–" || value === "";
  if (gone(a) || gone(b)) return gone(a) - gone(b);
  return direction * (numeric ? (+a > +b) - (+a < +b) : a.localeCompare(b, "en", { numeric: true }));
}

function sortBy(heading) {
  const table = heading.closest("table"), body = table.tBodies[0];
  const ascending = heading.getAttribute("aria-sort") !== "ascending", place = heading.cellIndex;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const numeric = "numeric" in heading.dataset;
  const rows = [...body.rows].sort((one, other) => compareCells(one.cells[place], other.cells[place], numeric, ascending ? 1 : -1));
  body.append(...rows);
}

for (const heading of document.querySelectorAll("thead th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  heading.append(button);
  button.addEventListener("click", () => sortBy(heading));
}

/** Unfold what an address points at: a folded table says nothing. */
function unfold() {
  for (let node = $(decodeURIComponent(location.hash.slice(1))); node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
}

$("unfold").onclick = () => {
  const open = $("unfold").getAttribute("aria-pressed") === "false";
  for (const node of document.querySelectorAll("details")) node.open = open || node.classList.contains("group");
  $("unfold").setAttribute("aria-pressed", open);
  $("unfold").textContent = open ? "Fold all" : "Unfold all";
};
addEventListener("hashchange", unfold);
unfold();
startTheme();
