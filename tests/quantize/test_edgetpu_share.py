"""What a recipe does to a model must still map: the share of MACs on the Edge TPU stays
that of min/max.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgec.compiler.lower import lower
from edgec.compiler.place import costs
from edgec.emit.tflite import write_tflite
from edgec.options.compile import CompileOptions
from edgec.quantize.change.recipe import Candidate, Recipe
from edgec.quantize.float_ops.limits import Price
from tests import networks
from tests.conftest import ROOT
from tests.quantize.nets import swish


def parted(path: Path) -> Path:
    """With channels that get tensors of their own."""
    file = path.with_suffix(".tflite")
    file.write_bytes(write_tflite(swish(16, (0.02, 20.0))))
    return file


NETWORKS: dict[str, Callable[[Path], Path]] = {
    "mobilenet": lambda path: networks.mobilenet_like(path, 64, 0.25, 10),
    "yolov8n": lambda path: networks.yolov8n_like(path, 64, 4),
    "parted": parted,
    "cartoon": lambda path: ROOT / "fixtures" / "cartoon" / "cartoon.onnx",
}


def share(model: Path, samples: Path, quantize: str) -> float:
    """Of MACs on the Edge TPU, where it is given all that it can run."""
    options = CompileOptions(
        "pi4+coral",
        calibrate=samples,
        quantize=quantize,
        edgetpu="all",
        min_cosine=-1,
        allow_float=True,
    )
    segments = lower(model, options).partition.segments
    return sum(s.macs for s in segments if s.place == "edgetpu") / sum(
        s.macs for s in segments
    )


def alone(candidate: Candidate, path: Path) -> str:
    """A recipe of one."""
    rows = [
        ", ".join(f"{key} = {json.dumps(value)}" for key, value in step.items())
        for step in candidate.to_json()["steps"]
    ]
    path.write_text(
        '[[candidate]]\nname = "one"\nsteps = '
        f"[{', '.join(f'{{ {row} }}' for row in rows)}]\n"
    )
    return str(path)


@pytest.mark.sweep(1)
@pytest.mark.cc
@pytest.mark.parametrize("name", NETWORKS)
def test_candidates_of_best_keep_the_share_of_min_max(
    name: str, tmp_path: Path
) -> None:
    """Of those that change the graph alike, one; weights and biases are values that no
    rule asks for.
    """
    model = NETWORKS[name](tmp_path / "net.onnx")
    shape = lower(model, CompileOptions(allow_float=True)).graph.inputs[0].type.shape
    samples = tmp_path / "x.npz"
    np.savez(
        samples,
        x=np.random.default_rng(0).uniform(0, 1, (3, *shape)).astype(np.float32),
    )
    least = share(model, samples, "fast")
    assert least > 0.5
    tried = {
        tuple(s for s in c.steps if s.changes == "graph"): c
        for c in Recipe.load("best").candidates
    }
    for candidate in tried.values():
        steps = tuple(s for s in candidate.steps if s.changes in ("graph", "ranges"))
        recipe = alone(Candidate(candidate.name, steps), tmp_path / "one.toml")
        assert share(model, samples, recipe) >= least, candidate.name


def test_a_lost_share_is_told_with_what_it_costs_and_buys(tmp_path: Path) -> None:
    """Of a candidate that leaves ops in float; nothing is said of candidates that run
    in the same places.
    """
    model = networks.mobilenet_like(tmp_path / "net.onnx", 64, 0.25, 10)
    samples = tmp_path / "x.npz"
    np.savez(
        samples,
        x=np.random.default_rng(0).uniform(0, 1, (8, 1, 3, 64, 64)).astype(np.float32),
    )
    candidates = {
        "float": '{ step = "minmax" }, { step = "precision", floats = ["*"] }',
        "other": '{ step = "ranges", method = "p99.999" }',
    }
    told = {}
    found = []
    for name, steps in candidates.items():
        recipe = tmp_path / f"{name}.toml"
        recipe.write_text(
            "within_db = 100\n"
            '[[candidate]]\nname = "plain"\nsteps = [{ step = "lower" }, '
            '{ step = "ranges", method = "p99.9" }]\n'
            f'[[candidate]]\nname = "{name}"\nsteps = [{{ step = "lower" }}, {steps}]\n'
        )
        options = CompileOptions(
            "pi4+coral",
            calibrate=samples,
            quantize=str(recipe),
            edgetpu="all",
            min_cosine=-1,
        )
        made = lower(model, options)
        assert made.model.quantized is not None
        assert made.model.quantized.candidate.name == name
        found.append(made.model.quantized)
        told[name] = [n for n in made.notes if "Edge TPU" in n]
    assert not told["other"]
    (note,) = told["float"]
    assert note.startswith(
        "float keeps 0.0% of the MACs on the Edge TPU, plain would keep "
    )
    assert " ms in place of " in note
    slower = replace(found[-1], prices=(Price(2.0, 1.0), Price(2.1, 1.0)))
    assert [*costs(replace(slower, prices=(Price(2.0, 1.0), Price(2.001, 1.0))))] == []
    (note,) = costs(slower)
    assert note.startswith(
        "other takes an estimated 2.10 ms in place of 2.00, and buys "
    )
