"""The report: its JSON is what docs/explain-schema.md says, its table fits the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from edgec_partitioner.cost import CpuCost
from edgec_partitioner.explain import Report, explain
from edgec_partitioner.partition import WORTHWHILE, partition

from edgec.quantize import assumed
from tests.quantize.nets import NETS

SLOW_CPU = CpuCost(1e-5, 1e-5, 1e-5)
SCHEMA = Path(__file__).parents[2] / "docs" / "explain-schema.md"


def report(name: str = "joined", link: str | None = "usb3", cpu: CpuCost = SLOW_CPU) -> Report:
    target = "pi4+coral" if link else "pi4"
    return explain(partition(assumed(NETS[name]()), link, cpu), f"{name}.onnx", target, assumed_quantization=True)


def documented() -> dict[str, set[str]]:
    """The keys of each table of the schema page, by the object that they are of."""
    tables: dict[str, set[str]] = {}
    name = "top"
    for line in SCHEMA.read_text().splitlines():
        if heading := re.fullmatch(r"(?:Each of )?`(\w+)`", line):
            name = heading[1]
        elif line.startswith("| `"):
            tables.setdefault(name, set()).update(re.findall(r"`(\w+)`", line.split("|")[1]))
    return tables


@pytest.mark.parametrize("name", NETS)
def test_the_json_is_as_documented(name: str) -> None:
    data: dict[str, Any] = json.loads(json.dumps(report(name, cpu=CpuCost()).to_json(), allow_nan=False))
    tables = documented()
    assert set(data) == tables["top"]
    assert set(data["totals"]) == tables["totals"]
    for key in ("segments", "ops"):
        assert all(set(row) == tables[key] for row in data[key])
    refusals = [r for row in data["ops"] for r in row["refusals"]]
    assert refusals
    assert all(set(r) == tables["refusals"] for r in refusals)


def test_totals_add_up() -> None:
    r = report()
    t = r.totals()
    assert t["ops"] == sum(s.ops for s in r.segments) == len(r.ops)
    assert t["macs"] == sum(s.macs for s in r.segments)
    assert t["tpu_macs_share"] == 1
    assert 0 < t["tpu_ops_share"] < 1
    assert [s.place for s in r.segments] == ["cpu", "edgetpu", "cpu"]
    assert r.segments[1].inputs == r.segments[0].outputs
    assert {row.segment for row in r.ops if row.place == "edgetpu"} == {"seg1"}


def test_the_table_fits_the_terminal_and_says_why() -> None:
    text = report().to_text()
    assert all(len(line) <= 120 for line in text.splitlines())
    assert "100% of the MACs" in text
    assert "int8 scales are assumed" in text
    assert "estimated" in text
    assert text.count("x dequantize") == 1  # two of them, one group
    assert "2 x dequantize" in text


def test_a_target_without_edge_tpu_has_no_reasons() -> None:
    r = report(link=None)
    assert r.link is None
    assert "no Edge TPU in this target" in r.to_text()
    assert not any(row.refusals for row in r.ops)


def test_what_does_not_pay_is_said() -> None:
    r = report("chain", cpu=CpuCost())
    assert [row.kind for row in r.ops if row.refusals[0].rule == WORTHWHILE] == ["conv2d", "depthwise_conv2d", "conv2d"]
    assert "an Edge TPU region must save more time than its transfers take" in r.to_text()
