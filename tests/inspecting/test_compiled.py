"""What `edgec inspect` says of files of edgetpu_compiler."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from edgec_runtime.edgetpu_file.compiled_file import read_compiled
from edgec_runtime.edgetpu_file.executable import ExecutableType

import edgec
from edgec.edgetpu_file.programs import WIDE_BYTES, tiles_of
from edgec.edgetpu_file.reuse.program import places_of
from edgec.errors import EdgecError
from edgec.inspecting.compiled import (
    CompiledInspection,
    facts_of,
    inspect_compiled,
)
from edgec.report.inspect.compiled_page import compiled_page
from edgec.report.inspect.compiled_text import compiled_text
from tests.cli.verbs import edgec as verb
from tests.conftest import SHARED
from tests.edgetpu_file.compiled import files

pytestmark = pytest.mark.shared
COMPILED = SHARED / "edgetpu/compiled"
OTHERS = COMPILED / "ricardodeazambuja+LibrEdgeTPU"


def test_every_file() -> None:
    """Every file is shown in all forms; its parameters are cached once, where no other
    ones are."""
    for name in files():
        path = SHARED / "edgetpu" / name
        inspection = edgec.inspect(path)
        assert isinstance(inspection, CompiledInspection)
        assert inspection.facts.bytes == path.stat().st_size
        (package,) = inspection.facts.packages
        for tile in range(16):
            held = [p for p in package.pieces if tile in tiles_of(p.tiles)]
            end = 0
            for piece in sorted(held, key=lambda p: p.start):
                assert piece.start >= end, f"{name}: pieces overlap on tile {tile}"
                end = piece.start + piece.memory
            assert end <= WIDE_BYTES
        text = compiled_text(inspection.facts)
        assert "What is transferred" in text
        page = compiled_page(inspection)
        assert page.count(">tile ") == 16
        assert json.loads(json.dumps(inspection.to_json()))["compiled_schema"] == 1


def test_the_facts_of_a_file() -> None:
    """Some facts that others have measured or that the compiler's log says."""
    facts = inspect_compiled(OTHERS / "dense_256_edgetpu.tflite").facts
    (package,) = facts.packages
    assert package.cached == 67584
    assert package.streamed == 0
    assert [p.size for p in package.pieces] == [16896] * 4
    assert [p.tiles for p in package.pieces] == [1, 2, 4, 8]
    execution = next(p for p in package.programs if p.type == "execution-only")
    assert execution.narrow == 832
    assert execution.words == 264
    # 256 inputs, 4 in a cycle, on each of the 4 tiles that compute 64 outputs.
    assert execution.steps == 64
    assert execution.tiles == 4
    assert facts.cpu == ()


def test_parameters_that_are_cached_in_another_way() -> None:
    """A program whose parameters go to places that are not understood is shown too."""
    path = OTHERS / "gabor_64x64_p4_edgetpu.tflite"
    data = bytearray(path.read_bytes())
    file = read_compiled(bytes(data), "other")
    caching = file.packages[0].of_type(ExecutableType.PARAMETER_CACHING)
    assert caching is not None
    (receive,) = [
        place
        for place in places_of(file.data, caching)
        if place.instruction.name == "receive_a"
    ]
    # Another tile receives them than they are sent to.
    data[receive.at + 2] ^= 1
    facts = facts_of(read_compiled(bytes(data), "other"), "other")
    assert facts.packages[0].cached == 3200
    assert facts.packages[0].pieces == ()
    assert "places that are not understood" in " ".join(compiled_text(facts).split())


def test_operators_on_the_cpu() -> None:
    """The operators that the compiler left are named in order."""
    name = "google-coral+test_data/posenet_mobilenet_v1_075_353_481_16_quant_decoder"
    facts = inspect_compiled(COMPILED / f"{name}_edgetpu.tflite").facts
    assert facts.cpu == ("CUSTOM:PosenetDecoderOp",)


def test_text_and_file_from_the_command_line(tmp_path: Path) -> None:
    """--assemble makes the file of which --disassemble made a text."""
    source = OTHERS / "gabor_64x64_p4_edgetpu.tflite"
    listing, made = tmp_path / "program.txt", tmp_path / "made.tflite"
    text = verb("inspect", source, "--disassemble", cwd=tmp_path)
    assert text.code == 0, text.err
    listing.write_text(text.out)
    assert verb("inspect", listing, "--assemble", made, cwd=tmp_path).code == 0
    assert made.read_bytes() == source.read_bytes()


def test_damaged(tmp_path: Path) -> None:
    """2,000 damaged files end in a page or in one message (make fuzz-compiled)."""
    check_damaged(tmp_path, 100)


@pytest.mark.sweep(0)
def test_many_damaged(tmp_path: Path) -> None:
    """As `test_damaged`, for more files."""
    check_damaged(tmp_path, 2000)


def check_damaged(folder: Path, count: int) -> None:
    """Check that damaged files end in a page, or in one message with the file's name."""
    rng = random.Random(count)
    small = [data for data in files().values() if len(data) < 150_000]
    path = folder / "damaged.tflite"
    messages = list[str]()
    for _ in range(count):
        data = bytearray(rng.choice(small))
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        for _ in range(rng.randrange(1, 6)):
            if data:
                end = rng.choice((1500, len(data)))
                data[rng.randrange(min(len(data), end))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            inspection = inspect_compiled(path)
            compiled_page(inspection)
            compiled_text(inspection.facts)
            for _ in inspection.listing():
                pass
        except EdgecError as e:
            messages.append(str(e))
    assert len(messages) > count // 10
    assert all(str(path) in message for message in messages)
