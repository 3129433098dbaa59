"""What a bundle weighs: weights are in it once, binary, and once more in the .tflite of
an Edge TPU segment.
"""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Bundle, EdgecError, InputError, Session
from edgec_runtime.device_end.bundles import machine_target
from elftools.elf.elffile import ELFFile

import edgec
from edgec.schedule.cores import core
from tests.networks import yolov8n_like

FIXTURES = Path(__file__).parents[2] / "fixtures"
DIGITS = FIXTURES / "digits" / "digits.onnx"

pytestmark = [pytest.mark.slow, pytest.mark.cc]


def times(bundle: Bundle, path: str, row: int = 64) -> int:
    """How often the most varied bytes of a weights file are in the bundle's files."""
    weights = bundle.read(path)
    at = max(
        range(0, len(weights) - row, row), key=lambda i: len(set(weights[i : i + row]))
    )
    return bundle.path.read_bytes().count(weights[at : at + row])


@pytest.mark.sweep(2)
@pytest.mark.parametrize("also", [(), ("host",), ("armv7",)])
def test_weights_are_in_a_bundle_once(tmp_path: Path, also: tuple[str, ...]) -> None:
    """Once for each core that reads them in an order of its own."""
    edgec.compile(DIGITS, "pi4", tmp_path / "d.edgec", also=also)
    names = {"host": machine_target(), "armv7": "linux-armv7"}
    with Bundle.open(tmp_path / "d.edgec") as bundle:
        m = bundle.manifest
        inside = {t for t, path in m.programs.items() if path in bundle.names}
        assert inside == {"linux-aarch64", *(names[a] for a in also)}
        own = m.weights["linux-aarch64"]
        others = {m.weights[t] for t in inside if t != "linux-aarch64"}
        assert len(others) == len(also)
        assert [times(bundle, path) for path in (own, *others)] == [1] * (
            1 + len(others)
        )
        constants = sum(
            s["constants"]
            for s in json.loads(bundle.read("report/graph.json"))["segments"]
        )
        assert 0.75 * constants < m.files[own].bytes <= constants + 64 * 100
        for name in (*m.programs.values(), *m.libraries.values()):
            names_of_sections = [
                s.name for s in ELFFile(io.BytesIO(bundle.read(name))).iter_sections()
            ]
            assert not [
                n for n in names_of_sections if n.startswith(".debug") or n == ".symtab"
            ]


def test_an_int8_bundle_has_them_in_its_tflite_too(tmp_path: Path) -> None:
    """In TFLite's order, which is not that of the kernels: so each once."""
    model = FIXTURES / "cartoon" / "cartoon.onnx"
    edgec.compile(
        model,
        "pi4+coral",
        tmp_path / "q.edgec",
        calibrate=FIXTURES / "photos",
        quantize="fast",
        preprocess="0_1",
    )
    with Bundle.open(tmp_path / "q.edgec") as bundle:
        assert [s for s in bundle.manifest.segments if s.tflite]
        assert [
            times(bundle, path)
            for path in {*bundle.manifest.weights.values()} & {*bundle.names}
        ] == [1]


def test_the_machine_that_compiled_a_bundle_runs_it_and_no_other_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code for that is in the cache; `also="host"` puts it into the bundle."""
    x = {"input": np.load(FIXTURES / "digits" / "digits_test.npz")["x"][:1]}
    results = []
    for name, also in {"lean": (), "whole": ("host",)}.items():
        edgec.compile(DIGITS, "pi4", tmp_path / f"{name}.edgec", also=also)
        with Session(tmp_path / f"{name}.edgec") as session:
            results.append(session.run(x)["output"])
    # plain kernels in the cache, this machine's own in the bundle: they add in
    # different orders
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-6)
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "another"))
    with Session(tmp_path / "whole.edgec") as session:
        np.testing.assert_array_equal(session.run(x)["output"], results[1])
    with pytest.raises(
        EdgecError, match="stayed in the cache of the machine that compiled it"
    ):
        Session(tmp_path / "lean.edgec").run(x)


def test_a_board_that_has_no_such_code_says_so(tmp_path: Path) -> None:
    for target in ("pi5", "coral-dev-board", "host"):
        with pytest.raises(
            InputError, match=f"a bundle for {target} cannot have code for armv7"
        ):
            edgec.compile(DIGITS, target, tmp_path / "d.edgec", also=["armv7"])


def test_src_compiles_by_itself_and_runs_with_the_weights(tmp_path: Path) -> None:
    edgec.compile(DIGITS, "host", tmp_path / "d.edgec")
    with Bundle.open(tmp_path / "d.edgec") as bundle:
        for name in bundle.names:
            if name.startswith("src/") or name == "weights.bin":
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_bytes(bundle.read(name))
        assert bundle.manifest.programs.keys() == {machine_target()}
    sources = [
        *sorted((tmp_path / "src" / machine_target()).glob("*.c")),
        tmp_path / "src" / "main.c",
    ]
    assert sum(p.stat().st_size for p in sources) < 200_000, "the C is for reading"
    command = ["gcc", "-std=c11", "-O1", "-DEK_PROGRAM", f"-I{tmp_path / 'src'}"]
    for p in sources:
        flags = next(
            (
                core(name).flags
                for name in ("x86_64_v3", "x86_64_v4_vnni")
                if p.stem.endswith(name)
            ),
            (),
        )
        subprocess.run(
            [*command, *flags, "-c", str(p), "-o", str(tmp_path / f"{p.stem}.o")],
            check=True,
        )
    subprocess.run(
        ["gcc", *map(str, tmp_path.glob("*.o")), "-lm", "-o", str(tmp_path / "main")],
        check=True,
    )
    assert subprocess.run([tmp_path / "main"], capture_output=True).returncode == 0


@pytest.mark.sweep(0)
@pytest.mark.parametrize(("target", "megabytes"), [("pi4", 6), ("pi4+coral", 9.5)])
def test_yolov8n_is_small(tmp_path: Path, target: str, megabytes: float) -> None:
    """Its 3.2 M weights once, as the Cortex-A72 reads them, and once more in the
    .tflite of the Edge TPU.
    """
    model = yolov8n_like(tmp_path / "yolov8n.onnx")
    photos = tmp_path / "photos"
    photos.mkdir()
    for path in sorted((FIXTURES / "photos").glob("*.jpg"))[:2]:
        (photos / path.name).write_bytes(path.read_bytes())
    edgec.compile(
        model, target, tmp_path / "y.edgec", calibrate=photos, quantize="fast"
    )
    assert (tmp_path / "y.edgec").stat().st_size <= megabytes * 1e6
    with Bundle.open(tmp_path / "y.edgec") as bundle:
        text = sum(
            info.bytes
            for name, info in bundle.manifest.files.items()
            if name.startswith("src/")
        )
        assert text < 1e6
