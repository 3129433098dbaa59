"""The page in a real browser: it opens on the whole graph, the small map moves it, a
click tells why.
"""

from __future__ import annotations

import json
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from jinja2.utils import htmlsafe_json_dumps

from edgec.report.explain.page import page
from tests.report.test_explain_html import deep_report, report

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run "
    "--disable-background-networking --disable-component-update "
    "--disable-sync --disable-quic --window-size=1200,900"
)
ACT = """<script>
const op = document.querySelector('#graph [data-op="OP"]');
for (const kind of ["pointerdown", "pointerup"])
  op.dispatchEvent(new PointerEvent(kind, { bubbles: true, clientX: 5, clientY: 5 }));
const search = document.getElementById("search");
search.value = "WORD"; search.dispatchEvent(new Event("input"));
</script>"""


FRAME = """<script>
const frame = document.createElement("iframe");
frame.style.cssText = "width:WIDTHpx;height:800px;border:0"; frame.srcdoc = JSON.parse(
  document.getElementById("source").textContent);
frame.onload = () => {
  const page = frame.contentDocument, told = (() => { ASK })();
  const out = document.createElement("output"); out.textContent = JSON.stringify(told); document.body.append(out);
};
document.body.append(frame);
</script>"""
SEEN = """
const view = page.getElementById("view").getBoundingClientRect();
const inside = [...page.querySelectorAll("#graph .op, #graph .io, #graph .edge")].map(g => g.getBoundingClientRect())
  .every(b => b.left >= view.left - 1 && b.right <= view.right + 1 && b.top >= view.top - 1
    && b.bottom <= view.bottom + 1);
const frameAt = () => ["x", "y", "width", "height"].map(k => Number(page.querySelector("#map .frame").getAttribute(k)));
"""


def told(html: str, ask: str, folder: Path, width: int = 1200) -> Any:
    """What a script answers about the page, in a window as wide as that. ask:
    JavaScript that returns something.
    """
    held = (
        '<script type="application/json" '
        f'id="source">{htmlsafe_json_dumps(html)}</script>'
    )
    script = FRAME.replace("WIDTH", str(width)).replace("ASK", ask)
    dom = visit(f"<html><head></head><body>{held}{script}</body></html>", folder)
    found = re.search(r"<output>(.*?)</output>", dom, re.S)
    assert found is not None, dom[-2000:]
    return json.loads(unescape(found[1]))


def visit(html: str, folder: Path) -> str:
    """The document after its scripts have run."""
    file = folder / "page.html"
    file.write_text(html)
    command = [
        "chromium",
        *FLAGS.split(),
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
        file.as_uri(),
    ]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True
    ).stdout


def test_a_click_tells_why_and_a_search_finds(tmp_path: Path) -> None:
    r = report("joined")
    refused = next(op for op in r.ops if op.refusals)
    act = ACT.replace("OP", str(refused.index)).replace("WORD", refused.kind)
    dom = visit(page(r).replace("</body>", act + "</body>"), tmp_path)
    about = dom[dom.index('id="about"') :]
    assert f"<h3>{refused.index}  {refused.kind}</h3>" in about
    assert refused.refusals[0].seen in about
    assert (refused.refusals[0].fix or "") in about
    same = sum(refused.kind in f"{op.kind} {op.name} {op.source}" for op in r.ops)
    found = re.search(r'id="found"[^>]*>(\d+) found', dom)
    assert found is not None
    assert int(found[1]) >= same >= 1


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("ops", [3, 250])
def test_it_opens_on_the_whole_graph(ops: int, width: int, tmp_path: Path) -> None:
    ask = (
        f"{SEEN} return {{inside, frame: frameAt(), wide: "
        f"page.documentElement.scrollWidth}};"
    )
    seen = told(page(deep_report(ops)), ask, tmp_path, width)
    assert seen["inside"], "a part of the graph is out of sight"
    assert seen["wide"] <= width
    assert min(seen["frame"][2:]) > 100, (
        "the frame of the small map has the size of the graph"
    )


def test_the_small_map_moves_the_graph_and_reset_shows_all_of_it(
    tmp_path: Path,
) -> None:
    ask = (
        SEEN
        + """
for (let i = 0; i < 8; i++) page.getElementById("in").click();
const near = frameAt(), map = page.getElementById("map");
const corner = map.getBoundingClientRect();
for (const kind of ["pointerdown", "pointerup"]) map.dispatchEvent(new frame.contentWindow.PointerEvent(kind,
  { bubbles: true, clientX: corner.left + corner.width / 2, clientY: corner.bottom - 2 }));
const moved = frameAt();
page.getElementById("view").dispatchEvent(new frame.contentWindow.WheelEvent("wheel",
  { bubbles: true, cancelable: true, deltaY: -100, clientX: view.left + 9, clientY: view.top + 9 }));
const wheeled = frameAt();
page.getElementById("fit").click();
return { inside, near, moved, wheeled, whole: frameAt() };"""
    )
    seen = told(page(deep_report(250)), ask, tmp_path)
    whole = seen["whole"]
    assert seen["inside"]
    assert seen["near"][3] < whole[3] / 4, "zooming in makes the frame smaller"
    assert seen["moved"][1] > seen["near"][1] + whole[3] / 4, (
        "the frame follows the pointer down"
    )
    assert seen["wheeled"][2] < seen["moved"][2], "the wheel zooms in"
