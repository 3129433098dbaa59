"""The program of a bundle on our stick: it is linked dynamically here, so that usbfs can be
replaced; those that edgec makes are static.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import time
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_devices.flash import CHECK_RUNS, flash
from edgec_devices.options import FlashOptions
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.faults import Fault, Phase, What
from edgec_devices.stick.programs import ProgramBook
from edgec_devices.stick.sources import IndexEntry, add_compiled
from edgec_runtime.bundle.archive import EDGETPU_FILE
from edgec_runtime.device_end.bundles import executed, program_path
from edgec_runtime.stick import firmware

import edgec
from tests import builds
from tests.conftest import ROOT
from tests.stick.bundles import compiled_bundle
from tests.stick.plugged import environment
from tests.stick.test_driver import (
    EDGETPU,
    FIRMWARE_FROM,
    entry,
    random_inputs,
    same,
    source,
)
from tests.toolchain.stand_in_edgetpu_compiler import StandInEdgetpuCompiler
from tests.waiting import until

DIGITS = ROOT / "fixtures/digits"
pytestmark = [pytest.mark.cc, pytest.mark.shared]
FIRMWARE = {firmware.VARIABLE: str(FIRMWARE_FROM)}
SMALL, LONGER = entry("dense_256"), entry("mobilenet_v1_0.25_128_quant")


@pytest.fixture(scope="module")
def program() -> Path:
    return unpacked(SMALL)


def unpacked(file: IndexEntry) -> Path:
    """The program of a compiled file's bundle."""

    def make(folder: Path) -> None:
        unpack(compiled_bundle(file, "cc"), folder)

    return builds.once(f"stick {file.compiled}", make) / program_path()


def unpack(bundle: Path, folder: Path) -> Path:
    """Write the files that a device executes; the program has edgetpu.bin beside it."""
    with zipfile.ZipFile(bundle) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        for path, part in executed(manifest).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(archive.read(part.source))
            (folder / path).chmod(0o755)
    program = folder / program_path()
    assert program.with_name(Path(EDGETPU_FILE).name).is_file()
    return program


def run(
    program: Path,
    folder: Path,
    variables: dict[str, str],
    *options: str,
    file: IndexEntry = SMALL,
) -> tuple[dict[str, Any], str]:
    """The report of inferences whose result is right, and what was said."""
    graph = source(file)
    inputs = random_inputs(graph, 5)
    (given,) = inputs
    np.save(folder / "in.npy", given)
    command = [str(program), "--json", "--input", str(folder / "in.npy"), *options]
    done = subprocess.run(
        [*command, "--output", str(folder / "out")],
        env=variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    same([np.load(folder / "out/output0.npy")], graph, inputs)
    return json.loads(done.stdout), done.stderr


def backend(report: dict[str, Any]) -> str:
    (segment,) = report["segments"]
    return str(segment["backend"])


def test_it_uses_the_stick(program: Path, tmp_path: Path) -> None:
    """From the boot on; the chip sleeps afterwards."""
    with (
        Stick.serve(EDGETPU) as stick,
        environment(stick, tmp_path, **FIRMWARE) as variables,
    ):
        report, said = run(program, tmp_path, variables, "--runs", "20")
        assert said == "Edge TPU: the stick at the port 1-1\n"
        assert backend(report) == "delegate"
        assert sum("packet input" in line for line in stick.lines) == 21
        assert sum("packet parameters" in line for line in stick.lines) == 1

        variables["EDGEC_EDGETPU_DRIVER"] = "none"
        report, said = run(program, tmp_path, variables)
        assert (said, backend(report)) == ("", "c")


def test_without_a_stick_it_says_so(program: Path, tmp_path: Path) -> None:
    report, said = run(program, tmp_path, {})
    assert said == (
        "Edge TPU: no stick is plugged in; its segments run as C until it is back\n"
    )
    assert backend(report) == "c"


def test_without_firmware_it_says_so(program: Path, tmp_path: Path) -> None:
    (tmp_path / "libedgetpu.so.1").symlink_to(FIRMWARE_FROM)
    (tmp_path / "damaged").write_bytes(bytes(10783))
    os.mkfifo(tmp_path / "pipe")
    nowhere = {"EDGEC_CACHE": str(tmp_path / "cache"), firmware.VARIABLE: ""}
    with Stick.serve(EDGETPU) as stick, environment(stick, tmp_path) as variables:
        report, said = run(program, tmp_path, {**variables, **nowhere})
        assert said.startswith("Edge TPU: its firmware is in no libedgetpu")
        assert backend(report) == "c"
        # A name is no pattern.
        for name in ("damaged", "pipe", "nothing", "lib*"):
            given = {firmware.VARIABLE: name}
            report, said = run(program, tmp_path, {**variables, **given})
            assert said.startswith(f"Edge TPU: {name} does not have its firmware; ")
            assert backend(report) == "c"


def test_it_goes_on_when_the_stick_is_unplugged(tmp_path: Path) -> None:
    """And uses the stick again when it is back, which it looks for once a second."""
    program = unpacked(LONGER)
    with (
        Stick.serve(EDGETPU, StickOptions(firmware=True)) as stick,
        environment(stick, tmp_path, **FIRMWARE) as variables,
    ):
        stick.plan([Fault(What.UNPLUG, Phase.INPUT, 3, absence_s=0.1)])
        options = "--runs", "10000", "--seconds", "4"
        report, said = run(program, tmp_path, variables, *options, file=LONGER)
        first, lost = said.splitlines()
        assert first == "Edge TPU: the stick at the port 1-1"
        assert lost.endswith("its segments run as C until it is back")
        assert backend(report) == "c"
        lines = stick.lines
        assert sum("packet parameters" in line for line in lines) == 2
        assert lines.count("appears as 18d1:9302") == 2


CONSTANTS_AT, GRAPH_AT = 156, 160
"""Bytes of edgetpu.bin (csrc/stick_file.h)."""


def changed(file: bytes, at: int) -> bytes:
    """edgetpu.bin with another byte, and the CRC-32 of that."""
    rest = bytearray(file[24:])
    rest[at - 24] ^= 1
    return file[:16] + struct.pack("<I", zlib.crc32(rest)) + file[20:24] + rest


def test_a_file_of_another_bundle(program: Path, tmp_path: Path) -> None:
    copy = tmp_path / "main"
    copy.write_bytes(program.read_bytes())
    copy.chmod(0o755)
    (tmp_path / "weights.bin").write_bytes(
        program.with_name("weights.bin").read_bytes()
    )
    file = program.with_name("edgetpu.bin").read_bytes()
    for damaged, what in (
        (file[:-1] + bytes([file[-1] ^ 1]), "is damaged or of another edgec"),
        (file[:100], "is damaged or of another edgec"),
        (b"", "is damaged or of another edgec"),
        (file[:8] + b"\xff" + file[9:], "is damaged or of another edgec"),
        (changed(file, CONSTANTS_AT), "is of another model"),
        (changed(file, GRAPH_AT), "is of another model"),
    ):
        (tmp_path / "edgetpu.bin").write_bytes(damaged)
        done = subprocess.run([copy], capture_output=True, text=True, env={})
        assert done.returncode == 2
        assert what in done.stderr
        assert (
            "hint: take the program and edgetpu.bin from the same bundle" in done.stderr
        )


@pytest.mark.parametrize(
    ("variable", "what"),
    [
        ("EDGEC_EDGETPU_DRIVER", 'there is no driver "hihg"'),
        ("EDGEC_EDGETPU_CLOCK", 'the Edge TPU has no clock "hihg"'),
    ],
)
def test_a_wrong_variable(variable: str, what: str, program: Path) -> None:
    done = subprocess.run(
        [program], capture_output=True, text=True, env={variable: "hihg"}
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"error: {what}"
    assert f"hint: set {variable} to " in done.stderr


def test_a_bundle_of_edgec(tmp_path: Path) -> None:
    """From an ONNX file to a program whose segments run on the stick."""
    compiler = StandInEdgetpuCompiler(tmp_path / "compiler")
    done = edgec.compile(
        DIGITS / "digits.onnx",
        "host+coral",
        tmp_path / "digits.edgec",
        calibrate=DIGITS / "digits_calibration.npz",
        edgetpu="all",
        quantize="fast",
        edgetpu_compiler=str(compiler.program),
        cc="cc",
    )
    program = unpack(done.path, tmp_path)
    book = ProgramBook()
    with zipfile.ZipFile(done.path) as bundle:
        names = [n for n in bundle.namelist() if n.endswith("_edgetpu.tflite")]
        for name in names:
            plain = name.replace("_edgetpu", "")
            for member in (name, plain):
                bundle.extract(member, tmp_path)
            add_compiled(book, tmp_path / name, tmp_path / plain)
    image = np.load(DIGITS / "digits_test.npz")["x"][:1].astype(np.float32)
    np.save(tmp_path / "in.npy", image)
    outputs = []
    with (
        Stick.serve(book, StickOptions(firmware=True)) as stick,
        environment(stick, tmp_path) as variables,
    ):
        for driver in ("auto", "none"):
            out = tmp_path / driver
            variables["EDGEC_EDGETPU_DRIVER"] = driver
            command = [str(program), "--json", "--input", str(tmp_path / "in.npy")]
            ran = subprocess.run(
                [*command, "--output", str(out)], env=variables, capture_output=True
            )
            assert ran.returncode == 0, ran.stderr
            report = json.loads(ran.stdout)
            backends = {s["place"]: s["backend"] for s in report["segments"]}
            assert backends["edgetpu"] == ("delegate" if driver == "auto" else "c")
            outputs.append(np.load(out / "output0.npy"))
    assert names
    np.testing.assert_array_equal(*outputs)


def test_a_flashed_program_uses_the_stick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The health gate, and what a service runs."""
    with (
        Stick.serve(EDGETPU, StickOptions(firmware=True)) as stick,
        environment(stick, tmp_path, EDGEC_ROOT=str(tmp_path / "root")) as variables,
    ):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        options = FlashOptions(app="one", health="p95<=30s")
        (outcome,) = flash(compiled_bundle(SMALL, "cc"), ["local:"], options)
        assert outcome.ok, outcome
        assert sum("packet input" in line for line in stick.lines) > CHECK_RUNS
        program = tmp_path / "root/one/current" / program_path()
        report, said = run(program, tmp_path, variables)
        assert said == "Edge TPU: the stick at the port 1-1\n"
        assert backend(report) == "delegate"


def runs(stick: Stick, events: int) -> bool:
    """Whether the stick has sent so many events."""
    return stick.lines.count("event 4") >= events


def test_a_program_that_is_stopped_and_ended(tmp_path: Path) -> None:
    """SIGSTOP and SIGCONT at random moments change no result; SIGTERM ends it, and the next
    one uses the stick, whose chip was left as it was.
    """
    program = unpacked(LONGER)
    moments = random.Random(0)
    graph = source(LONGER)
    np.save(tmp_path / "in.npy", random_inputs(graph, 5)[0])
    command = [str(program), "--input", str(tmp_path / "in.npy"), "--json"]
    with (
        Stick.serve(EDGETPU, StickOptions(firmware=True)) as stick,
        environment(stick, tmp_path) as variables,
    ):
        for end in (False, True, False):
            before = stick.lines.count("event 4")
            running = subprocess.Popen(
                [*command, "--runs", "10000", "--seconds", "3", "--output", "out"],
                env=variables,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            until(partial(runs, stick, before + 3), "it runs")
            for _ in range(10):
                running.send_signal(signal.SIGSTOP)
                time.sleep(moments.uniform(0, 0.05))
                running.send_signal(signal.SIGCONT)
                time.sleep(moments.uniform(0, 0.02))
            if end:
                running.terminate()
            out, said = running.communicate(timeout=60)
            assert said == "Edge TPU: the stick at the port 1-1\n"
            assert running.returncode == (-signal.SIGTERM if end else 0)
            if not end:
                assert backend(json.loads(out)) == "delegate"
                result = [np.load(tmp_path / "out/output0.npy")]
                same(result, graph, random_inputs(graph, 5))
