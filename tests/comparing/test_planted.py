"""A fault that was planted in one layer is named: on a small network, and on five
models of the data folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from edgec.comparing.changes import channel_changes
from edgec.comparing.result import Diff
from edgec.comparing.side import Sample
from edgec.compiler.lower import Lowered, lower
from edgec.ir import Graph
from edgec.options.compile import CompileOptions
from edgec.passes.pipeline import optimize
from edgec.quantize.change.convert import is_quantized
from edgec.quantize.change.steps.equalize import Equalize
from edgec.quantize.change.steps.minmax import MinMaxRanges
from edgec.quantize.change.steps.separate import Separate
from edgec.quantize.observe.calibration import load_calibration
from tests.comparing.nets import against, as_c, compared, small
from tests.comparing.planted import FAULTS, Planted, is_seen, plant
from tests.conftest import ROOT, SHARED
from tests.quantize.nets import swish, worked

PHOTOS = ROOT / "fixtures" / "photos"
MODELS = (
    "mnv2_tf2_i8",
    "resnet8_f32",
    "vww96_f32",
    "mnv1_025_224_f32",
    "mp_blazeface_short_f16",
)
CHANGED = "mp_blazeface_short_f16"
SAMPLES = 2


def named(found: Diff, planted: Planted) -> bool:
    """Whether the culprit is a fault, in the layer that has it; of a kernel, in a layer
    that it computes.
    """
    c = found.culprit
    if c is None or not c.fault:
        return False
    if planted.kernel:
        return (
            c.finding == "kernel"
            and planted.kernel in c.fix
            and c.value == planted.op.output.name
        )
    return c.value == planted.op.output.name


@dataclass(frozen=True)
class Model:
    """As it came, and int8. An int8 model is compared with itself."""

    came: Graph
    int8: Graph
    samples: Sequence[Sample]


@cache
def model(name: str) -> Model:
    path = SHARED / "models" / name / f"{name}.tflite"
    came = lower(path, CompileOptions())
    if is_quantized(came.graph):
        int8 = came
    else:
        int8 = lower(path, CompileOptions(calibrate=PHOTOS, quantize="fast"))
    (preprocess,) = came.read.preprocess.values()
    photos = load_calibration(PHOTOS, came.read.graph.inputs, preprocess)
    return Model(came.graph, int8.graph, [photos[i] for i in range(SAMPLES)])


@pytest.mark.cc
@pytest.mark.parametrize("fault", FAULTS)
def test_the_planted_fault_is_named(fault: str, tmp_path: Path) -> None:
    floats, int8, tries = small()
    reference = as_c("float", floats)
    hidden = 0
    for seed in range(6):
        planted = plant(fault, int8, seed, tmp_path)
        if not planted.kernel and not is_seen(int8, planted, tries[:2]):
            hidden += 1
            continue
        found = against(reference, planted, tries[:2])
        assert named(found, planted), (planted.what, found.culprit)
        if fault == "channel" and planted.op.kind == "conv2d":
            assert found.culprit is not None
            assert found.culprit.finding in ("swap", "noise")
            assert "channel" in found.culprit.why
    assert hidden <= 1


@pytest.mark.cc
@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_the_planted_fault_is_named_where_channels_are_parted(
    fault: str, tmp_path: Path
) -> None:
    graph = swish(48, (0.2, 10.0), gate=False)
    work = worked(graph, Separate(), Equalize(power=1.0), MinMaxRanges())
    changes = channel_changes(graph, work.graph, work.parts)
    int8 = optimize(work.int8().graph)
    hidden = 0
    for seed in range(6 if fault else 1):
        if fault:
            planted = plant(fault, int8, seed, tmp_path)
        else:
            planted = Planted(int8, int8.ops[0], "nothing")
        if (
            fault
            and not planted.kernel
            and not is_seen(int8, planted, work.samples[:2])
        ):
            hidden += 1
            continue
        side = as_c("planted", planted.graph, planted.csrc)
        side.changes = changes
        found = compared(
            as_c("float", graph), side, work.samples[:2], 1 if planted.kernel else 0
        )
        if fault:
            assert named(found, planted), (planted.what, found.culprit)
        else:
            assert not [
                (one.value, one.findings)
                for one in found.layers
                if one.fault is not None
            ]
    assert hidden <= 1


@pytest.mark.cc
def test_a_right_network_has_no_fault() -> None:
    floats, int8, tries = small()
    found = compared(as_c("float", floats), as_c("int8", int8), tries)
    assert found.culprit is not None
    assert not found.culprit.fault
    assert not [one.value for one in found.layers if one.fault is not None]
    assert all(one.law == 0 for one in found.layers)


@pytest.mark.sweep(2)
@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.cc
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", MODELS)
def test_the_planted_fault_is_named_in_models(
    name: str, fault: str, tmp_path: Path
) -> None:
    """In the first layer that is drawn in which the fault changes anything: some
    channels are dead.
    """
    m = model(name)
    for seed in range(100, 110):
        planted = plant(fault, m.int8, seed, tmp_path)
        if planted.kernel or is_seen(m.int8, planted, m.samples[:1]):
            break
    found = against(as_c("came", m.came), planted, m.samples)
    assert named(found, planted), (planted.what, found.culprit)


@pytest.mark.sweep(2)
@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.cc
@pytest.mark.parametrize("name", MODELS)
def test_right_models_have_no_fault(name: str) -> None:
    m = model(name)
    found = compared(as_c("came", m.came), as_c("int8", m.int8), m.samples)
    assert not [
        (one.value, one.findings) for one in found.layers if one.fault is not None
    ]


@cache
def changed_model(recipe: Path) -> tuple[Graph, Lowered]:
    """A network of separable convolutions as it came, and int8, its channels scaled and
    moved.
    """
    path = SHARED / "models" / CHANGED / f"{CHANGED}.tflite"
    return lower(path, CompileOptions()).graph, lower(
        path, CompileOptions(calibrate=PHOTOS, quantize=str(recipe))
    )


@pytest.mark.sweep(1)
@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.cc
@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_faults_are_named_where_channels_were_scaled_and_moved(
    fault: str, tmp_path: Path
) -> None:
    came, int8 = changed_model(Path(__file__).with_name("changed.toml"))
    assert int8.model.quantized is not None
    m = model(CHANGED)
    planted = plant(fault, int8.graph, 100, tmp_path) if fault else None
    if planted is not None:
        side = as_c("int8", planted.graph, planted.csrc)
    else:
        side = as_c("int8", int8.graph)
    side.changes = int8.model.changes()
    assert any(change.plus.any() for change in side.changes.values())
    found = compared(
        as_c("came", came),
        side,
        m.samples,
        1 if planted is not None and planted.kernel else 0,
    )
    if planted is None:
        assert not [
            (one.value, one.findings) for one in found.layers if one.fault is not None
        ]
    else:
        assert named(found, planted), (planted.what, found.culprit)
