"""Tables in LaTeX with booktabs rules, that stay on the page: headings in lines, wide tables shrunk or turned."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from headspaces.report.document import MISSING, Section, is_number

TURNED = 12
"""Columns beyond which a table is turned by 90 degrees."""
LONG = 40
"""Rows beyond which a table breaks over pages."""

# Of LaTeX's own article class on any paper, in points.
_LINE_WIDTH, _TURNED_WIDTH = 345.0, 500.0


def latex(name: str, section: Section) -> str:
    """Return a table: caption, rows, notes. The first line names the packages that it needs; ``name`` is its label."""
    headings, rows = section.table.header, section.table.rows
    tops = [_lines(heading, [row[column] for row in rows]) for column, heading in enumerate(headings)]
    caption = f"\\caption{{{escape_latex(section.title)}.}}\\label{{tab:{name}}}"
    columns = "".join("r" if number else "l" for number in section.table.numeric)
    head = ["\\toprule", " & ".join(map(_heading, tops, columns)) + " \\\\", "\\midrule"]
    body = [*(" & ".join(map(_cell, row)) + " \\\\" for row in rows), "\\bottomrule"]
    below = ["\\par\\smallskip\\raggedright\\footnotesize", *(f"{escape_latex(note)}\\par" for note in section.notes)]
    turned = len(headings) > TURNED
    if len(rows) > LONG:
        widths = [max(map(_letters, [*top, *(row[column] for row in rows)])) for column, top in enumerate(tops)]
        size = _letter_size(widths, turned)
        return "\n".join([
            f"% needs \\usepackage{{booktabs,longtable{',pdflscape' if turned else ''}}}",
            *(["\\begin{landscape}"] if turned else []),
            "\\begingroup",
            f"\\fontsize{{{size:.1f}}}{{{1.2 * size:.1f}}}\\selectfont\\setlength{{\\tabcolsep}}{{3pt}}",
            f"\\begin{{longtable}}{{{columns}}}",
            f"{caption} \\\\", *head, "\\endfirsthead", *head, "\\endhead", *body,
            "\\end{longtable}", *below,
            "\\endgroup",
            *(["\\end{landscape}"] if turned else []),
        ]) + "\n"  # fmt: skip
    float_ = "sidewaystable" if turned else "table"
    return "\n".join([
        f"% needs \\usepackage{{booktabs,graphicx{',rotating' if turned else ''}}}",
        f"\\begin{{{float_}}}", "\\centering\\small\\setlength{\\tabcolsep}{4pt}",
        caption,
        f"\\sbox0{{\\begin{{tabular}}{{{columns}}}", *head, *body, "\\end{tabular}}%",
        "\\ifdim\\wd0>\\linewidth\\resizebox{\\linewidth}{!}{\\usebox0}\\else\\usebox0\\fi",
        *below,
        f"\\end{{{float_}}}",
    ]) + "\n"  # fmt: skip


def escape_latex(text: str) -> str:
    """Write text so that LaTeX sets it as it is; Greek letters and signs become mathematics."""
    return "".join(_LATEX.get(sign, sign) for sign in text)


_LATEX = {
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
    "<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}",
    "²": "$^2$", "ρ": "$\\rho$", "λ": "$\\lambda$", "σ": "$\\sigma$", "°": "$^\\circ$", "→": "$\\to$", "×": "$\\times$",
    "±": "$\\pm$", "–": "--", "∞": "$\\infty$",
}  # fmt: skip


def _lines(heading: str, cells: Sequence[str]) -> list[str]:
    """Break a heading so that it is not wider than it must be beside its cells."""
    width = max(map(_letters, [*heading.split(), *cells]))
    return textwrap.wrap(heading, width, break_long_words=False, break_on_hyphens=False)


def _heading(lines: Sequence[str], side: str) -> str:
    escaped = [escape_latex(line) for line in lines]
    return escaped[0] if len(escaped) == 1 else f"\\shortstack[{side}]{{" + "\\\\".join(escaped) + "}"


def _cell(cell: str) -> str:
    if not is_number(cell) or cell == MISSING:
        return escape_latex(cell)
    mantissa, marker, exponent = cell.partition("e")
    if marker:
        return f"${mantissa} \\times 10^{{{int(exponent)}}}$"
    return f"${cell}$" if cell.startswith("-") else cell


def _letters(cell: str) -> int:
    """Width in letters; a power of ten is wider than it is written here."""
    return len(cell) + 2 * (is_number(cell) and "e" in cell)


def _letter_size(letters: Sequence[int], turned: bool) -> float:
    """Size of letters with which a table that TeX cannot shrink fits; a letter is half its size wide, hardly more."""
    width = (_TURNED_WIDTH if turned else _LINE_WIDTH) - 6 * len(letters)
    return min(9.0, width / (0.53 * sum(letters)))
