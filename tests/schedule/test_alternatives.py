"""`explain --schedule`: the kernels that may compute a call, and the one that does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import edgec
from edgec.cli.main import cli
from edgec.errors import InputError
from edgec.quantize import assumed
from edgec.schedule.alternatives import scheduled_calls
from edgec.schedule.cores import core
from edgec.schedule.database import TunedSchedule
from edgec.schedule.records import signature
from edgec.schedule.steps import plan_plain_steps, schedule
from edgec.schedule.variant import Rules, legal
from tests.quantize.nets import NETS

A72 = core("cortex_a72")
CARTOON = Path(__file__).parents[2] / "fixtures" / "cartoon" / "cartoon.onnx"


@pytest.mark.parametrize("name", NETS)
def test_the_chosen_kernels_are_those_of_the_schedule(name: str) -> None:
    graph = assumed(NETS[name]())
    chosen = [
        next(a.kernel for a in call.alternatives if a.reason)
        for call in scheduled_calls(graph, A72, "*")
    ]
    # Without the joins that follow the choice, and change what computes a step.
    rules = Rules(attention=False, chains=False, bands=False)
    steps = schedule(graph, A72, rules).steps
    plain = [c for s in plan_plain_steps(graph, A72).plain_steps for c in s.calls]
    computed = [call for step in steps for call in step.calls]
    assert len(chosen) == len(computed) == len(plain)
    for kernel, call, before in zip(chosen, computed, plain, strict=True):
        # A variant's call is another than the plain one.
        assert (kernel == before.kernel.name) == (call.kernel == before.kernel)


def test_a_search_comes_before_analysis() -> None:
    graph = assumed(NETS["joined"]())
    plan = plan_plain_steps(graph, A72)
    call = next(c for s in plan.plain_steps for c in s.calls if len(legal(c, A72)) > 2)
    variant, parameters = legal(call, A72)[-1]
    found = TunedSchedule(
        variant.name, dict(parameters), 1.0, 2.0, 3, "a Pi", False, "0.1"
    )
    searched = replace(A72, tuned={signature(call): found})
    rows = [a for c in scheduled_calls(graph, searched, "*") for a in c.alternatives]
    (row,) = [a for a in rows if a.reason == "chosen by a search (edgec tune)"]
    assert (row.kernel, row.schedule) == (variant.name, parameters)


def test_the_command_shows_what_may_compute_a_convolution() -> None:
    options = [str(CARTOON), "--target", "pi4", "--allow-float", "--schedule", "/mix*"]
    done = CliRunner().invoke(cli, ["explain", *options])
    assert done.exit_code == 0, done.output
    shown = done.output[done.output.index("/mix/Conv_output_0_1: ek_conv2d_f32") :]
    assert "ek_gemm_f32_simd" in shown
    assert shown.count("chosen") == 1
    everything = edgec.explain(
        CARTOON, "pi4", allow_float=True, schedule="/mix*"
    ).to_json()
    (call,) = json.loads(json.dumps(everything))["schedule"]
    assert call["plain"] == "ek_conv2d_f32"
    assert sum(bool(a["reason"]) for a in call["alternatives"]) == 1


def test_an_unknown_operation_is_an_error() -> None:
    with pytest.raises(InputError, match="is called outptu; did you mean"):
        edgec.explain(CARTOON, "pi4", allow_float=True, schedule="outptu")
