"""flash --service serve: a unit that serves the active slot, by the wheels beside it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner
from edgec_devices.flash import flash, served
from edgec_devices.options import FlashOptions
from edgec_runtime.device_end import serving
from edgec_runtime.device_end.disk import Disk, Refused
from edgec_runtime.device_end.reception import App
from edgec_runtime.device_end.wheels import WheelSite
from edgec_runtime.errors import InputError
from edgec_runtime.serve import command_line
from edgec_runtime.serve.http_service import PATH
from edgec_runtime.serve.service import ServeSettings
from PIL import Image

from edgec.cli import devices as cli_devices
from fixtures.shapes.pictures import scenes
from tests.devices.test_service import bundle, one, stand_in, told
from tests.shapes import bundle as detector_bundle
from tests.waiting import LIMIT_S

UNIT = "edgec-shapes.service"

pytestmark = pytest.mark.cc


@pytest.fixture
def shapes() -> Path:
    """The bundle of a detector."""
    return detector_bundle()


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEC_UNITS", str(tmp_path / "units"))
    return tmp_path / "units"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


@contextmanager
def started(unit: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """What systemd would start, in an environment without the tests' own paths."""
    command = re.search(r'^Environment="COMMAND=(.*)"$', unit.read_text(), re.M)
    assert command is not None
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with subprocess.Popen(
        command[1].split(" "), cwd=folder, env=kept, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_the_active_slot_is_served(
    shapes: Path,
    root: Path,
    units: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = stand_in(tmp_path, monkeypatch)
    address = f"127.0.0.1:{free_port()}"
    options = FlashOptions(service=f"serve --deepstack {address} --api-key 'a b'")
    said = one(flash(shapes, ["local:"], options))
    assert said.startswith("flashed, slot a, ")
    assert said.endswith(f", {UNIT} runs")
    assert told(log)[-1] == f"systemctl restart {UNIT}"

    text = (units / UNIT).read_text()
    assert "a b" not in text
    assert "EnvironmentFile" not in text
    settings = root / "shapes" / serving.OPTIONS
    words = ["--deepstack", address, "--api-key", "a b"]
    assert json.loads(settings.read_text()) == words
    assert settings.stat().st_mode & 0o777 == 0o600

    # A module of that name in the working folder is not imported.
    (root / "shapes" / "numpy.py").write_text("raise SystemExit(9)")
    with started(units / UNIT, root / "shapes") as process:
        assert process.stdout is not None
        assert address in process.stdout.readline()
        (scene,) = scenes(1, seed=5)
        file = io.BytesIO()
        Image.fromarray(scene.picture).save(file, "PNG")
        answer = requests.post(
            f"http://{address}{PATH}",
            files={"image": file.getvalue()},
            data={"api_key": "a b"},
            timeout=LIMIT_S,
        )
        assert answer.json()["success"]
        assert len(answer.json()["predictions"]) > 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0

    # A slot that was changed is not served.
    model = root / "shapes" / "a" / "model.edgec"
    model.chmod(0o644)
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    model.write_bytes(data)
    with started(units / UNIT, root / "shapes") as process:
        assert process.wait(LIMIT_S) == 1


@pytest.mark.slow
def test_the_program_takes_the_servers_place(
    shapes: Path,
    root: Path,
    units: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in(tmp_path, monkeypatch)
    one(flash(shapes, ["local:"], FlashOptions(service="serve")))
    words = json.loads((root / "shapes" / serving.OPTIONS).read_text())
    assert words == ["--deepstack", "127.0.0.1:8100"]
    assert " serve " in (units / UNIT).read_text()
    one(flash(shapes, ["local:"], FlashOptions(service=True)))
    text = (units / UNIT).read_text()
    assert "main --runs 50 --json" in text
    assert "service.conf" in text


@pytest.mark.parametrize(
    ("service", "what"),
    [
        ("lunch", '"lunch" is not a service'),
        ("", '"" is not a service'),
        ("serve --zmq", "expected one argument"),
        ("serve model.edgec", "unrecognized arguments"),
        ("serve --mqtt mqtt://a", "no picture can come"),
        ("serve 'x", "No closing quotation"),
        ("serve --threads many", "invalid int value"),
    ],
)
def test_what_is_no_service(service: str, what: str) -> None:
    with pytest.raises(InputError, match=what) as e:
        served(service)
    assert e.value.hint


@pytest.mark.parametrize("service", [True, False, "program"])
def test_what_is_the_program(service: bool | str) -> None:
    assert served(service) is None


def test_the_command_line(
    tmp_path: Path, root: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flag alone, with a value, and before a bundle, which it does not take."""
    monkeypatch.setenv("EDGEC_UNITS", str(tmp_path / "units"))
    stand_in(tmp_path, monkeypatch)
    model = str(bundle(tmp_path / "1.edgec", program))

    def flashed(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli_devices.flash, ["--on", "local:", *words])
        return done.exit_code, str(done.exception or "") + done.output

    assert flashed(model, "--service")[0] == 0
    code, said = flashed(model, "--service", "serve")
    assert code != 0
    assert "a detector needs that of detection" in said
    assert flashed("--service", model)[0] != 0


def test_a_bundle_behind_the_flag_is_not_its_value(tmp_path: Path) -> None:
    path = tmp_path / "a.edgec"
    path.touch()
    done = CliRunner().invoke(cli_devices.flash, ["--service", str(path)])
    assert done.exit_code == 2
    assert f"write {path} before --service" in done.output
    done = CliRunner().invoke(cli_devices.flash, ["--service", "mistyped.edgec"])
    assert "write mistyped.edgec before --service" in done.output


def test_libraries_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["--zmq", "tcp://127.0.0.1:5555", "--deepstack", "127.0.0.1:8100"]
    assert command_line.check(settings) == (0, "")
    monkeypatch.setitem(sys.modules, "zmq", None)
    code, text = command_line.check(settings)
    assert code != 0
    assert "pyzmq is needed for --zmq" in text
    assert "edgec flash --wheel pyzmq" in text
    assert command_line.settings_of(settings[2:]) == ServeSettings(
        deepstack="127.0.0.1:8100"
    )


def test_a_device_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(str(tmp_path), "shapes", Disk())
    with pytest.raises(Refused, match="no runtime"):
        serving.check_server(app, [])
    monkeypatch.setattr(WheelSite, "active", lambda self: ["0" * 64])
    monkeypatch.setattr(WheelSite, "environment", lambda self, wheels: {})
    error = b"error: pyzmq is needed for --zmq\n  hint: edgec flash --wheel pyzmq\n"

    def execute(*command: object, **_: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([], 3, b"", error)

    with pytest.raises(Refused) as e:
        serving.check_server(app, ["--zmq", "tcp://127.0.0.1:5555"], execute)
    assert e.value.what == "pyzmq is needed for --zmq"
    assert e.value.hint == "edgec flash --wheel pyzmq"
    for words in (["a\0b"], ["x"] * 33, ["x" * 1001]):
        with pytest.raises(Refused, match="impossible"):
            serving.keep_options(app, words)
