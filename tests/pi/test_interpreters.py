"""The scripts of tflite_runtime and pycoral on a Raspberry Pi 4: its Python in an emulated
process, and a whole emulated machine with a stand-in for the Edge TPU.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from edgec_devices.machine import Machine
from edgec_devices.machine.image import image
from edgec_runtime import ToolError

from tests.cli.verbs import edgec
from tests.conftest import ROOT
from tests.interpreters import networks
from tests.interpreters.scripted import Given, prepared
from tests.interpreters.test_scripts import classes_of, names_of, run

pytestmark = [pytest.mark.pi, pytest.mark.slow]
CPU = "cortex-a72"
"""Of a Raspberry Pi 4, with the instructions that it has and no others."""
LIBRARIES = "/usr/lib/aarch64-linux-gnu"


@pytest.fixture(scope="module")
def arm_root(release: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python and numpy of Debian for arm64, taken out of the disk of an emulated
    machine.
    """
    try:
        disk = image(release, full=True).disk
    except ToolError as e:
        pytest.skip(f"no emulated machine: {e}")
    root = tmp_path_factory.mktemp("arm")
    for folder in ("usr/lib", "usr/bin", "etc"):
        (root / folder).mkdir(parents=True)
    _debugfs(disk, f"rdump {LIBRARIES} /usr/lib/python3 {root}/usr/lib")
    _debugfs(disk, f"rdump /etc/alternatives {root}/etc")
    python = _debugfs(disk, "stat /usr/bin/python3").split('link dest: "')[1]
    name = python.split('"')[0]
    _debugfs(disk, f"rdump /usr/lib/{name} {root}/usr/lib")
    _debugfs(disk, f"dump /usr/bin/{name} {root}/usr/bin/python3")
    (root / "usr/bin/python3").chmod(0o755)
    (root / "lib").symlink_to("usr/lib")
    loader = "ld-linux-aarch64.so.1"
    (root / "usr/lib" / loader).symlink_to(f"aarch64-linux-gnu/{loader}")
    return root


def _debugfs(disk: Path, command: str) -> str:
    """Without root: owners of files that it writes are not those of the disk."""
    done = subprocess.run(
        ["/usr/sbin/debugfs", "-R", command, str(disk)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def as_pi4(root: Path, folder: Path, *words: str) -> str:
    """What a script prints in a process with a Raspberry Pi 4's CPU."""
    modules = (ROOT / "runtime", root / "usr/lib/python3/dist-packages")
    variables = {
        "PYTHONPATH": ":".join(map(str, modules)),
        "LD_LIBRARY_PATH": f"{LIBRARIES}/blas:{LIBRARIES}/lapack",
        "EDGEC_CACHE": str(folder / "cache"),
    }
    command = ["qemu-aarch64", "-cpu", CPU, "-L", str(root)]
    for name, value in variables.items():
        command += ["-E", f"{name}={value}"]
    done = subprocess.run(
        [*command, str(root / "usr/bin/python3"), "-B", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.arm
def test_scripts_as_on_a_pi4(arm_root: Path, tmp_path: Path) -> None:
    """The same numbers as here, down to the last digit."""
    prepared(tmp_path, "pi4+coral")
    for words in (Given.TFLITE, Given.CORAL):
        assert as_pi4(arm_root, tmp_path, *words) == run(tmp_path, *words)


def test_scripts_on_a_whole_pi_with_a_stand_in_for_the_stick(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEC_SSH_CONFIG", str(machine.ssh_config))
    prepared(tmp_path, "pi4+coral")
    networks.stand_in_library(tmp_path, "aarch64-linux-gnu.2.31")
    machine.run("rm -rf ~/.edgec ~/scripts && mkdir ~/scripts")
    flashed = edgec(
        "flash",
        tmp_path / "classifier.edgec",
        "--on",
        machine.ssh_url,
        "--with-runtime",
        "--wheel",
        "ai-edge-litert",
        cwd=tmp_path,
    )
    if "connection" in flashed.err.lower():
        pytest.skip(f"no package index: {flashed.err}")
    assert flashed.code == 0, flashed
    _copy(machine, tmp_path)

    # The site of the flashed bundle has the runtime, numpy and LiteRT.
    start = (
        "cd ~/scripts && LD_LIBRARY_PATH=$PWD STAND_IN_LOG=$PWD/log "
        "PYTHONPATH=$(echo ~/.edgec/classifier/site/*/ | tr ' ' ':') python3 "
    )
    # The first import compiles and reads everything, which takes so slow a machine minutes.
    machine.run(f"{start} -c 'import ai_edge_litert.interpreter, edgec_runtime'", 300)
    here = run(tmp_path, *Given.TFLITE)
    assert machine.run(start + " ".join(Given.TFLITE), 300) == here
    words = (*Given.TFLITE, "libedgetpu.so.1")
    assert classes_of(machine.run(start + " ".join(words), 300)) == classes_of(here)
    coral = machine.run(start + " ".join(Given.CORAL), 300)
    assert names_of(coral) == names_of(run(tmp_path, *Given.CORAL))
    assert machine.run("cat ~/scripts/log").count("prepared") == 4


def _copy(machine: Machine, folder: Path) -> None:
    """All files of a folder to ~/scripts."""
    words = ["ssh", "-F", str(machine.ssh_config), machine.alias]
    packed = subprocess.run(
        ["tar", "-C", str(folder), "-c", "."], capture_output=True, check=True
    )
    subprocess.run(
        [*words, "tar -C ~/scripts -x"], input=packed.stdout, check=True, timeout=120
    )
