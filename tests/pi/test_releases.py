"""Each release of Debian that is emulated: a bundle and LiteRT flashed, run, timed and
looked at there; a package.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.device import device_for
from edgec_devices.machine import Machine
from edgec_devices.machine.debian import RELEASES
from edgec_devices.package import package, write
from edgec_runtime import Bundle, write_bundle

from tests.cli.verbs import edgec
from tests.conftest import whole_machine
from tests.runtime import tiny_model
from tests.webcam.conftest import compiled

pytestmark = [pytest.mark.pi, pytest.mark.slow]
PYTHON = {"trixie": "3.13", "bookworm": "3.11"}
IMPORTS = """
import sys
sys.path[:0] = sys.argv[1:]
import ai_edge_litert.interpreter, numpy
print(ai_edge_litert.interpreter.Interpreter.__name__, numpy.arange(4).sum(), numpy.__file__.startswith("/home/pi/"))
"""


@pytest.fixture(scope="module", params=RELEASES)
def pi(
    request: pytest.FixtureRequest,
    release: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Machine, str]]:
    """The machine that other tests have, and one of each other release."""
    if request.param == release:
        yield request.getfixturevalue("machine"), release
    else:
        with whole_machine(
            tmp_path_factory.mktemp("machine"), request.param
        ) as machine:
            yield machine, request.param


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(
        tmp_path_factory.mktemp("bundle"),
        "relu",
        "Relu",
        (1, 3, 24, 32),
        "image",
        "pi4",
    )


@pytest.mark.sweep(0)
def test_a_bundle_and_litert_on_each_release(
    pi: tuple[Machine, str],
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, release = pi
    monkeypatch.setenv("EDGEC_SSH_CONFIG", str(machine.ssh_config))
    on = ("--on", machine.ssh_url)
    assert f"VERSION_CODENAME={release}\n" in machine.run("cat /etc/os-release")
    assert machine.facts()["release"] == release

    machine.run("rm -rf ~/.edgec")
    flashed = edgec(
        "flash",
        bundle,
        *on,
        "--with-runtime",
        "--wheel",
        "ai-edge-litert",
        cwd=tmp_path,
    )
    if "connection" in flashed.err.lower():
        pytest.skip(f"no package index: {flashed.err}")
    assert flashed.code == 0, flashed
    said = machine.run(
        f"python3 -B - ~/.edgec/relu/site/*/ <<'END'\n{IMPORTS}\nEND", 120
    )
    assert said.split() == ["Interpreter", "6", "True"]

    seen = json.loads(edgec("status", *on, "--json", cwd=tmp_path).out)[0]["facts"]
    assert seen["python"].startswith(PYTHON[release] + ".")
    assert release in seen["os"]
    x = np.random.default_rng(7).standard_normal((1, 3, 24, 32)).astype(np.float32)
    with Bundle.open(bundle) as opened:
        found = device_for(machine.ssh_url).run(opened, {"x": x})
    np.testing.assert_array_equal(found["y"], np.maximum(x, 0))

    checked = {
        f["name"]: f
        for f in json.loads(edgec("doctor", *on, "--json", cwd=tmp_path).out)[
            "findings"
        ]
    }
    assert release in checked["system"]["seen"]
    timed = edgec(
        "bench", bundle, *on, "--runs", "20", "--json", "bench.json", cwd=tmp_path
    )
    assert timed.code == 0, timed
    assert (
        json.loads((tmp_path / "bench.json").read_text())["device"]["emulated"] is True
    )


@pytest.mark.sweep(0)
def test_a_package_on_each_other_release(
    pi: tuple[Machine, str], release: str, tmp_path: Path
) -> None:
    """Of a program alone, which needs no numpy; test_package.py does more on the
    machine that all tests have.
    """
    machine, own = pi
    if own == release:
        pytest.skip("tests/devices/test_package.py installs packages there")
    program = tiny_model.build_program(tmp_path, "linux-aarch64")
    write_bundle(
        tmp_path / "tiny.edgec", *tiny_model.parts(None, {"linux-aarch64": program})
    )
    path = write(
        package(tmp_path / "tiny.edgec", app="released", version="1.0"), tmp_path
    )
    with path.open("rb") as f:
        copy = [
            "ssh",
            "-F",
            str(machine.ssh_config),
            machine.alias,
            f"cat > {path.name}",
        ]
        subprocess.run(copy, stdin=f, check=True, timeout=120)
    machine.run(f"sudo dpkg -i {path.name}", 300)
    assert machine.run("systemctl is-enabled edgec-released").strip() == "enabled"
    machine.run("echo 'COMMAND=\"sleep 1000\"' | sudo tee /etc/default/edgec-released")
    machine.run("sudo systemctl restart edgec-released")
    assert machine.run("systemctl is-active edgec-released").strip() == "active"
    machine.run("sudo dpkg -P edgec-released", 300)
