"""What the HTML pages share: filling a form, tables, embedded data, the graph to look around in.

No page loads anything: page.css is the style of all, graph.js what moves the graph.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

_HERE = Path(__file__).parent


def filled(form: Path, parts: Mapping[str, str]) -> str:
    """The page: a form whose `<!--NAME-->` marks are replaced, STYLE and LOOK by the shared style and script.

    parts: HTML, so its texts are escaped already.
    """
    shared = {"STYLE": _text("page.css"), "LOOK": _text("graph.js")}
    known = {**shared, **parts}
    return re.sub(r"<!--([A-Z]+)-->", lambda m: known[m[1]], form.read_text(encoding="utf-8"))


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def embedded(data: object) -> str:
    """JSON that nothing in it can end the script element of."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def table(rows: Sequence[Sequence[str]], left: int = 1, classes: Sequence[str] = ()) -> str:
    """A table of escaped texts, its first row the header; the first `left` columns are texts, the rest numbers."""
    if len(rows) < 2:
        return ""
    sides = ["text" if i < left else "number" for i in range(len(rows[0]))]
    cells = [
        "".join(f'<{tag} class="{side}">{escape(c)}</{tag}>' for c, side in zip(row, sides, strict=True))
        for row, tag in zip(rows, ["th", *["td"] * (len(rows) - 1)], strict=True)
    ]
    marks = [f' class="{c}"' for c in classes] or [""] * (len(rows) - 1)
    body = "".join(f"<tr{mark}>{c}</tr>" for mark, c in zip(marks, cells[1:], strict=True))
    return f"<table><thead><tr>{cells[0]}</tr></thead><tbody>{body}</tbody></table>"


def graph_view(svg: str, searched: str, legend: str, hint: str) -> str:
    """The graph with its search, its buttons, and a place to read about the chosen operation; graph.js moves it.

    svg: the picture, or a paragraph that says why there is none. searched: what the search looks in. legend: badges.
    hint: what a click is for.
    """
    return f"""<div class="bar">
<label><span hidden>Search</span><input id="search" type="search" placeholder="{escape(searched)}  ( / )"></label>
<span class="found" id="found" aria-live="polite"></span>
<button type="button" id="in" title="zoom in (+)">+</button>
<button type="button" id="out" title="zoom out (-)">&minus;</button>
<button type="button" id="fit" title="whole graph (0)">fit</button>
{legend}
<span>dashed: from one segment to another</span>
</div>
<div class="look">
<div id="view">{svg}</div>
<aside id="about" aria-live="polite"><h3>Click an operation</h3>
<p>{escape(hint)} Drag to move, wheel to zoom; arrow keys go from one to the next.</p></aside>
</div>"""
