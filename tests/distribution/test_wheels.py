"""What a person gets who has a wheel and no source tree: every Python, every verb."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import edgec
from tests import builds
from tests.distribution import pythons
from tests.distribution.pythons import ROOT, environment

DIGITS = ROOT / "fixtures" / "digits"
MAX_BYTES = 4_000_000
"""The largest wheel: what a person downloads before the compilers."""

pytestmark = [pytest.mark.slow, pytest.mark.cc]


def _wheels(to: Path) -> None:
    pythons.build(ROOT, to / "edgec")
    pythons.build(ROOT / "runtime", to / "runtime")


@pytest.fixture
def wheel() -> Path:
    """The wheel of edgec."""
    (found,) = (builds.once("wheels", _wheels) / "edgec").glob("*.whl")
    return found


@pytest.fixture
def runtime() -> Path:
    """The wheel for devices alone."""
    (found,) = (builds.once("wheels", _wheels) / "runtime").glob("*.whl")
    return found


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as z:
        return set(z.namelist())


def test_the_wheel_has_what_the_source_tree_has_and_is_small(wheel: Path) -> None:
    found = names(wheel)
    for package in (
        "edgec",
        "partitioner/edgec_partitioner",
        "runtime/edgec_runtime",
        "devices/edgec_devices",
    ):
        folder = ROOT / package
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"{folder.name}/{path.relative_to(folder)}" in found
    for name in ("cartoon/cartoon.onnx", "photos/astronaut_face.jpg"):
        assert f"edgec/_fixtures/{name}" in found
    assert {f"edgec/_fixtures/portraits/cat.{s}" for s in ("png", "json")} <= found
    assert not [name for name in found if name.startswith(("tests/", "benchmarks/"))]
    assert wheel.stat().st_size < MAX_BYTES


def test_the_source_distribution_makes_the_same_wheel(
    wheel: Path, tmp_path: Path
) -> None:
    command = ["hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    python = str(pythons.find(pythons.HERE))
    subprocess.run([python, "-m", *command], cwd=ROOT, check=True, env=pythons.clean())
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    (tree,) = (p for p in tmp_path.iterdir() if p.is_dir())
    again = pythons.build(tree, tmp_path / "again")
    assert again.read_bytes() == wheel.read_bytes()


class Installed:
    """edgec in a clean environment, with a cache and a device of its own."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._python = python
        self._folder = folder
        folder.mkdir()
        self._env = pythons.clean(
            EDGEC_CACHE=str(folder / "cache"),
            EDGEC_ROOT=str(folder / "device"),
        )

    def python(self, code: str) -> str:
        """What a program prints."""
        return self._run([str(self._python), "-c", code])

    def edgec(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """What a verb prints."""
        return self._run([str(self._python.with_name("edgec")), *words], codes)

    def _run(self, command: list[str], codes: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            command, cwd=self._folder, env=self._env, capture_output=True, text=True
        )
        assert done.returncode in codes, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


WHERE = """
import sys, edgec, edgec_devices, edgec_partitioner, edgec_runtime
modules = (edgec, edgec_devices, edgec_partitioner, edgec_runtime)
print(*sys.path, *(m.__file__ for m in modules), sep="\\n")
"""


@pytest.mark.parametrize("version", pythons.HOST)
def test_edgec_works_from_its_wheel(version: str, wheel: Path, tmp_path: Path) -> None:
    """The verbs of a first day, in one environment: making it takes longest."""
    python = environment(tmp_path / "env", version, wheel, ())
    installed = Installed(python, tmp_path / "work")

    *paths, a, b, c, d = installed.python(WHERE).splitlines()
    assert all(file.startswith(str(tmp_path / "env")) for file in (a, b, c, d))
    assert not [p for p in paths if Path(p).is_relative_to(ROOT) and "venv" not in p]

    doctor = json.loads(installed.edgec("doctor", "--json", codes=(0, 1)))
    assert doctor
    if shutil.which("qemu-aarch64"):
        said = installed.edgec("demo", "--out", "demo")
        assert "before_after.png" in said
        assert (tmp_path / "work" / "demo" / "before_after.png").is_file()
    assert "models:faces" in installed.edgec("models")

    installed.edgec("compile", str(DIGITS / "digits.onnx"), "-o", "digits.edgec", "-q")
    assert "digits, a network for host" in installed.edgec("inspect", "digits.edgec")
    assert "flashed" in installed.edgec("flash", "digits.edgec", "--on", "local:")
    status = json.loads(installed.edgec("status", "--on", "local:", "--json"))
    assert "digits" in json.dumps(status)


def _digits(to: Path) -> None:
    edgec.compile(DIGITS / "digits.onnx", "host", to / "digits.edgec")


INFER = """
import sys, numpy, edgec_runtime
from edgec_runtime import Session
assert not [m for m in sys.modules if m.split(".")[0] in ("PIL", "edgec", "onnx")]
with Session(sys.argv[1]) as session:
    x = numpy.load(sys.argv[2])["x"]
    for row in x[:20]:
        (y,) = session.run({session.inputs[0].name: row[None]}).values()
        print(int(y.argmax()))
"""


INTERRUPTED = """
import random, signal, sys, numpy
from edgec_runtime import Session
seed, hangs = random.Random(0), False
def alarm(number, frame):
    raise AssertionError("it hangs") if hangs else KeyboardInterrupt
signal.signal(signal.SIGALRM, alarm)
with Session(sys.argv[1]) as session:
    x = numpy.load(sys.argv[2])["x"][:1]
    def run():
        return session.run({session.inputs[0].name: x})
    with session.stream(x for _ in iter(int, 1)) as shots:
        for call in (run, lambda: next(shots)) * 2000:
            hangs = False
            try:
                signal.setitimer(signal.ITIMER_REAL, seed.uniform(2e-5, 2e-3), 1)
                while True:
                    call()
            except KeyboardInterrupt:
                hangs = True
                signal.setitimer(signal.ITIMER_REAL, 30)
            call()
            signal.setitimer(signal.ITIMER_REAL, 0)
"""
"""Each Python has its own steps between which a Ctrl-C can come."""


@pytest.mark.parametrize("version", sorted({*pythons.DEVICE, pythons.HERE}))
def test_the_runtime_runs_a_bundle_with_numpy_alone(
    version: str, runtime: Path, tmp_path: Path
) -> None:
    python = environment(tmp_path / "env", version, runtime, ("numpy",))
    bundle = builds.once("wheel digits", _digits) / "digits.edgec"
    data = DIGITS / "digits_test.npz"

    def run(code: str) -> str:
        done = subprocess.run(
            [str(python), "-c", code, str(bundle), str(data)],
            cwd=tmp_path,
            env=pythons.clean(EDGEC_CACHE=str(tmp_path / "cache")),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    labels = np.load(data)["y"][:20]
    found = [int(line) for line in run(INFER).split()]
    assert sum(found == labels) >= 19
    run(INTERRUPTED)
