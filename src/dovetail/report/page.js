// Sorts a table by the column whose heading is pressed; numbers by data-v, texts by themselves.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const column = heading.cellIndex;
    const body = heading.closest("table").tBodies[0];
    const up = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (row) => {
      const cell = row.cells[column];
      const given = cell.dataset.v;
      return given === undefined ? cell.textContent : given === "" ? null : Number(given);
    };
    const rows = [...body.rows].map((row, place) => [value(row), place, row]);
    rows.sort(([a, i], [b, j]) => {
      if (a === null || b === null) return (a === null) - (b === null) || i - j;
      const order = typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });
      return (up ? order : -order) || i - j;
    });
    body.append(...rows.map(([, , row]) => row));
  });
}
