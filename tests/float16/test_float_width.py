"""--float: its values, the boards that have float16, and whole compiles with it."""

from __future__ import annotations

import json
import zipfile
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import Bundle, Session

import edgec
from edgec.compiler import float_width, segment_checks
from edgec.compiler.float_width import check_width
from edgec.compiler.lower import lower
from edgec.errors import InputError, UnsupportedError
from edgec.float16 import choose
from edgec.float16.choose import Float16Choice
from edgec.options.compile import CompileOptions
from tests.networks import Net

FIXTURES = Path(__file__).parents[2] / "fixtures"
DIGITS = FIXTURES / "digits" / "digits.onnx"
CALIBRATION = FIXTURES / "digits" / "digits_calibration.npz"
WEIGHTS = "lib/linux-aarch64/weights.bin"


@pytest.mark.parametrize("target", ["pi4", "pi4+coral", "pi-zero2", "host"])
def test_16_is_for_boards_that_compute_with_it(target: str) -> None:
    with pytest.raises(InputError) as caught:
        check_width(CompileOptions(target=target, float_width="16"))
    assert f"the core of {target} does not compute with float16" in str(caught.value)
    assert caught.value.hint == "leave it out, or compile for pi5"


@pytest.mark.parametrize("width", ["8", "float16", ""])
def test_another_width_is_no_width(width: str) -> None:
    with pytest.raises(InputError) as caught:
        check_width(CompileOptions(target="pi5", float_width=width))
    assert f"floats of {width} bits are not known" in str(caught.value)
    assert caught.value.hint == "give 16, 32 or auto"


def test_a_wrong_width_leaves_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not compute with float16"):
        edgec.compile(DIGITS, "pi4", tmp_path / "d.edgec", float_width="16")
    assert list(tmp_path.iterdir()) == []


def test_auto_changes_nothing_on_other_boards() -> None:
    options = [CompileOptions(target="pi4", float_width=w) for w in ("auto", "32")]
    auto, wide = (lower(DIGITS, o) for o in options)
    assert auto.model.float16 is None
    assert auto.model.graph == wide.model.graph


def test_what_cannot_be_measured_stays_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UnsupportedError("no C for it")

    monkeypatch.setattr(float_width, "Float16Chooser", refuse)
    lowered = lower(DIGITS, CompileOptions(target="pi5"))
    assert lowered.model.float16 is None
    assert any("cannot be measured" in note for note in lowered.model.notes)


def test_samples_are_spread_over_all_that_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last of the file is not among the first eight."""
    taken: list[Any] = []

    def refuse(_: object, samples: Any, *__: object) -> None:
        taken.extend(samples)
        raise UnsupportedError("no C for it")

    monkeypatch.setattr(float_width, "Float16Chooser", refuse)
    lower(DIGITS, CompileOptions(target="pi5", validate=CALIBRATION))
    pictures = np.load(CALIBRATION)["input"]
    assert len(taken) == 8 < len(pictures) // 2
    half = len(pictures) // 2
    np.testing.assert_array_equal(taken[4]["input"], pictures[half : half + 1])


def _manifest(path: Path) -> Any:
    with zipfile.ZipFile(path) as bundle:
        return json.loads(bundle.read("manifest.json"))


def _weights(path: Path) -> int:
    """The bytes of the file of weights."""
    with zipfile.ZipFile(path) as bundle:
        return bundle.getinfo(WEIGHTS).file_size


@pytest.mark.slow
@pytest.mark.arm
def test_a_float_network_for_pi5_has_half_the_weights(tmp_path: Path) -> None:
    half, wide = tmp_path / "half.edgec", tmp_path / "wide.edgec"
    done = edgec.compile(DIGITS, "pi5", half)
    edgec.compile(DIGITS, "pi5", wide, float_width="32")
    facts = _manifest(half)["quantization"]["float16"]
    assert facts["operations"] >= 8
    assert facts["losses"]["output"]["sqnr_db"] >= 45
    assert "float16" not in (_manifest(wide)["quantization"] or {})
    assert "operations compute with float16: SQNR of" in done.summary()
    assert _weights(half) < 0.55 * _weights(wide)

    pictures = np.load(FIXTURES / "digits" / "digits_test.npz")["x"][:4]
    for picture in pictures.astype(np.float32):
        sample = {"input": picture[None]}
        results = []
        for path in (half, wide):
            with Bundle.open(path) as bundle, Session(bundle) as session:
                results.append(session.run(sample)["output"])
        got, want = results
        assert not np.array_equal(got, want)
        assert np.abs(got - want).max() <= 0.01 * np.ptp(want)
        assert got.argmax() == want.argmax()


@pytest.mark.slow
def test_the_float_tail_of_an_int8_network_is_float16() -> None:
    """Only what stays float has another width: int8 layers are as they were."""
    ops = [op.outputs[0].name for op in lower(DIGITS, CompileOptions()).model.graph.ops]
    options = CompileOptions(
        target="pi5",
        calibrate=CALIBRATION,
        quantize="fast",
        float_ops=ops[len(ops) // 2 :],
        float_width="16",
    )
    graph = lower(DIGITS, options).model.graph
    widths = [op.outputs[0].type.dtype for op in graph.ops]
    runs = [width for width, _ in groupby(widths)]
    assert runs == ["int8", "float32", "float16", "float32"]
    assert sum(op.kind == "cast" for op in graph.ops) == 2


def _fading(path: Path) -> Path:
    """Writes a network with values of some 1e-7 behind a depthwise convolution."""
    net = Net("fading", (1, 3, 32, 32))
    x = net.conv("images", 32, 3)
    for shape, factor in (((32, 1, 3, 3), 1e-7), ((32, 32, 1, 1), 1e6)):
        weights = factor * net.rng.normal(size=shape)
        name = net.const(weights.astype(np.float32))
        x = net.op("Conv", x, name, channels=32, group=32 // shape[1])
    return net.save(path, x)


@pytest.mark.slow
@pytest.mark.parametrize("width", ["auto", "16"])
def test_values_too_small_for_float16_stay_float32(width: str, tmp_path: Path) -> None:
    model = _fading(tmp_path / "m.onnx")
    done = edgec.compile(model, "pi5", tmp_path / "m.edgec", float_width=width)
    choice = done.network.lowered.model.float16
    assert choice is not None
    assert done.network.verification.float16 == ()
    (agreement,) = done.network.verification.whole.values()
    assert agreement.sqnr_db > 40


@pytest.mark.slow
def test_ops_that_verification_refuses_in_float16_are_float32_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The samples of the choice did not show how small values become."""
    monkeypatch.setattr(choose, "MIN_MAGNITUDE", 0.0)
    monkeypatch.setattr(Float16Choice, "is_small", True)
    model = _fading(tmp_path / "m.onnx")
    done = edgec.compile(model, "pi5", tmp_path / "m.edgec")
    summary = " ".join(done.summary().split())
    assert done.network.verification.float16 == ()
    assert "float32 after verification, as float16 has too few bits: /Conv_1" in summary


@pytest.mark.slow
def test_a_failure_that_no_op_explains_leaves_all_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_checks, "FLOAT16_TOLERANCE", 0.0)
    done = edgec.compile(DIGITS, "pi5", tmp_path / "d.edgec")
    assert done.network.lowered.model.float16 is None
    assert "floats stay float32: with float16 the outputs cannot" in done.summary()


@pytest.mark.slow
def test_what_float16_costs_is_a_warning_where_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Near 1000 float16 has steps of a half, which is all that these values have."""
    net = Net("m", (1, 3, 32, 32))
    x = net.op("Add", net.conv("images", 32, 3), net.const(np.float32(1000)))
    ones, zeros = (net.const(np.full(32, v, np.float32)) for v in (1, 0))
    x = net.op("InstanceNormalization", x, ones, zeros, channels=32)
    model = net.save(tmp_path / "m.onnx", net.conv(x, 32, 3))
    monkeypatch.setattr(segment_checks, "FLOAT16_TOLERANCE", 1e-7)
    done = edgec.compile(model, "pi5", tmp_path / "m.edgec", float_width="16")
    assert done.network.lowered.model.float16 is not None
    summary = " ".join(done.summary().split())
    assert "which is more than --float auto allows (47 dB, 1%)" in summary
    assert "warning: in float16, " in summary
