"""The page: self-contained, well-formed, hostile names stay text, and it is written
whole or not at all.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from edgec_partitioner.comparison import stock_of_graph
from edgec_partitioner.cost import LINKS
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.explain import ExplainReport, Origin, SourceRow, explain
from edgec_partitioner.partition import partition
from edgec_partitioner.source import SourceOp

from edgec.errors import InputError
from edgec.ir import Graph
from edgec.quantize import assumed
from edgec.report.explain.page import page
from edgec.report.files import check_place, write_whole
from edgec.report.legend import TERMS
from tests.quantize.nets import NETS

CPU = CpuCost(0.01)
HOSTILE = "</script><script>alert(1)</script><!--DATA-->\u2028&amp;\"'"
VOID = {"meta", "input", "br", "link", "hr", "img"}


class Page(HTMLParser):
    """What a browser would see: elements properly nested, scripts, the ops drawn,
    visible texts.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.ops: list[dict[str, str | None]] = []
        self.urls: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "g" and "data-op" in values:
            self.ops.append(values)
        self.urls += [
            v or "" for k, v in attrs if k in ("src", "href", "action", "data")
        ]
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.text += data


def report(
    net: str = "joined", name: str = "net", link: str | None = "usb3"
) -> ExplainReport:
    graph = assumed(NETS[net]())
    stock = stock_of_graph(graph, CPU, LINKS[link], "an int8 form") if link else None
    return explain(
        partition(graph, link, CPU), CPU, Origin(name, "pi4+coral", True, stock=stock)
    )


def deep_report(ops: int) -> ExplainReport:
    """With a graph of so many operations, one after the other, and an edge around every
    few.
    """
    r = report("chain")
    name = "t{}".format
    op = next(op for op in r.ops if op.place == "edgetpu")
    rows = [
        replace(
            op,
            index=i,
            name=name(i),
            outputs=(name(i),),
            inputs=(name(i - 1), name(max(i - 5, 0)))
            if i % 5 == 0 and i
            else (name(i - 1),),
            input_types=(op.output,) * (2 if i % 5 == 0 and i else 1),
        )
        for i in range(ops)
    ]
    return replace(r, ops=tuple(rows))


def hostile(graph: Graph) -> Graph:
    for i, v in enumerate(graph.values()):
        v.name = f"{HOSTILE}{i}"
    for op in graph.ops:
        op.source = HOSTILE
    return graph


@pytest.mark.parametrize("net", NETS)
def test_every_op_is_drawn_with_its_place(net: str) -> None:
    r = report(net)
    seen = Page(page(r))
    assert [int(o["data-op"] or -1) for o in seen.ops] == [op.index for op in r.ops]
    for drawn, op in zip(seen.ops, r.ops, strict=True):
        assert op.place in (drawn["class"] or "").split()
    data = json.loads(seen.scripts[0])
    assert data == json.loads(json.dumps(r.to_json()))
    for s in r.segments:
        assert s.name in seen.text
    assert "estimated ms, together" in seen.text


def test_nothing_is_loaded_from_elsewhere() -> None:
    text = page(report())
    assert all(u.startswith("#") for u in Page(text).urls)
    assert not re.search(
        r"https?:|@import|url\(|fetch\(|XMLHttpRequest|innerHTML", text
    )
    assert "default-src 'none'" in text


def test_why_not_comes_before_the_graph_and_the_tables() -> None:
    r = report()
    mended = next(op.refusals[0].rule for op in r.ops if op.refusals)
    rows = tuple(
        replace(
            op,
            refusals=tuple(
                replace(w, fix="do that" if w.rule == mended else "")
                for w in op.refusals
            ),
        )
        for op in r.ops
    )
    text = page(replace(r, ops=rows))
    order = [
        text.index(mark)
        for mark in ('id="reasons"', 'id="graph"', "<table", 'id="segments"')
    ]
    assert order == sorted(order)
    why = text[order[0] : order[1]]
    assert "do that" in why
    assert "need no fix" in why[why.index("<details") :], (
        "what needs no fix is folded away"
    )
    assert "<dt>fix</dt><dd></dd>" not in why


def test_terms_are_explained_where_they_stand() -> None:
    text = page(report())
    assert TERMS["streamed"] in text[text.index('id="segments"') :]
    assert (
        TERMS["MACs"] in text[text.index('id="columns"') : text.index('id="segments"')]
    )
    assert f'title="{TERMS["uncertain"]}"' in text


def test_uncertain_and_rewritten_ops_are_marked() -> None:
    r = report()
    on_cpu = next(op for op in r.ops if op.place == "cpu")
    rows = tuple(
        replace(op, verdict="uncertain", rewrites=("x",)) if op is on_cpu else op
        for op in r.ops
    )
    drawn = next(
        o
        for o in Page(page(replace(r, ops=rows))).ops
        if o["data-op"] == str(on_cpu.index)
    )
    assert {"uncertain", "rewritten"} <= set((drawn["class"] or "").split())


def test_names_from_a_file_stay_text() -> None:
    graph = hostile(assumed(NETS["chain"]()))
    parts = partition(graph, "usb3", CPU)
    source = SourceOp(
        0, HOSTILE, "cpu", "cpu", HOSTILE, HOSTILE, HOSTILE, 0, (HOSTILE,)
    )
    r = explain(
        parts, CPU, Origin(HOSTILE, HOSTILE, obstacle=HOSTILE, operators=[source])
    )
    seen = Page(page(r))
    assert len(seen.scripts) == 2  # the data and the page's own
    assert json.loads(seen.scripts[0])["ops"][0]["source"] == HOSTILE
    assert seen.scripts[1] == Page(page(report())).scripts[1]
    assert "alert(1)" in seen.text


def test_a_file_that_cannot_be_compiled_still_has_a_page() -> None:
    source = SourceOp(
        0, "CUSTOM:Thing", "cpu", "cpu", "unread_operator", "Thing", "none", 0, ("y",)
    )
    r = replace(
        report(),
        ops=(),
        segments=(),
        source_ops=(SourceRow(source, "none"),),
        obstacle="Thing is unknown",
    )
    text = page(r)
    seen = Page(text)
    assert not seen.ops
    assert "CUSTOM:Thing" in seen.text
    assert text.index("Thing is unknown") < text.index("<section"), "it comes first"


def test_a_target_without_edge_tpu_has_a_page() -> None:
    assert "all on the CPU" in Page(page(report(link=None))).text


@pytest.mark.skipif(
    shutil.which("node") is None, reason="no node to parse JavaScript with"
)
def test_the_script_parses(tmp_path: Path) -> None:
    script = tmp_path / "page.js"
    script.write_text(Page(page(report())).scripts[1])
    subprocess.run(["node", "--check", script], check=True)


def test_no_half_written_page_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.html"
    write_whole(path, page(report()))
    before = path.read_text()
    assert Page(before).ops
    with monkeypatch.context() as m:
        m.setattr("os.replace", _full_disk)
        with pytest.raises(InputError, match=r"cannot write .*: full"):
            write_whole(path, page(report("chain")))
    assert path.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def _full_disk(a: object, b: object) -> None:
    raise OSError(28, "full")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        check_place(tmp_path / "no" / "r.html", "--html")
    with pytest.raises(InputError, match="is a folder"):
        check_place(tmp_path, "--html")
