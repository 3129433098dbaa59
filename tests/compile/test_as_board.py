"""A bundle for a board is verified as that board's code, and says so where it could not
be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.links.emulated import Emulated
from edgec_runtime import Bundle, Session, noise_inputs

import edgec
from edgec.compiler import verify
from edgec.emit import sources
from edgec.emit.c import CSource, segment_source
from edgec.emit.weights import WeightsFile
from edgec.errors import EdgecError
from edgec.ir import Graph
from edgec.schedule.cores import Core
from edgec.schedule.variant import Rules
from tests.conftest import ROOT

DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
CALIBRATION = DIGITS.with_name("digits_calibration.npz")
HOW = "cortex-a72 code"


def patched(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """The C for a Cortex-A72 is changed; that for others, which is tried on this
    machine, is right.
    """

    def broken(
        graph: Graph, name: str, core: Core, weights: WeightsFile, rules: Rules
    ) -> CSource:
        source = segment_source(graph, name, core, weights, rules=rules)
        if core.name != "cortex_a72":
            return source
        text = change(source.text)
        assert text != source.text
        return replace(source, text=text)

    monkeypatch.setattr(sources, "segment_source", broken)


@pytest.mark.slow
@pytest.mark.arm
def test_a_boards_own_kernels_are_verified(tmp_path: Path) -> None:
    done = edgec.compile(
        DIGITS,
        "pi4+coral",
        tmp_path / "d.edgec",
        calibrate=CALIBRATION,
        quantize="fast",
        edgetpu="all",
    )
    places = {s.name: s.place for s in done.network.lowered.partition.segments}
    assert "edgetpu" in places.values()
    assert {
        c.segment: c.place for c in done.network.verification.segments if c.how == HOW
    } == places
    assert all(
        c.ok and c.samples == 1
        for c in done.network.verification.segments
        if c.how == HOW
    )
    assert f"as {HOW}" in done.summary()
    assert "not run here" not in done.summary()
    with Bundle.open(tmp_path / "d.edgec") as bundle, Session(bundle) as session:
        given = noise_inputs(bundle.manifest)
        there = Emulated(done.network.lowered.target.board).segments(bundle, given)
        session.run(given)
        assert list(there) == [n for s in bundle.manifest.segments for n in s.outputs]
        for name, y in there.items():
            np.testing.assert_array_equal(y, session.tensor(name))


@pytest.mark.slow
@pytest.mark.arm
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda text: text.replace(".low = 0.0f", ".low = 0.5f", 1),
            f"seg0 as {HOW} is 0[.][0-9]+ from the reference",
        ),
        (
            lambda text: text.replace(
                "    return 0;", "    __builtin_trap();\n    return 0;", 1
            ),
            f"as {HOW}, the program ended with status",
        ),
    ],
)
def test_a_kernel_that_is_wrong_on_the_board_alone_leaves_no_bundle(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[str], str],
    said: str,
) -> None:
    patched(monkeypatch, change)
    with pytest.raises(EdgecError, match=f"verification failed: {said}") as e:
        edgec.compile(DIGITS, "pi4", tmp_path / "d.edgec")
    assert e.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.cc
def test_what_was_not_run_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    done = edgec.compile(DIGITS, "pi4", tmp_path / "d.edgec")
    assert {c.how for c in done.network.verification.segments} == {"C"}
    why = (
        f"not run here as {HOW}: qemu-aarch64 is not installed (sudo apt-get "
        "install "
        "qemu-user)"
    )
    assert why in done.summary().splitlines()
    with Bundle.open(tmp_path / "d.edgec") as bundle:
        assert f"not run here {bundle.manifest.verification['not_run']}" == why
    monkeypatch.undo()
    monkeypatch.setattr(verify, "MAX_EMULATED_MACS", 1e5)
    done = edgec.compile(DIGITS, "pi4", tmp_path / "d.edgec")
    assert (
        f"as {HOW}: its 0.0 G MACs are too many for an emulator (edgec run --on "
        "emulated:pi4 runs it)" in " ".join(done.summary().split())
    )
