"""make ablation: what a network costs without a part, and which parts gain nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.ir import OpDef
from edgec.schedule.cores import core
from edgec.schedule.variant import legal
from tests.conftest import ROOT
from tests.harness import sample_graph
from tests.tables.ablation import Figure, Without, markdown, parts

DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"


def test_what_is_slower_or_larger_without_it_gains() -> None:
    def figure(
        model: str, part: str, cycles: float, arena: int = 64, digest: str = "other"
    ) -> Figure:
        return Figure(model, part, cycles, arena, 1000, digest)

    found = [
        *(figure("a", "", 2e6, digest="whole"), figure("b", "", 4e6, digest="whole")),
        *(figure("a", "fusion", 4e6), figure("b", "fusion", 8e6)),
        *(figure("a", "views", 2e6, 128), figure("b", "views", 4e6, digest="whole")),
        *(figure("a", "tuning", 1.9e6), figure("b", "tuning", 4e6, digest="whole")),
        *(
            figure("a", "bands", 2e6, digest="whole"),
            figure("b", "bands", 4e6, digest="whole"),
        ),
    ]
    text = list(markdown(found, ["fusion", "views", "tuning", "bands"]))
    assert "| nothing | 2.00 M cycles | 4.00 M cycles | 1 |" in text
    assert "| fusion | 2.000 | 2.000 | 2.000 |" in text
    assert "| tuning | 0.950 | – | 0.975 |" in text
    assert text[-6:] == [
        "| --- | --- | --- |",
        "| nothing | 64 | 64 |",
        "| views | 128 | 64 |",
        "",
        "these have no use for: bands",
        "gains nothing on those that use it: tuning",
    ]


def test_every_rule_and_family_can_be_off() -> None:
    known = parts("pi4")
    assert {
        "fusion",
        "views",
        "bands",
        "tuning",
        "kernels gemm_s8",
        "kernels gemm_f32",
    } <= known.keys()
    assert not any("x86" in name for name in known), "a Cortex-A72 has none of those"
    assert not known["views"].rules.views
    assert known["views"].rules.fusion
    on = core("cortex_a72")
    choose = known["kernels gemm_s8"].rules.choose
    assert isinstance(choose, Without)
    others = 0
    for sample in OpDef.registry["conv2d"].samples():
        graph = sample_graph(sample)
        for call in (c for op in graph.ops for c in op.spec.calls(op)):
            chosen = choose(call, on)
            assert chosen is None or not chosen[0].name.startswith("ek_gemm_s8")
            others += chosen is not None and legal(call, on)[0] == chosen
    assert others, "other families are as they were"


@pytest.mark.slow
@pytest.mark.arm
def test_the_command_on_a_file(tmp_path: Path) -> None:
    names = "fusion,kernels gemm_f32,kernels arg,fused multiply-adds"
    out = tmp_path / "out.json"
    words = ["--models", str(DIGITS), "--parts", names, "--json", str(out)]
    command = [sys.executable, "-m", "tests.tables.ablation", *words]
    env = {**os.environ, "EDGEC_SHARED": str(tmp_path / "none")}
    done = subprocess.run(
        command, cwd=ROOT, env=env, check=True, capture_output=True, text=True
    )
    assert "these have no use for: kernels arg" in done.stdout.replace("fusion, ", "")
    rows = json.loads(out.read_text())["figures"]
    cycles = {r["part"]: r["cycles"] for r in rows}
    assert list(cycles) == ["", *names.split(",")]
    assert cycles["kernels gemm_f32"] > 1.5 * cycles[""]
    assert cycles["fused multiply-adds"] > 1.1 * cycles[""]
