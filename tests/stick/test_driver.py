"""Our driver on our stick: its outputs are those of `interp`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.simulation import simulation
from edgec_devices.stick.sources import IndexEntry, SourceNetwork, read_index
from edgec_partitioner.rounding import as_chip
from edgec_runtime import InputError
from edgec_runtime.stick import driver
from numpy.typing import NDArray

from edgec.frontends import read_model
from edgec.ir import Graph, interp
from tests.conftest import SHARED
from tests.stick import driving
from tests.stick.plugged import plugged

pytestmark = [pytest.mark.cc, pytest.mark.shared]
EDGETPU = SHARED / "edgetpu"
Array = NDArray[Any]


def entry(name: str) -> IndexEntry:
    """The file of this name that has a source."""
    return next(e for e in read_index(EDGETPU) if e.name == name and e.source)


def random_inputs(graph: Graph, seed: int) -> list[Array]:
    """Any integers of each input."""
    rng = np.random.default_rng(seed)
    return [
        rng.integers(0, 256, v.type.shape, np.uint8).view(v.type.np_dtype)
        for v in graph.inputs
    ]


def same(found: list[Array], graph: Graph, inputs: list[Array]) -> None:
    """The outputs of a file equal those of its source by interp, as the chip rounds."""
    values = {v.name: given for v, given in zip(graph.inputs, inputs, strict=True)}
    for one, other in zip(found, interp(graph, values).values(), strict=True):
        np.testing.assert_array_equal(one, other)


def source(file: IndexEntry) -> Graph:
    assert file.source is not None
    return as_chip(read_model(EDGETPU / file.source))


PATIENT = driver.StickOptions(patience=60.0, least_patience=60.0)
"""A busy machine does not look like a stall."""


@pytest.mark.parametrize("name", ["dense_256", "mobilenet_v1_0.25_128_quant"])
@pytest.mark.parametrize("super_speed", [True, False])
def test_one_model(name: str, super_speed: bool, tmp_path: Path) -> None:
    file = entry(name)
    graph = source(file)
    options = StickOptions(super_speed=super_speed, firmware=True)
    with Stick.serve(EDGETPU, options) as stick, plugged(stick, tmp_path) as process:
        process.call(driving.open_driver, PATIENT)
        for seed in range(3):
            inputs = random_inputs(graph, seed)
            found = process.call(driving.run, EDGETPU / file.compiled, inputs)
            same(found, graph, inputs)
        counts = process.call(driving.counts)
        assert counts == {"inferences": 3, "cached": 1, "recovered": 0, "warnings": 0}
        process.call(driving.close_driver)


def test_firmware_and_clock(tmp_path: Path) -> None:
    """A stick that was just plugged in gets its firmware."""
    options = driver.StickOptions(clock="max", firmware=str(FIRMWARE_FROM))
    with Stick.serve(EDGETPU) as stick, plugged(stick, tmp_path) as process:
        assert process.call(driving.open_driver, options) == "max"
        assert "takes firmware of 10783 bytes" in " ".join(stick.lines)
        process.call(driving.close_driver)


FIRMWARE_FROM = EDGETPU / "usb/libedgetpu-x86_64.so.1"


def test_models_in_turn(tmp_path: Path) -> None:
    """Parameters are put into the chip again when another model has displaced them."""
    files = [entry("dense_256"), entry("looming_64x64_3x3")]
    graphs = [source(file) for file in files]
    options = StickOptions(firmware=True)
    with Stick.serve(EDGETPU, options) as stick, plugged(stick, tmp_path) as process:
        process.call(driving.open_driver, PATIENT)
        for i in (0, 1, 1, 0, 0):
            inputs = random_inputs(graphs[i], i)
            found = process.call(driving.run, EDGETPU / files[i].compiled, inputs)
            same(found, graphs[i], inputs)
        assert process.call(driving.counts)["cached"] == 3


def test_several_at_once(tmp_path: Path) -> None:
    """Inferences that are submitted together, and kernels without scatter-gather."""
    file = entry("dense_1024")
    graph = source(file)
    options = StickOptions(firmware=True)
    with (
        Stick.serve(EDGETPU, options) as stick,
        plugged(stick, tmp_path, EDGEC_USBFS_CAPABILITIES="0") as process,
    ):
        process.call(driving.open_driver)
        several = [random_inputs(graph, seed) for seed in range(5)]
        found = process.call(driving.run_together, EDGETPU / file.compiled, several)
        for inputs, outputs in zip(several, found, strict=True):
            same(outputs, graph, inputs)


WITH_SOURCES = [
    e
    for e in (read_index(EDGETPU) if (EDGETPU / "compiled").is_dir() else ())
    if e.source and e.name != "keras_lstm_mnist_ptq"
]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("file", WITH_SOURCES, ids=lambda e: Path(e.compiled).stem)
def test_every_file(file: IndexEntry, tmp_path: Path) -> None:
    """Each operator for the Edge TPU gives what its instructions give, or its part of
    the source where these are not understood."""
    assert file.source is not None
    compiled = driving.read(EDGETPU / file.compiled)
    network = SourceNetwork(EDGETPU / file.source)
    options = StickOptions(firmware=True)
    rng = np.random.default_rng(1)
    with Stick.serve(EDGETPU, options) as stick, plugged(stick, tmp_path) as process:
        # interp needs its time for the larger ones
        process.call(driving.open_driver, driver.StickOptions(patience=60.0))
        for number, operator in enumerate(compiled.operators):
            if operator.package is None:
                continue
            inputs = {
                compiled.tensors[i].name: rng.integers(
                    0, 256, driving.shape(compiled.tensors[i]), np.uint8
                )
                for i in operator.inputs
            }
            found = process.call(
                driving.run_operator, EDGETPU / file.compiled, number, inputs
            )
            known = simulation(compiled, operator.package, file.name)
            compute = known or network.part(compiled, operator)
            elements = {name: x.reshape(-1, 1) for name, x in inputs.items()}
            for name, values in compute(elements).items():
                np.testing.assert_array_equal(found[name], values.reshape(-1))


def test_a_program_that_needs_descriptors(tmp_path: Path) -> None:
    file = entry("keras_lstm_mnist_ptq")
    options = StickOptions(firmware=True)
    with Stick.serve(EDGETPU, options) as stick, plugged(stick, tmp_path) as process:
        process.call(driving.open_driver)
        with pytest.raises(InputError) as e:
            process.call(driving.load, EDGETPU / file.compiled)
        assert "its transfers depend on the data" in e.value.what
