"""Google's libedgetpu, unmodified, on our stick: outputs equal the source's by interp."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.descriptors import FIRMWARE
from edgec_devices.stick.faults import Fault, Phase, What
from edgec_devices.stick.programs import ProgramBook, stated_pattern
from edgec_devices.stick.rates import HIGH_SPEED
from edgec_devices.stick.simulation import is_quick
from edgec_devices.stick.sources import IndexEntry, add_compiled, read_index
from edgec_partitioner.rounding import as_chip
from edgec_runtime import DeviceError
from edgec_runtime.device_end import facts, trial_model
from edgec_runtime.edgetpu_file.compiled_file import CompiledFile, read_compiled
from edgec_runtime.edgetpu_file.executable import ExecutableType

from benchmarks import libedgetpu_runs
from edgec.frontends.tflite import read_tflite
from edgec.ir import Calls, Value, interp
from tests.conftest import ROOT
from tests.edgetpu_file.simulated import SimulatedNetwork, refusal_of
from tests.stick import driving
from tests.stick.bundles import compiled_bundle
from tests.stick.cutting import cut
from tests.stick.plugged import Plugged
from tests.stick.real_stack import (
    EDGETPU,
    LIBRARY,
    OLD_LIBRARY,
    Array,
    Call,
    run,
    variables,
)

pytestmark = [pytest.mark.cc, pytest.mark.shared, pytest.mark.slow]

RUNNING = StickOptions(firmware=True)
INDEX = read_index(EDGETPU) if EDGETPU.is_dir() else []
LARGE = (
    "bodypix_mobilenet_v1_075_512_512_16_quant_decoder",
    "deeplabv3_mnv2_dm05_pascal_quant",
    "mobilenet_v2_1.0_224_inat_insect_quant",
    "mobilenet_v2_1.0_224_quant",
    "movenet_single_pose_lightning_ptq",
    "posenet_mobilenet_v1_075_353_481_16_quant_decoder",
    "posenet_mobilenet_v1_075_721_1281_16_quant_decoder",
)
"""Networks for which interp takes seconds."""
LSTM = "keras_lstm_mnist_ptq"
TFLITE_RUNTIME = ROOT / ".venv-tflite-runtime" / "bin" / "python"


@dataclass(frozen=True)
class Example:
    """A call with what it must give.

    Attributes:
        file: the compiled file, cut where it has other operators too
        inputs, outputs: in the order of the interpreter
    """

    file: Path
    inputs: list[Array]
    outputs: list[Array]


def entry(name: str) -> IndexEntry:
    """The first file of this name."""
    return next(e for e in INDEX if e.name == name)


def example(of: IndexEntry, seed: int, folder: Path) -> Example:
    """A call with random integers."""
    assert of.source is not None
    path = EDGETPU / of.compiled
    data = path.read_bytes()
    file = read_compiled(data, str(path))
    graph = as_chip(read_tflite(EDGETPU / of.source, {}, opaque=True))
    rng = np.random.default_rng(seed)
    operator = next(o for o in file.operators if o.package is not None)
    taken, given = operator.inputs, operator.outputs
    if len(file.operators) == 1:
        taken, given = file.inputs, file.outputs
    names = {file.tensors[i].name for i in (*taken, *given)}
    inputs = {v.name: drawn(v, rng) for v in graph.inputs}
    seen = {}

    def observe(value: Value, array: Array) -> None:
        if value.name in names:
            seen[value.name] = array.copy()
            if names <= seen.keys():
                raise EnoughError

    with contextlib.suppress(EnoughError):
        interp(graph, inputs, observe)
    if len(file.operators) > 1:
        path = folder / f"cut_{path.name}"
        path.write_bytes(cut(data, str(path)))

    def tensors(indexes: Sequence[int]) -> list[Array]:
        return [stored(file, i, seen[file.tensors[i].name]) for i in indexes]

    arrays, outputs = tensors(taken), tensors(given)
    is_executed = all(is_quick(file, p) for p in file.packages)
    if is_executed and not refusal_of(data, str(path)):
        # The stick executes its instructions: the arithmetic is the chip's.
        simulated = SimulatedNetwork(file, str(path)).run(*arrays)
        outputs = [
            r.view(o.dtype).reshape(o.shape)
            for r, o in zip(simulated, outputs, strict=True)
        ]
    return Example(path, arrays, outputs)


class EnoughError(Exception):
    """All tensors have been seen: what follows need not be computed."""


def drawn(value: Value, rng: np.random.Generator) -> Array:
    """Any integers."""
    limits = np.iinfo(value.type.np_dtype)
    made = rng.integers(int(limits.min), int(limits.max) + 1, value.type.shape)
    return made.astype(value.type.np_dtype)


def stored(file: CompiledFile, index: int, array: Array) -> Array:
    """The tensor as the file has it: edgec has uint8 inside a network as int8."""
    if file.tensors[index].type == 3 and array.dtype == np.int8:
        return (array.astype(np.int16) + 128).astype(np.uint8)
    return array


def check(
    stick: Stick,
    examples: Sequence[Example],
    folder: Path,
    python: str = sys.executable,
) -> str:
    """Make all calls in one process, compare, and return what it wrote."""
    calls = [Call(e.file, e.inputs) for e in examples]
    answer = run(stick, calls, folder, python=python)
    assert answer.code == 0, answer.text
    for expected, outputs in zip(examples, answer.outputs, strict=True):
        for mine, theirs in zip(outputs, expected.outputs, strict=True):
            np.testing.assert_array_equal(mine, theirs, expected.file.name)
    return answer.text


def small() -> list[IndexEntry]:
    """Files with sources that interp computes quickly."""
    return [e for e in INDEX if e.source and e.name not in (*LARGE, LSTM)]


def test_every_small_file(tmp_path: Path) -> None:
    """One process has all of them open, and calls each in turn, twice."""
    examples = [example(e, seed, tmp_path) for seed in range(2) for e in small()]
    assert len(examples) >= 50
    with Stick.serve(EDGETPU, RUNNING) as stick:
        check(stick, examples, tmp_path)
        assert not any("pattern" in line for line in stick.lines)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", LARGE)
def test_large_files(name: str, tmp_path: Path) -> None:
    with Stick.serve(EDGETPU, RUNNING) as stick:
        check(stick, [example(entry(name), 1, tmp_path)], tmp_path)


def test_from_the_boot_loader_at_usb_2(tmp_path: Path) -> None:
    """libedgetpu sends its firmware; outputs come in chunks of 256 bytes."""
    options = StickOptions(super_speed=False, rates=HIGH_SPEED)
    examples = [example(entry("gabor_64x64_p4"), 3, tmp_path)]
    with Stick.serve(EDGETPU, options) as stick:
        check(stick, examples, tmp_path)
        lines = stick.lines
    assert f"appears as {FIRMWARE[0]:04x}:{FIRMWARE[1]:04x}" in lines
    assert lines.count("output 256") == 8


PAIR = ("mobilenet_v1_0.25_128_quant", "mobilenet_v1_0.5_160_quant")


def cached_parameters(of: IndexEntry) -> bytes:
    """What its caching program puts into the chip."""
    data = (EDGETPU / of.compiled).read_bytes()
    (package,) = read_compiled(data, of.compiled).packages
    caching = package.of_type(ExecutableType.PARAMETER_CACHING)
    assert caching is not None
    return caching.parameters.of(data)


@pytest.mark.parametrize("together", [True, False])
def test_two_networks_in_turn(together: bool, tmp_path: Path) -> None:
    """Compiled together they keep their parameters in the chip beside each other;
    compiled alone they take the place of each other at every call."""
    pairs = [
        (name, f"{name}_cocompiled_with_{other}") for name, other in permuted(PAIR)
    ]
    book, examples = ProgramBook(), []
    for name, beside in pairs:
        alone, of = entry(name), entry(beside if together else name)
        # The same parameters: so it is the same network, whose source is at hand.
        assert cached_parameters(alone) == cached_parameters(of)
        known = replace(of, source=alone.source)
        add_compiled(book, EDGETPU / of.compiled, EDGETPU / str(alone.source))
        examples.append(example(known, 4, tmp_path))
    with Stick.serve(book, RUNNING) as stick:
        check(stick, examples * 3, tmp_path)
        sent = sum("packet parameters" in line for line in stick.lines)
    assert sent == (2 if together else 6)


def permuted(pair: tuple[str, str]) -> list[tuple[str, str]]:
    """Each beside the other."""
    return [pair, pair[::-1]]


def test_without_a_source(tmp_path: Path) -> None:
    """The stick gives a stated pattern and says so; some parameters are cached, some are
    sent at every call."""
    of = entry("mobilenet_v1_0.75_192_quant_cocompiled_with_3quant")
    given = np.full((1, 192, 192, 3), 7, np.uint8)
    with Stick.serve(EDGETPU, RUNNING) as stick:
        answer = run(stick, [Call(EDGETPU / of.compiled, [given])] * 3, tmp_path)
        assert answer.code == 0, answer.text
        lines = stick.lines
    for (output,) in answer.outputs:
        assert output.tobytes() == stated_pattern([given.tobytes()], output.size)
    assert sum("its source is not at hand" in line for line in lines) == 3
    assert sum("packet parameters" in line for line in lines) == 1 + 3


def test_a_network_with_state(tmp_path: Path) -> None:
    """Its transfers are not all known before: libedgetpu takes it only with descriptors
    from the device. What it keeps goes to the host and back."""
    of = entry(LSTM)
    assert of.source is not None
    graph = read_tflite(EDGETPU / of.source, {})
    network = Calls(graph)
    rng = np.random.default_rng(5)
    name = graph.inputs[0].name
    inputs = [drawn(graph.inputs[0], rng) for _ in range(3)]
    expected = [next(iter(network({name: x}).values())) for x in inputs]
    calls = [Call(EDGETPU / of.compiled, [x]) for x in inputs]
    with Stick.serve(EDGETPU, RUNNING) as stick:
        refused = run(stick, calls, tmp_path)
        assert "fully deterministic DMA hints" in refused.text
        setting = {"USB_ENABLE_BULK_DESCRIPTORS_FROM_DEVICE": "1"}
        answer = run(stick, calls, tmp_path, environment=setting)
        assert answer.code == 0, answer.text
    for mine, theirs in zip(answer.outputs, expected, strict=True):
        np.testing.assert_array_equal(mine[0], theirs)


@pytest.mark.parametrize("interpreter", ["litert", "tflite-runtime"])
def test_interpreters(
    interpreter: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Today's library works with both. That for an old interpreter finds the stick, and
    fails at the call: nothing before says so.
    """
    python = sys.executable if interpreter == "litert" else str(TFLITE_RUNTIME)
    if not Path(python).exists():
        pytest.skip("no environment of its own")
    update = request.config.getoption("--update-golden")
    names = ("dense_256", "split_concat", "gabor_64x64_p4")
    examples = [example(entry(name), 2, tmp_path) for name in names]
    with Stick.serve(EDGETPU, RUNNING) as stick:
        text = check(stick, examples, tmp_path, python=python)
        libedgetpu_runs.check(libedgetpu_runs.run_of(LIBRARY, text), update)
        calls = [Call(e.file, e.inputs) for e in examples]
        answer = run(stick, calls, tmp_path, library=OLD_LIBRARY, python=python)
    assert answer.code != 0
    assert "EdgeTpuDelegateForCustomOp) failed to invoke" in answer.text
    libedgetpu_runs.check(libedgetpu_runs.run_of(OLD_LIBRARY, answer.text), update)


@pytest.mark.parametrize(
    ("library", "reached"), [(LIBRARY, "done"), (OLD_LIBRARY, facts.CALL)]
)
def test_the_trial_of_doctor(library: Path, reached: str, tmp_path: Path) -> None:
    """It calls the stick, by which the library for an old interpreter is known."""
    path = tmp_path / "trial_edgetpu.tflite"
    path.write_bytes(zlib.decompress(base64.b64decode(trial_model.COMPILED)))
    book = ProgramBook()
    add_compiled(book, path, None)
    with Stick.serve(book, RUNNING) as stick:
        trial = [sys.executable, "-c", facts.TRIAL, facts.MODULES["litert"]]
        done = subprocess.run(
            [*trial, str(library)],
            env={**os.environ, **variables(stick)},
            capture_output=True,
            text=True,
            timeout=facts.TRIAL_S,
        )
    assert done.stdout.split("\n")[-2] == reached, done.stderr
    assert (done.returncode == 0) == (reached == "done")


def test_a_session_with_the_library_for_an_old_interpreter(tmp_path: Path) -> None:
    """It ends in a message with what to do, though only the first call tells."""
    (tmp_path / "libedgetpu.so.1").symlink_to(OLD_LIBRARY)
    bundle = compiled_bundle(entry("dense_256"))
    with Stick.serve(EDGETPU, RUNNING) as stick:
        several = {**os.environ, **variables(stick)}
        several["LD_LIBRARY_PATH"] += f":{tmp_path}"
        process = Plugged(several)
        options = {"driver": "libedgetpu", "tpu": "delegate"}
        try:
            with pytest.raises(DeviceError) as e:
                process.call(driving.open_session, bundle, options)
        finally:
            process.close()
    assert "built for an older TensorFlow" in e.value.what


def test_a_stick_that_is_pulled_out(tmp_path: Path) -> None:
    """What libedgetpu does then: it ends the whole process."""
    faults = (Fault(What.UNPLUG, Phase.INPUT, 2, None),)
    options = StickOptions(firmware=True, faults=faults)
    examples = [example(entry("dense_256"), seed, tmp_path) for seed in range(3)]
    calls = [Call(e.file, e.inputs) for e in examples]
    with Stick.serve(EDGETPU, options) as stick:
        answer = run(stick, calls, tmp_path)
    assert answer.code < 0
    assert len(answer.outputs) == 1
