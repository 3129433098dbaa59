"""A compiled file gets other weights of its network, byte for byte as edgetpu_compiler
would have written them, but for the token."""

from __future__ import annotations

import itertools
import json
import random
import struct
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime.edgetpu_file.compiled_file import read_compiled
from edgec_runtime.edgetpu_file.executable import Executable, ExecutableType
from edgec_runtime.edgetpu_file.flatbuffer import Table

from edgec.edgetpu_file.reuse.file import reused
from edgec.edgetpu_file.reuse.layer import OtherNetworkError
from edgec.edgetpu_file.reuse.matching import Match
from edgec.edgetpu_file.reuse.parameters import Store
from edgec.edgetpu_file.reuse.program import Numbers, places_of, steps_of
from edgec.edgetpu_file.reuse.source import read_network
from edgec.errors import InputError
from edgec.ops.edgetpu_law import (
    addition_weights,
    clamps,
    f32,
    mean_multiplier,
    multiplier,
)
from tests.cli.verbs import edgec as verb
from tests.conftest import SHARED
from tests.edgetpu_file.tokens import without_tokens

pytestmark = pytest.mark.shared
COMPILED = SHARED / "edgetpu/compiled"
MODELS = SHARED / "edgetpu/models"
COLOURS = ("red", "green", "blue", "magenta", "white")
OTHERS = "ricardodeazambuja+LibrEdgeTPU"
V2 = "mobilenet_v2_1.0_224_"
RELU6_SCALE = 0.023528477177023888


@cache
def colour(name: str, size: str) -> tuple[bytes, bytes]:
    """Return the network of a colour filter, and what edgetpu_compiler made of it."""
    network = f"libredgetpu_tracker_templates_color_{name}_{size}.tflite"
    compiled = f"color_{name}_{size}_edgetpu.tflite"
    return (
        (MODELS / OTHERS / network).read_bytes(),
        (COMPILED / OTHERS / compiled).read_bytes(),
    )


@cache
def mobilenet(kind: str) -> tuple[bytes, bytes]:
    """Return a MobileNetV2, and what edgetpu_compiler made of it."""
    google = "google-coral+edgetpu"
    return (
        (MODELS / google / f"test_data_{V2}{kind}quant.tflite").read_bytes(),
        (COMPILED / google / f"{V2}{kind}quant_edgetpu.tflite").read_bytes(),
    )


@pytest.mark.parametrize("size", ["64x64", "128x128"])
@pytest.mark.parametrize(("old", "new"), [*itertools.product(COLOURS, repeat=2)])
def test_colour_filters(old: str, new: str, size: str) -> None:
    """Each of five colour filters from each: the 128 x 128 ones stream parameters."""
    network, wanted = colour(new, size)
    made = reused(colour(old, size)[1], network, old, new)
    assert without_tokens(made) == without_tokens(wanted)
    # The driver must not take the parameters of the old network for the new ones.
    tokens = [token(made), token(colour(old, size)[1])]
    assert tokens[0] != tokens[1]


def test_whatever_the_old_file() -> None:
    """Two more colours, whose compiled files are not here: all old files give the same."""
    for size, name in itertools.product(("64x64", "128x128"), ("cyan", "yellow")):
        network = f"libredgetpu_tracker_templates_color_{name}_{size}.tflite"
        data = (MODELS / OTHERS / network).read_bytes()
        assert len({reused(colour(c, size)[1], data, c, name) for c in COLOURS}) == 1


def token(data: bytes) -> int:
    """Return the token of a compiled file."""
    (package,) = read_compiled(data, "file").packages
    return package.executables[0].token


@pytest.mark.parametrize(
    "name",
    [
        *("bright_16x16", "bright_64x64", "bright_128x128", "dense_256", "dense_1024"),
        *("gabor_64x64_7k_4o_2s", "gabor_64x64_p4"),
        *("gabor_128x128_7k_4o_2s", "gabor_128x128_p4"),
        *("mobilenet_v1_0.25_128_quant", "mobilenet_v1_0.5_160_quant"),
        *(f"{V2}quant", f"{V2}inat_insect_quant"),
    ],
)
def test_a_network_from_itself(name: str) -> None:
    """Whole files from their networks: convolutions with one scale and with one for each
    channel, depthwise ones, pools, additions, SOFTMAX on tiles and on the scalar core."""
    index = json.loads((SHARED / "edgetpu/compiled/index.json").read_text())
    entries = [e for e in index if e["name"] == name and e.get("source")]
    assert entries
    for entry in entries:
        network = (SHARED / "edgetpu" / entry["source"]).read_bytes()
        compiled = (SHARED / "edgetpu" / entry["compiled"]).read_bytes()
        made = reused(compiled, network, name, name)
        assert without_tokens(made) == without_tokens(compiled)


def test_softmax_of_another_network() -> None:
    """The last operator of two MobileNet v1 differs in the scale and zero point of its
    inputs alone: with those of the other, its steps and parameters are the other's."""
    old, new = (newer(size) for size in ("0.25_128", "0.5_160"))
    operations = read_network(old[0]).operations
    other = read_network(new[0]).operations[-1]
    match, wanted = (matched(x[1], "input") for x in (old, new))
    for operation in operations[:-1]:
        match.operation(operation)
    source = replace(other.source, name=operations[-1].source.name)
    match.operation(replace(operations[-1], inputs=(source,)))

    steps = [[match.edits.changed[p.at] for p in s.places] for s in match.steps[-9:]]
    for instructions, step in zip(steps, wanted.steps[-9:], strict=True):
        numbers = {Numbers.of(instruction) for instruction in instructions}
        assert numbers == {step.numbers}
    parameters = match.parameters[max(match.parameters)]
    assert len(parameters) == 16_064
    assert parameters in new[1]
    assert parameters not in old[1]


@pytest.mark.parametrize("index", [-5, -3])
def test_softmax_without_a_curve(index: int) -> None:
    """The powers, and the root of their sum, are curves; other steps are refused."""
    network, compiled = newer("0.25_128")
    operations = read_network(network).operations
    match = matched(compiled, "input")
    steps = [*match.steps]
    steps[index] = replace(steps[index], curve=False)
    match.steps = steps
    for operation in operations[:-1]:
        match.operation(operation)
    with pytest.raises(OtherNetworkError, match="are others"):
        match.operation(operations[-1])


def newer(size: str) -> tuple[bytes, bytes]:
    """Return a MobileNet v1, and what a newer edgetpu_compiler made of it."""
    name = f"google-coral+test_data/mobilenet_v1_{size}_quant"
    return (
        (MODELS / f"{name}.tflite").read_bytes(),
        (COMPILED / f"{name}_edgetpu.tflite").read_bytes(),
    )


def test_insects_from_imagenet() -> None:
    """All but the last layers, which have another number of classes: every instruction
    and every parameter."""
    network = read_network(mobilenet("inat_insect_")[0])
    old, new = mobilenet("")[1], mobilenet("inat_insect_")[1]
    (value,) = network.inputs
    match, wanted = matched(old, value.name), matched(new, value.name)
    for operation in network.operations[:-2]:
        match.operation(operation)
    assert network.operations[-2].kind == "FULLY_CONNECTED"

    last = match.steps[match.next_step].places[0].index
    assert last > 1000
    for a, b in zip(match.places[1:last], wanted.places[1:last], strict=True):
        assert match.edits.changed.get(a.at, a.instruction) == b.instruction
    # The parameters stand in the same order in both files.
    assert len(match.parameters) == 52
    shift = wanted.store.pieces[0].start - match.store.pieces[0].start
    size = 0
    for at, data in match.parameters.items():
        assert new[at + shift : at + shift + len(data)] == data
        size += len(data)
    rest = sum(piece.size for piece in match.store.pieces[match.store.next_piece :])
    assert size + rest == 3_900_864


def test_the_factor_of_a_pool() -> None:
    """Of 36 elements of equal scales, it is not the float32 of 1/36 but the next one."""
    name = "mobilenet_v1_0.75_192_quant_cocompiled_with_3quant_edgetpu.tflite"
    data = (COMPILED / "google-coral+test_data" / name).read_bytes()
    (package,) = read_compiled(data, name).packages
    executable = package.of_type(ExecutableType.EXECUTION_ONLY)
    assert executable is not None
    multipliers = {s.numbers.multiplier for s in steps_of(places_of(data, executable))}
    # The scale of RELU6 in all of this family.
    factor = mean_multiplier(36, RELU6_SCALE, RELU6_SCALE)
    assert factor in multipliers
    assert f32(1 / 36) not in multipliers
    assert factor == np.nextafter(np.float32(1 / 36), np.float32(1))


def matched(compiled: bytes, name: str) -> Match:
    """Return the program of a compiled MobileNetV2, whose input has a name, without any
    operator yet."""
    (package,) = read_compiled(compiled, "file").packages
    caching = package.of_type(ExecutableType.PARAMETER_CACHING)
    runs = package.of_type(ExecutableType.EXECUTION_ONLY)
    assert isinstance(runs, Executable)
    places = places_of(compiled, runs)
    zeros = {name: runs.inputs[0].zero_point}
    store = Store.of(compiled, caching, runs)
    return Match(places, steps_of(places), store, zeros, name)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("color_red_64x64", "tracker_templates_color_red_128x128", "another shape"),
        ("color_red_64x64", "tracker_templates_bright_64x64", "another shape"),
        ("bright_64x64", "tracker_templates_bright_16x16", "another shape"),
        ("looming_64x64_3x3", "looming_templates_looming_64x64_3x3", "no parameters"),
        ("dense_256", "templates_dense_1024", "another shape"),
        ("gabor_64x64_p4", "optical_flow_templates_gabor_64x64_7k_4o_2s", "shape"),
    ],
)
def test_refusals(old: str, new: str, message: str) -> None:
    """Another network, or an operator that is not understood, is refused by name."""
    compiled = (COMPILED / OTHERS / f"{old}_edgetpu.tflite").read_bytes()
    network = (MODELS / OTHERS / f"libredgetpu_{new}.tflite").read_bytes()
    with pytest.raises(InputError, match=message) as e:
        reused(compiled, network, "old.tflite", "new.tflite")
    assert e.value.at == "old.tflite"
    assert "new.tflite" in str(e.value)


def test_insects_for_imagenet_are_refused() -> None:
    """Two MobileNetV2 differ in their number of classes."""
    with pytest.raises(InputError, match="another shape"):
        reused(mobilenet("")[1], mobilenet("inat_insect_")[0], "old", "new")


def test_biases_where_there_were_none() -> None:
    """A filter whose biases were zeros, which the compiler leaves out, gets no others."""
    network, compiled = colour("red", "64x64")
    changed = bytearray(network)
    bias = read_network(network).operations[1].needed(2)
    assert bias.data is not None
    assert not np.any(bias.data)
    graph = Table.root(network)
    (at,) = [
        span.start
        for table, tensor in (
            (graph.tables(4)[t.integer(2)], t) for t in graph.tables(2)[0].tables(0)
        )
        if tensor.text(3) == bias.name and (span := table.span(0)) is not None
    ]
    struct.pack_into("<i", changed, at, 5)
    with pytest.raises(InputError, match="has biases"):
        reused(compiled, bytes(changed), "old", "new")


def test_damaged_files() -> None:
    """A damaged file is refused, or differs from the right one where it is damaged."""
    check_damaged(60)


@pytest.mark.sweep(0)
def test_many_damaged_files() -> None:
    """As `test_damaged_files`, for more files (make fuzz-compiled)."""
    check_damaged(2000)


def check_damaged(count: int) -> None:
    """Re-use damaged files, and check what becomes of them."""
    network, wanted = colour("green", "64x64")
    _, old = colour("red", "64x64")
    right = without_tokens(reused(old, network, "old", "new"))
    assert right == without_tokens(wanted)
    rng = random.Random(5)
    refused = list[str]()
    for _ in range(count):
        damaged = bytearray(old)
        places = {rng.randrange(len(old)) for _ in range(rng.randrange(1, 4))}
        places |= {rng.randrange(159_480, 159_480 + 53_808)}
        for at in places:
            damaged[at] ^= 1 << rng.randrange(8)
        try:
            made = reused(bytes(damaged), network, "damaged", "new")
        except InputError as e:
            refused.append(str(e.at))
            continue
        assert len(made) == len(right)
        differ = np.flatnonzero(
            np.frombuffer(without_tokens(made), np.uint8)
            != np.frombuffer(right, np.uint8)
        )
        assert set(differ.tolist()) <= places
    assert 0 < len(refused) < count
    assert set(refused) == {"damaged"}


def test_from_the_command_line(tmp_path: Path) -> None:
    """`edgec compile --reuse` puts the file into the bundle."""
    old = COMPILED / OTHERS / "color_red_64x64_edgetpu.tflite"
    network = MODELS / OTHERS / "libredgetpu_tracker_templates_color_white_64x64.tflite"
    made = verb(
        *("compile", network, "--target", "pi4+coral", "--reuse", old),
        *("-o", "white.edgec", "-q"),
        cwd=tmp_path,
    )
    assert made.code == 0, made.err
    verb("export", "white.edgec", "--tflite", "parts", cwd=tmp_path)
    data = (tmp_path / "parts/seg0_edgetpu.tflite").read_bytes()
    assert without_tokens(data) == without_tokens(colour("white", "64x64")[1])
    shown = verb("inspect", "white.edgec", cwd=tmp_path)
    assert "What is transferred" in shown.out

    other = verb(
        *("compile", network, "--target", "pi4", "--reuse", old, "-o", "x.edgec"),
        cwd=tmp_path,
    )
    assert other.code == 2
    assert "has no Edge TPU" in other.err


def test_the_law_of_the_clamps() -> None:
    """255 becomes 255.00002 for some scales: this was an unexplained flag of six words,
    the last bit of the bounds of a SOFTMAX's input."""
    assert clamps(0.9941176176071167, 0).most == f32(255.00002)
    assert clamps(0.9900000691413879, 0).most == 255.0
    assert clamps(0.25, 128).least == -128.0
    assert clamps(0.023528477177023888, 0, 3).most == 255.0
    assert multiplier(0.5, 0.25, 0.125) == 1.0
    assert addition_weights(1.0, f32(0.3)) == (10, 3)
