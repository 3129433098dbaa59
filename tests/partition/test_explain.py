"""The report: its JSON is what docs/explain-schema.md says, its table fits the
terminal.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from edgec_partitioner.comparison import stock_of_graph
from edgec_partitioner.cost import LINKS
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.explain import (
    ExplainReport,
    Origin,
    Places,
    explain,
    rewrites_of,
)
from edgec_partitioner.legalize import Applied
from edgec_partitioner.partition import WORTHWHILE, partition
from edgec_partitioner.regions import CALL_MS
from edgec_partitioner.source import SourceOp
from hypothesis import given
from hypothesis import strategies as st

from edgec.quantize import assumed
from edgec.report.explain.text import brought, to_text
from edgec.report.wording import percent
from tests.quantize.nets import NETS

SLOW_CPU = CpuCost(1e-5)
SCHEMA = Path(__file__).parents[2] / "docs" / "explain-schema.md"


def report(
    name: str = "joined", link: str | None = "usb3", cpu: CpuCost = SLOW_CPU
) -> ExplainReport:
    target = "pi4+coral" if link else "pi4"
    graph = assumed(NETS[name]())
    stock = stock_of_graph(graph, cpu, LINKS[link], "an int8 form") if link else None
    return explain(
        partition(graph, link, cpu),
        cpu,
        Origin(f"{name}.onnx", target, True, stock=stock),
    )


def documented() -> dict[str, set[str]]:
    """The keys of each table of the schema page, by the object that they are of."""
    tables: dict[str, set[str]] = {}
    name = "top"
    for line in SCHEMA.read_text().partition("\n## ")[0].splitlines():
        if heading := re.fullmatch(r"(?:Each of )?`(\w+)`", line):
            name = heading[1]
        elif line.startswith("| `"):
            tables.setdefault(name, set()).update(
                re.findall(r"`(\w+)`", line.split("|")[1])
            )
    return tables


@pytest.mark.parametrize("name", NETS)
def test_the_json_is_as_documented(name: str) -> None:
    data: dict[str, Any] = json.loads(
        json.dumps(report(name, cpu=CpuCost()).to_json(), allow_nan=False)
    )
    tables = documented()
    assert set(data) == tables["top"] - {"requirements"}
    assert set(data["totals"]) == tables["totals"] | tables["columns"]
    assert set(data["comparison"]) == tables["comparison"]
    assert set(data["comparison"]["gain"]) == tables["gain"]
    assert all(
        set(data["comparison"][k]) == tables["columns"]
        for k in ("cpu_only", "stock", "stock_every_set", "edgec")
    )
    for key in ("segments", "ops"):
        assert all(set(row) == tables[key] for row in data[key])
    assert all(
        set(s["est_parts"]) == tables["est_parts"]
        for s in data["segments"]
        if s["place"] == "edgetpu"
    )
    refusals = [r for row in data["ops"] for r in row["refusals"]]
    assert refusals
    assert all(set(r) == tables["refusals"] for r in refusals)


def test_totals_add_up() -> None:
    r = report()
    t = r.totals()
    assert sum(s.ops for s in r.segments) == len(r.ops)
    # what converts inputs and outputs does not count
    borders = [row for row in r.ops if row.segment != "seg1"]
    assert t["ops"] == len(r.ops) - len(borders)
    assert {row.kind for row in borders} == {"quantize", "dequantize"}
    assert t["est_ms"] == pytest.approx(sum(s.est_ms for s in r.segments))
    on_cpu = [row.cpu_ms for row in r.ops if row.place == "cpu"]
    calls = sum(s.place == "cpu" for s in r.segments)
    assert t["cpu_ms"] == pytest.approx(sum(on_cpu) + CALL_MS * calls)
    assert all(
        s.est_parts is None or s.est_ms == sum(s.est_parts.parts().values())
        for s in r.segments
    )
    assert t["macs"] == sum(s.macs for s in r.segments)
    assert t["tpu_macs_share"] == 1
    assert t["tpu_ops_share"] == 1
    assert [s.place for s in r.segments] == ["cpu", "edgetpu", "cpu"]
    assert r.segments[1].inputs == r.segments[0].outputs
    assert {row.segment for row in r.ops if row.place == "edgetpu"} == {"seg1"}


def test_the_table_fits_the_terminal_and_says_why() -> None:
    text = to_text(report())
    assert all(len(line) <= 120 for line in text.splitlines())
    assert "100% of the MACs" in text
    assert "int8 scales are made up" in text
    assert "estimated" in text
    assert text.count("x dequantize") == 1  # two of them, one group
    assert "2 x dequantize" in text


def test_a_target_without_edge_tpu_has_no_reasons() -> None:
    r = report(link=None)
    assert r.link is None
    assert "no Edge TPU in this target" in to_text(r)
    assert not any(row.refusals for row in r.ops)


def test_what_does_not_pay_is_said() -> None:
    r = report("chain", cpu=CpuCost())
    assert [row.kind for row in r.ops if row.refusals[0].rule == WORTHWHILE] == [
        "conv2d",
        "depthwise_conv2d",
        "conv2d",
    ]
    words = " ".join(to_text(r).split())
    assert "an Edge TPU region must save more time than its transfers take" in words


def test_the_summary_comes_first_and_the_operations_last() -> None:
    text = to_text(report(), each_op=True)
    order = [
        text.index(word)
        for word in (
            "stock compiler  ",
            "why not on the",
            "segment  place",
            "op  kind",
            "(MACs = ",
        )
    ]
    assert order == sorted(order)
    assert "op  kind" not in to_text(report())


def test_rewrites_are_traced_to_the_ops_that_they_made() -> None:
    graph = assumed(NETS["chain"]())
    made = [op for op in graph.ops if op.kind == "conv2d"]
    renamed = Applied("fused_away", "y", graph.ops[-2].source or "node", ("gone",))
    graph.ops[-2].source = f"other+{renamed.source}"
    found = rewrites_of(
        graph.ops, [Applied("widen", "y", "", (made[0].output.name, "gone")), renamed]
    )
    assert found == {made[0]: ("widen",), graph.ops[-2]: ("fused_away",)}
    parts = replace(
        partition(graph, "usb3", SLOW_CPU),
        applied=(Applied("widen", "y", "", (made[0].output.name,)),) * 2,
    )
    r = explain(parts, SLOW_CPU, Origin("chain", "pi4+coral"))
    assert [(b.rewrite, b.times, b.tpu_ops) for b in brought(r)] == [("widen", 2, 1)]
    assert "rewritten: widen" in to_text(r, each_op=True)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0%"),
        (1, "100%"),
        (0.999999, "99.99%"),
        (0.995, "99.50%"),
        (0.0001, "<1%"),
        (0.5, "50%"),
    ],
)
def test_only_nothing_is_0_and_only_all_is_100_percent(share: float, text: str) -> None:
    assert percent(share) == text


NAMES = st.sampled_from(["a", "b", "a+b", "a+b+c", "conv", "x/conv"])


@given(st.lists(NAMES, min_size=1, max_size=5, unique=True), st.data())
def test_places_of_the_files_operators(names: list[str], data: st.DataObject) -> None:
    """However ops were joined, an operator is found by its name, even if names have
    plus signs.
    """
    r = report("chain")
    row = replace(r.ops[1], source="+".join(names), place="edgetpu", kind="conv2d")
    wanted = data.draw(st.sampled_from(names))
    op = SourceOp(0, "CONV_2D", "edgetpu", "mapped", "", "", "", 0, (wanted,))
    quantize = replace(row, kind="quantize", place="cpu")
    assert Places([row]).row(op).place == "edgetpu"
    # a conversion is not the operator
    assert Places([row, quantize]).row(op).place == "edgetpu"
    assert Places([quantize]).row(op).place == "cpu"
    assert Places([row, replace(row, place="cpu")]).row(op).place == "mixed"
    assert Places([row]).row(replace(op, outputs=("zzz",))).place == "none"
