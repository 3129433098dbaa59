"""Programs that edgec writes itself are those of edgetpu_compiler where it has written
some, and give what their networks give."""

from __future__ import annotations

import base64
import itertools
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_partitioner.rounding import as_chip
from edgec_runtime.device_end import trial_model
from edgec_runtime.edgetpu_file.compiled_file import read_compiled

from edgec.edgetpu_file.programs import instructions_of
from edgec.edgetpu_file.writing.file import written
from edgec.emit.tflite import write_tflite
from edgec.errors import InputError
from edgec.frontends.tflite import read_tflite
from edgec.ir import Builder, Graph, Quant, TensorType
from edgec.ir.interp import interp
from edgec.ops.matmul import FullyConnected
from edgec.ops.softmax import Softmax
from tests.cli.verbs import edgec as verb
from tests.conftest import SHARED
from tests.edgetpu_file.simulated import SimulatedNetwork, compiled
from tests.edgetpu_file.tokens import without_tokens

MODELS = SHARED / "edgetpu/models/ricardodeazambuja+LibrEdgeTPU"
INPUTS = 5


@pytest.mark.shared
@pytest.mark.parametrize("name", ["dense_256", "dense_1024"])
def test_files_of_edgetpu_compiler(name: str) -> None:
    """The whole file is the same, but for the token."""
    network = (MODELS / f"libredgetpu_templates_{name}.tflite").read_bytes()
    theirs, mine = compiled(name).data, written(network, name)
    assert without_tokens(mine) == without_tokens(theirs)
    assert mine != theirs


def trial_network() -> Graph:
    """Return the network of `doctor`'s trial, with the scales of dense_256."""
    b = Builder("trial")
    scale, out_scale = 0.00784302782267332, 0.01904885843396187
    x = b.input("x", TensorType((1, 256), "int8", Quant.per_tensor(scale, -1)))
    each = Quant((1 / 1024,) * 256, (0,) * 256, 0)
    weights = b.const(np.ones((256, 256), np.int8), "weights", each)
    output = Quant.per_tensor(out_scale, 1)
    b.graph.outputs = [b.add(FullyConnected(), [x, weights], "y", output)]
    return b.graph


def test_the_trial_of_doctor() -> None:
    """It is what edgec writes for its network."""
    trial = zlib.decompress(base64.b64decode(trial_model.COMPILED))
    made = written(write_tflite(trial_network()), "trial")
    assert without_tokens(trial) == without_tokens(made)


@pytest.mark.shared
def test_the_trial_has_the_instructions_of_edgetpu_compiler() -> None:
    trial = zlib.decompress(base64.b64decode(trial_model.COMPILED))
    mine, theirs = read_compiled(trial, "trial"), compiled("dense_256")
    pairs = zip(
        mine.packages[0].executables, theirs.packages[0].executables, strict=True
    )
    for own, other in pairs:
        words = [*instructions_of(mine.data, own)]
        assert words == [*instructions_of(theirs.data, other)]


def chain(sizes: Sequence[int], seed: int, **options: Any) -> Graph:
    """Return a chain of fully connected layers of random int8.

    Args:
        sizes: elements of the input, and of each layer's output
        seed: of the weights, biases, scales and zero points
        options: `biases`, whether there are some; `zero`, the weights' zero point; `act`
    """
    rng = np.random.default_rng(seed)
    b = Builder("chain")
    quant = Quant.per_tensor(0.02, int(rng.integers(-128, 128)))
    x = b.input("x", TensorType((1, sizes[0]), "int8", quant))
    for k, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        weights = rng.integers(-127, 128, (outputs, inputs), np.int8)
        scale = 0.01 / np.sqrt(inputs)
        zero = options.get("zero", 0)
        operands = [x, b.const(weights, f"w{k}", Quant.per_tensor(scale, zero))]
        if options.get("biases"):
            biases = rng.integers(-5000, 5000, outputs).astype(np.int32)
            of_bias = Quant.per_tensor(float(quant.scale[0]) * scale, 0)
            operands.append(b.const(biases, f"b{k}", of_bias))
        quant = Quant.per_tensor(0.013, int(rng.integers(-128, 128)))
        spec = FullyConnected(act=options.get("act", "none"))
        x = b.add(spec, operands, f"y{k}", quant)
    b.graph.outputs = [x]
    return b.graph


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((64, 64), {}),
        ((1024, 1024), {"biases": True}),
        ((300, 10), {"biases": True, "zero": 9}),
        ((9, 1), {"biases": True}),
        ((3, 5, 2), {"biases": True}),
        ((30, 100), {"act": "relu"}),
        ((257, 1000), {"biases": True, "act": "relu6"}),
        ((784, 128, 10), {"biases": True, "act": "relu"}),
        ((16, 700, 65, 1024, 3), {"biases": True}),
        ((40, 200, 200), {"zero": -20}),
    ],
)
def test_chains(sizes: tuple[int, ...], options: Any, tmp_path: Path) -> None:
    """Whatever sizes up to 1024 the layers have, the simulated chip gives their outputs."""
    path = tmp_path / "chain.tflite"
    path.write_bytes(write_tflite(chain(sizes, len(sizes), **options)))
    graph = as_chip(read_tflite(path, {}))
    file = read_compiled(written(path.read_bytes(), "chain"), "chain")
    chip = SimulatedNetwork(file, "chain")
    (value,) = graph.inputs
    limits = np.iinfo(value.type.np_dtype)
    rng = np.random.default_rng(1)
    for _ in range(INPUTS):
        x = rng.integers(limits.min, limits.max + 1, value.type.shape)
        x = x.astype(value.type.np_dtype)
        (wanted,) = interp(graph, {value.name: x}).values()
        (result,) = chip.run(x)
        np.testing.assert_array_equal(result.view(wanted.dtype), wanted.reshape(-1))


def other_operation() -> Graph:
    """Return a layer before an operation that is not written."""
    graph = chain((8, 8), 1)
    b = Builder("other")
    x = b.input("x", graph.inputs[0].type)
    b.graph.outputs = [b.add(Softmax(), [x], "y", Quant.per_tensor(1 / 256, -128))]
    return b.graph


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (other_operation(), "neither FULLY_CONNECTED nor QUANTIZE"),
        (chain((1028, 4), 1), "1028 elements"),
        (chain((1024, *(1024,) * 9), 1), "do not fit"),
    ],
)
def test_what_is_not_written(graph: Graph, why: str) -> None:
    """The message says what, and where."""
    with pytest.raises(InputError, match=why):
        written(write_tflite(graph), "net")


@pytest.mark.shared
def test_from_the_command_line(tmp_path: Path) -> None:
    """`edgec compile --edgetpu-compiler own` puts the file into the bundle, and what is
    not written runs on the CPU."""
    options = ("--target", "pi4+coral", "--edgetpu", "all", "--edgetpu-compiler", "own")
    network = MODELS / "libredgetpu_templates_dense_256.tflite"
    made = verb("compile", network, *options, "-o", "dense.edgec", "-q", cwd=tmp_path)
    assert made.code == 0, made.err
    verb("export", "dense.edgec", "--tflite", "parts", cwd=tmp_path)
    data = (tmp_path / "parts/seg0_edgetpu.tflite").read_bytes()
    assert without_tokens(data) == without_tokens(compiled("dense_256").data)

    filters = MODELS / "libredgetpu_optical_flow_templates_gabor_64x64_p4.tflite"
    other = verb("compile", filters, *options, "-o", "gabor.edgec", cwd=tmp_path)
    assert other.code == 0, other.err
    assert "conv2d" in other.out
    assert "edgec writes programs of int8 fully connected layers alone" in other.out
