"""Compiled files on the simulated chip give what their networks give, byte for byte."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from edgec.ir import Value
from edgec.ir.interp import interp
from tests.edgetpu_file.compiled import files
from tests.edgetpu_file.simulated import SimulatedNetwork, compiled, network, refusal_of

pytestmark = pytest.mark.shared
WHOLE = (
    "dense_256",
    "dense_1024",
    "looming_64x64_3x3",
    "looming_128x128_3x3",
    "gabor_64x64_7k_4o_2s",
    "gabor_128x128_7k_4o_2s",
    "gabor_64x64_p4",
    "gabor_128x128_p4",
)
"""Files whose networks have nothing but operations of which the chip's arithmetic is
known."""
COLORS = ("blue", "green", "magenta", "red", "white")
COLOR_FILTERS = tuple(f"color_{c}_{s}x{s}" for s in (64, 128) for c in COLORS)
SOFTMAX = ("bright_16x16", "bright_64x64", *COLOR_FILTERS)
"""Files with a SOFTMAX, whose bytes on the chip are known from the instructions alone."""
INPUTS = 100
"""Of each file in a sweep."""


@cache
def chip(name: str) -> SimulatedNetwork:
    """Return a network on a chip of its own."""
    return SimulatedNetwork(compiled(name), name)


def _group(name: str) -> str:
    """Return what names the networks of which a single case is tried."""
    return re.sub(f"_({'|'.join(COLORS)})_", "_", name)


def cases(names: tuple[str, ...]) -> pytest.MarkDecorator:
    """Return the seeds of inputs of each network: all in a sweep, else one of each.

    Of color filters, which take 2 to 10 seconds an input, it is one of each size.
    """
    return pytest.mark.parametrize(
        ("name", "seed"),
        [
            pytest.param(
                name,
                seed,
                marks=pytest.mark.sweep(1, among=_group(name)),
            )
            for name in names
            for seed in range(INPUTS)
        ],
    )


@cases(WHOLE)
def test_outputs(name: str, seed: int) -> None:
    """The chip's bytes are those of interp with the chip's arithmetic."""
    graph = network(name)
    (value,) = graph.inputs
    x = np.random.default_rng(seed).integers(0, 256, value.type.shape, np.uint8)
    (wanted,) = interp(graph, {value.name: x}).values()
    (result,) = chip(name).run(x)
    np.testing.assert_array_equal(result, wanted.reshape(-1))


@cases(SOFTMAX)
def test_softmax(name: str, seed: int) -> None:
    """The instructions of SOFTMAX give what TFLite's gives, or a step more or less.

    In inputs of a narrow range many elements have a share of the sum. What a color
    filter makes of these bytes is what interp makes of them.
    """
    graph = network(name)
    (value,) = graph.inputs
    (softmax,) = (op.outputs[0] for op in graph.ops if op.kind == "softmax")
    rng = np.random.default_rng(seed)
    for k in range(10 if name == "bright_16x16" else 1):
        width = 256 if (seed + k) % 2 else int(rng.integers(2, 24))
        least = int(rng.integers(0, 257 - width))
        x = rng.integers(least, least + width, value.type.shape, np.uint8)
        results = chip(name).run(x)
        shares = chip(name).softmax(math.prod(softmax.type.shape)).astype(np.int64)

        def compare(of: Value, array: Any, shares: Any = shares) -> None:
            if of is softmax:
                assert np.abs(shares - 128 - array.reshape(-1)).max() <= 1
                array[...] = (shares - 128).reshape(array.shape)

        outputs = interp(graph, {value.name: x}, compare)
        if name not in COLOR_FILTERS:
            assert shares.any()
            continue
        for result, wanted in zip(results, outputs.values(), strict=True):
            np.testing.assert_array_equal(result, wanted.reshape(-1).view(np.uint8))


def test_each_file_is_simulated_or_refused_by_name() -> None:
    """A refusal names an instruction, its opcode and a field."""
    simulated = set[str]()
    for where, data in files().items():
        refusal = refusal_of(data, where)
        assert not refusal or re.search(r"instruction \w+ .*opcode 0x", refusal)
        if not refusal:
            simulated.add(where.rpartition("/")[2].removesuffix("_edgetpu.tflite"))
    assert simulated == {*WHOLE, *SOFTMAX, "bright_128x128"}
