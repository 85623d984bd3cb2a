"""The page of docs on speed: its table and figure, made of the numbers of one run of the benchmarks."""

import json
import re
from pathlib import Path

from benchmarks.__main__ import ranged

START, END = "<!-- measured: made by `make bench` -->", "<!-- end of measured -->"


def write_page(numbers, docs):
    """Put the numbers of a run into ``performance.md``, between its two marks, and draw ``performance.png``."""
    found = json.loads(Path(numbers).read_text(encoding="utf-8"))
    page = Path(docs) / "performance.md"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(START)
    _, after = rest.split(END)
    page.write_text(f"{before}{START}\n{table(found)}\n{END}{after}", encoding="utf-8")
    if "growth" in found:
        draw_growth(found["growth"]["rows"], Path(docs) / "performance.png")


def table(found):
    """Make the table of all rows that say more than a start-up."""
    lines = ["| what | seconds | ratio | of what | budget | peak |", "|---|---|---|---|---|---|"]
    for name, item in found.items():
        for row in item["rows"]:
            if name == "startup" and "budget" not in row:
                continue
            cells = (
                row["case"].replace("|", "\\|"), ranged(row, "seconds"), ranged(row, "ratio"), row.get("of", ""),
                row.get("budget", "").replace("<=", "≤").replace(">=", "≥"), f"{row.get('peak', item['peak_mib'])} MiB",
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw_growth(rows, path):
    """Draw the time of a null sample by heads, layers and width, beside the operations that it needs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.6), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, what in zip(panels, ("heads", "layers", "d_model"), strict=True):
        points = [row for row in rows if re.fullmatch(rf"{what} x \d+", row["case"])]
        times = [int(row["case"].split()[-1]) for row in points]
        axes.loglog(times, [row["seconds"] for row in points], "o-", color="black", label="measured")
        scale = points[0]["seconds"] / points[0]["operations"]
        axes.loglog(times, [scale * row["operations"] for row in points], "--", color="#d55e00", label="operations")
        axes.set_xlabel(f"{what}, times")
        axes.set_xticks(times, map(str, times))
        axes.minorticks_off()
    panels[0].set_ylabel("seconds of a null sample")
    panels[0].legend()
    figure.savefig(path, dpi=150, metadata={"Software": None})
