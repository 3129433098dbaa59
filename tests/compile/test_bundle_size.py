"""What a bundle weighs: weights are in it once, binary, and once more in the .tflite of an Edge TPU segment."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import pytest
from edgec_runtime import Bundle
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
    at = max(range(0, len(weights) - row, row), key=lambda i: len(set(weights[i : i + row])))
    return bundle.path.read_bytes().count(weights[at : at + row])


def test_weights_are_in_a_bundle_once(tmp_path: Path) -> None:
    edgec.compile(DIGITS, "pi4", tmp_path / "d.edgec")
    with Bundle.open(tmp_path / "d.edgec") as bundle:
        m = bundle.manifest
        assert len(m.programs) == len({*m.programs, "linux-aarch64", "linux-armv7", machine_target()})
        own, others = m.weights["linux-aarch64"], {m.weights[t] for t in m.programs if t != "linux-aarch64"}
        assert len(others - {own}) == 1, "plain kernels read the same, the Cortex-A72's their own"
        assert [times(bundle, path) for path in (own, *others)] == [1, 1], "not in a library or a program too"
        constants = sum(s["constants"] for s in json.loads(bundle.read("report/graph.json"))["segments"])
        assert 0.75 * constants < m.files[own].bytes <= constants + 64 * 100
        for name in (*m.programs.values(), *m.libraries.values()):
            names = [s.name for s in ELFFile(io.BytesIO(bundle.read(name))).iter_sections()]
            assert not [n for n in names if n.startswith(".debug") or n == ".symtab"]


def test_an_int8_bundle_has_them_in_its_tflite_too(tmp_path: Path) -> None:
    """In TFLite's order, which is not that of the kernels: so each once."""
    model = FIXTURES / "cartoon" / "cartoon.onnx"
    edgec.compile(
        model, "pi4+coral", tmp_path / "q.edgec", calibrate=FIXTURES / "photos", quantize="fast", preprocess="0_1"
    )
    with Bundle.open(tmp_path / "q.edgec") as bundle:
        assert [s for s in bundle.manifest.segments if s.tflite]
        assert [times(bundle, path) for path in {*bundle.manifest.weights.values()}] == [1, 1]


def test_src_compiles_by_itself_and_runs_with_the_weights(tmp_path: Path) -> None:
    edgec.compile(DIGITS, "host", tmp_path / "d.edgec")
    with Bundle.open(tmp_path / "d.edgec") as bundle:
        for name in bundle.names:
            if name.startswith("src/") or name == "weights.bin":
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_bytes(bundle.read(name))
        assert bundle.manifest.programs.keys() == {machine_target()}
    sources = [*sorted((tmp_path / "src" / machine_target()).glob("*.c")), tmp_path / "src" / "main.c"]
    assert sum(p.stat().st_size for p in sources) < 200_000, "the C is for reading"
    command = ["gcc", "-std=c11", "-O1", "-DEK_PROGRAM", f"-I{tmp_path / 'src'}"]
    for p in sources:
        flags = next((core(name).flags for name in ("x86_64_v3", "x86_64_v4_vnni") if p.stem.endswith(name)), ())
        subprocess.run([*command, *flags, "-c", str(p), "-o", str(tmp_path / f"{p.stem}.o")], check=True)
    subprocess.run(["gcc", *map(str, tmp_path.glob("*.o")), "-lm", "-o", str(tmp_path / "main")], check=True)
    assert subprocess.run([tmp_path / "main"], capture_output=True).returncode == 0


def test_yolov8n_for_the_edge_tpu_is_under_15_mb(tmp_path: Path) -> None:
    model = yolov8n_like(tmp_path / "yolov8n.onnx")
    photos = tmp_path / "photos"
    photos.mkdir()
    for path in sorted((FIXTURES / "photos").glob("*.jpg"))[:2]:
        (photos / path.name).write_bytes(path.read_bytes())
    edgec.compile(model, "pi4+coral", tmp_path / "y.edgec", calibrate=photos, quantize="fast")
    assert (
        tmp_path / "y.edgec"
    ).stat().st_size < 15e6  # weights: of the .tflite, plain, and as the Cortex-A72 reads them
    with Bundle.open(tmp_path / "y.edgec") as bundle:
        text = sum(info.bytes for name, info in bundle.manifest.files.items() if name.startswith("src/"))
        assert text < 1e6
