"""The page in a real browser: clicking an operation tells why it is where it is, searching finds it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from edgec.report.explain.page import page
from tests.report.test_explain_html import report

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --disable-quic --window-size=1200,900"
)
ACT = """<script>
const op = document.querySelector('[data-op="OP"]');
for (const kind of ["pointerdown", "pointerup"])
  op.dispatchEvent(new PointerEvent(kind, { bubbles: true, clientX: 5, clientY: 5 }));
const search = document.getElementById("search");
search.value = "WORD"; search.dispatchEvent(new Event("input"));
</script>"""


def visit(html: str, folder: Path) -> str:
    """The document after its scripts have run."""
    file = folder / "page.html"
    file.write_text(html)
    command = ["chromium", *FLAGS.split(), f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


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
