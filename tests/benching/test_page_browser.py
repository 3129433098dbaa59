"""The page in a real browser: a click tells an operation's time, nothing is wider than
a phone.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2.utils import htmlsafe_json_dumps

from edgec.report.bench.page import page
from tests.benching.example import EXAMPLES, GRAPH, hostile, measured, measurement
from tests.report.test_explain_browser import ACT, visit

pytestmark = pytest.mark.browser

PHONE = 390
MEASURE = """<script>
const frame = document.createElement("iframe");
frame.style.cssText = "width:390px;height:800px;border:0"; frame.srcdoc = SOURCE;
frame.onload = () => { document.title = "width " + frame.contentDocument.documentElement.scrollWidth; };
document.body.append(frame);
</script>"""


def test_a_click_tells_the_time_and_a_search_finds(tmp_path: Path) -> None:
    text = page(measured(), GRAPH, measurement())
    act = ACT.replace("OP", "1").replace("WORD", "conv2d")
    dom = visit(text.replace("</body>", act + "</body>"), tmp_path)
    about = dom[dom.index('id="about"') :]
    assert "<h3>1  conv2d</h3>" in about
    (ms,) = (
        op.ms for s in measured().segments for op in s.ops if op.name == "op1_conv2d"
    )
    assert f"<dd>{ms:.3f} ms</dd>" in about
    assert "op1_conv2d" in about
    found = re.search(r'id="found"[^>]*>(\d+) found', dom)
    assert found is not None
    assert int(found[1]) == sum(op.kind == "conv2d" for op in GRAPH.ops)


def test_a_hostile_name_runs_nothing(tmp_path: Path) -> None:
    trap = "<script>window.alert = () => { document.title = 'it ran'; };</script>"
    text = page(hostile(), GRAPH, measurement()).replace("<head>", "<head>" + trap)
    assert "<title>it ran" not in visit(text, tmp_path)


@pytest.mark.parametrize("name", ["missed", "throttled"])
def test_nothing_is_wider_than_a_phone(name: str, tmp_path: Path) -> None:
    source = page(EXAMPLES[name](), GRAPH, measurement(hot=name == "throttled"))
    quoted = "JSON.parse(document.getElementById('source').textContent)"
    held = (
        '<script type="application/json" '
        f'id="source">{htmlsafe_json_dumps(source)}</script>'
    )
    dom = visit(
        f"<html><head></head><body>{held}{MEASURE.replace('SOURCE', quoted)}</body></html>",
        tmp_path,
    )
    width = re.search(r"<title>width (\d+)</title>", dom)
    assert width is not None
    assert int(width[1]) <= PHONE
