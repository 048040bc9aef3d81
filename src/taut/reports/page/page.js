"use strict";
// The table of candidates: rows as [strategy, state, bound, source], shown PAGE at a time, so that thousands of them
// do not hold up the page. Everything is written as text, nothing as markup.
const PAGE = 100;

// Rows in the order of one column; rows without a value come last either way. Equal rows keep their order.
function sorted(rows, column, down) {
  const sign = down ? -1 : 1;
  return [...rows].sort((one, other) => {
    const a = one[column], b = other[column];
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  });
}

// Rows of a state, or of any, whose strategy or source has every word.
function filtered(rows, words, state) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => {
    const said = `${row[0]} ${row[3]}`.toLowerCase();
    return (!state || row[1] === state) && wanted.every((word) => said.includes(word));
  });
}

// A share in per cent with its sign, 0 where it is rounding alone.
function share(value) {
  const hundredths = Math.round(10000 * value) / 100;
  return `${hundredths > 0 ? "+" : ""}${(hundredths || 0).toFixed(2)} %`;
}

function candidates(page) {
  const data = JSON.parse(page.getElementById("candidates").textContent);
  const body = page.getElementById("rows"), count = page.getElementById("count"), more = page.getElementById("more");
  const words = page.getElementById("words"), state = page.getElementById("state");
  const heads = [...page.querySelectorAll("#table th")];
  let column = 2, down = false, shown = PAGE;

  function draw() {
    const found = sorted(filtered(data.rows, words.value, state.value), column, down);
    const lines = found.slice(0, shown).map((row) => {
      const line = page.createElement("tr");
      if (row[0] === data.own) line.className = "own";
      const seconds = row[2] === null ? "" : row[2].toPrecision(6);
      const over = row[2] === null ? "" : share(row[2] / data.objective - 1);
      for (const [index, value] of [row[0], row[1], seconds, over, row[3]].entries()) {
        const cell = page.createElement("td");
        if (index === 2 || index === 3) cell.className = "n";
        cell.textContent = value;
        line.append(cell);
      }
      return line;
    });
    body.replaceChildren(...lines);
    count.textContent = `${lines.length} of ${found.length} shown, ${data.rows.length} in all`;
    more.hidden = found.length <= shown;
    heads.forEach((head) => {
      const own = Number(head.dataset.column) === column;
      head.setAttribute("aria-sort", own ? (down ? "descending" : "ascending") : "none");
    });
  }

  heads.forEach((head) => head.addEventListener("click", () => {
    const chosen = Number(head.dataset.column);
    down = chosen === column && !down;
    column = chosen;
    draw();
  }));
  const restart = () => { shown = PAGE; draw(); };
  words.addEventListener("input", restart);
  state.addEventListener("change", restart);
  more.addEventListener("click", () => { shown += 10 * PAGE; draw(); });
  draw();
}

if (typeof document !== "undefined") candidates(document);
