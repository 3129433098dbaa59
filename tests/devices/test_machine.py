"""The whole emulated machine: booted, logged in to over ssh and serial, restarted, cut
off, and bundles put on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.device import device_for
from edgec_devices.flash import flash, rollback, status
from edgec_devices.machine import PASSWORD, USER, Machine, Settings, boot
from edgec_devices.options import FlashOptions
from edgec_devices.signing import new_key, sign, trust
from edgec_devices.transfer import Sending
from edgec_runtime import Bundle, write_bundle
from edgec_runtime.bundle.cache import cache_dir

import edgec
from edgec.benching.result import EMULATOR
from tests.cli.verbs import edgec as edgec_verb
from tests.conftest import ROOT
from tests.house.pages import commands
from tests.runtime import tiny_model

pytestmark = [pytest.mark.pi, pytest.mark.slow]
LINKS = ("ssh", "serial")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two versions of the tiny model for aarch64; the second has another file in it."""
    folder = tmp_path_factory.mktemp("bundles")
    program = tiny_model.build_program(folder, "linux-aarch64")
    for name in ("one", "two"):
        manifest, files = tiny_model.parts(None, {"linux-aarch64": program})
        write_bundle(
            folder / f"{name}.edgec",
            manifest,
            {**files, "report/version.txt": name.encode()},
        )
    return folder / "one.edgec", folder / "two.edgec"


@pytest.fixture
def url(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """URLs by link, after what a person sets up: the machine's ssh configuration, user
    and password of the console.
    """
    monkeypatch.setenv("EDGEC_SSH_CONFIG", str(machine.ssh_config))
    monkeypatch.setenv("EDGEC_SERIAL_USER", USER)
    monkeypatch.setenv("EDGEC_SERIAL_PASSWORD", PASSWORD)
    return lambda link: machine.ssh_url if link == "ssh" else machine.serial_url


def console(machine: Machine, *typed: tuple[str, str], seconds: float = 60.0) -> str:
    """What the console says: each of `typed` is awaited (a regular expression) and
    answered.
    """
    line = os.open(machine.folder / "serial", os.O_RDWR | os.O_NOCTTY)
    try:
        said = ""
        seen = 0
        end = time.monotonic() + seconds
        os.write(line, b"\r")
        for expected, answer in typed:
            while not (found := re.search(expected, said[seen:])):
                assert time.monotonic() < end, f"{expected} is not in {said!r}"
                if select.select([line], [], [], 0.5)[0]:
                    said += os.read(line, 4096).decode(errors="replace")
            seen += found.end()
            time.sleep(0.5)
            os.write(line, answer.encode())
        return said
    finally:
        os.close(line)


def test_the_board_is_a_pi_with_debian_and_python(machine: Machine) -> None:
    state = machine.state
    assert state is not None
    assert state.boot_seconds is not None
    assert state.boot_seconds < 120
    assert re.fullmatch(r"Python 3\.\d+\.\d+\s*", machine.run("python3 -V"))
    assert machine.run("cat /proc/device-tree/model").startswith("Raspberry Pi 4")
    assert machine.run("uname -m").strip() == "aarch64"
    assert "0xd08" in machine.run("cat /proc/cpuinfo"), "not a Cortex-A72"
    assert machine.run("systemctl is-system-running").strip() == "running"
    assert machine.run("sudo id -u").strip() == "0"
    for absent in ("numpy", "pip", "edgec_runtime"):
        assert (
            machine.run(f"python3 -c 'import {absent}' 2>&1 || true")
            .strip()
            .endswith(f"No module named '{absent}'")
        )


def test_the_console_asks_for_user_and_password(machine: Machine) -> None:
    said = console(
        machine,
        ("login: ", f"{USER}\r"),
        ("Password: ", "wrong\r"),
        ("Login incorrect", ""),
        ("login: ", f"{USER}\r"),
        ("Password: ", f"{PASSWORD}\r"),
        (r"\$ ", "python3 -V\r"),
        (r"Python 3\.\d+", "exit\r"),
        ("login: ", ""),
    )
    assert f"Password: {PASSWORD}" not in said, "the password is echoed"


def test_its_python_has_byte_code(machine: Machine) -> None:
    """As on any Pi; without it a status takes seconds of compiling the standard
    library.
    """
    code = "import json, os; print(os.path.getsize(json.__cached__) > 1000)"
    assert machine.run(f"python3 -S -c '{code}'").strip() == "True"


def test_a_machine_that_is_on_is_reached_by_its_name_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `edgec devices boot` leaves it: in edgec's cache, and ~/.ssh/config knows
    nothing of it.
    """
    monkeypatch.delenv("EDGEC_SSH_CONFIG", raising=False)
    (cache_dir("machines") / "lab").symlink_to(machine.folder)
    for url in (machine.ssh_url, "emulated:pi4"):
        facts = status([url])[0].facts
        assert facts is not None
        assert facts["emulated"] is True
        assert facts["board"].startswith("Raspberry Pi 4")


TUTORIALS = {
    "tutorial.md": (
        *("7. Flash", "8. Check, and go back", "9. A service"),
        *("flash", "compile", "flash", "status", "bench", "bench", "rollback"),
        *("package", "scp", "ssh", "ssh", "devices"),
    ),
    "tutorial-yolo.md": ("6. Flash", "devices", "flash", "status", "devices"),
}
"""The sections about a device, and the programs or verbs there."""


@pytest.mark.parametrize("page", TUTORIALS)
def test_the_device_part_of_the_tutorials(
    page: str,
    machine: Machine,
    url: Callable[[str], str],
    bundles: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    """Its command lines as they are printed, from flash to the service, with the tiny
    model for the network.
    """
    for name, bundle in zip(
        ("mobilenet_v2", "second", "yolo11n"), (*bundles, bundles[0]), strict=True
    ):
        shutil.copy(bundle, tmp_path / f"{name}.edgec")
    machine.run("rm -rf ~/.edgec")
    headings = [word for word in TUTORIALS[page] if word[0].isdigit()]
    text = "\n".join(commands(f"docs/{page}", *headings))
    for written, here in (
        ("ssh://emulated-pi4", url("ssh")),
        (" emulated-pi4", f" {machine.alias}"),
        ("~/.cache/edgec/machines/pi4/ssh_config", str(machine.ssh_config)),
        ("edgec-mobilenet-v2", "edgec-tiny"),
    ):
        text = text.replace(written, here)
    done = []
    for line in text.splitlines():
        words = shlex.split(line)
        if words[0] != "edgec":
            ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
            # status 3: the tiny model has been timed, and its service has ended
            asks = "systemctl" in words
            assert ended.returncode in ((0, 3) if asks else (0,)), (line, ended)
            assert not asks or "service; enabled" in ended.stdout
        elif words[1] not in ("compile", "devices"):
            result = edgec_verb(*words[1:], cwd=tmp_path)
            assert result.code == 0, (line, result)
        done.append(words[0] if words[0] != "edgec" else words[1])
    assert (*headings, *done) == TUTORIALS[page]


@pytest.mark.parametrize("link", LINKS)
def test_a_bench_of_an_emulated_machine_measures_nothing(
    link: str, url: Callable[[str], str], bundles: tuple[Path, Path], tmp_path: Path
) -> None:
    schema = json.loads((ROOT / "docs" / "bench.schema.json").read_text())
    report = edgec.bench(
        bundles[0],
        url(link),
        runs=24,
        budgets=("p95<=60s", "rss<=80MB"),
        accept_estimates=True,
        json=tmp_path / "r.json",
    ).report
    pytest.importorskip("jsonschema").validate(
        json.loads((tmp_path / "r.json").read_text()), schema
    )
    assert (report.device.cpu, report.device.emulated, report.device.runner) == (
        "Cortex-A72",
        True,
        "program",
    )
    assert report.estimated, "the clock of an emulated machine measures nothing"
    assert len(report.latency.rounds) * len(report.latency.rounds[0]) >= 20
    assert [len(s.ops) for s in report.segments] == [0, 0, 2]
    assert report.first.worst
    assert report.load.worst
    assert report.memory.rss
    assert report.memory.rss < 1 << 24
    slow, small = report.budgets
    assert not slow.holds
    assert EMULATOR in slow.why
    assert report.emulated
    assert any(
        "est." in note and "--on emulated:pi4" in note for note in report.notes
    ), "the board's own estimate"
    assert small.holds, "bytes are bytes on an emulated machine, too"


@pytest.mark.parametrize("link", LINKS)
def test_a_bundle_is_flashed_run_and_rolled_back(
    link: str, url: Callable[[str], str], bundles: tuple[Path, Path]
) -> None:
    to = url(link)
    app = f"by-{link}"
    first = flash(bundles[0], [to], FlashOptions(health="p95<=5s", app=app))[0]
    assert first.ok, first
    assert "slot a, p95 " in first.what
    second = flash(bundles[1], [to], FlashOptions(app=app))[0]
    assert second.ok, second
    assert second.sent < first.sent, "what both versions have was sent twice"
    too_slow = flash(bundles[0], [to], FlashOptions(health="p95<=1us", app=app))[0]
    assert not too_slow.ok
    facts = status([to])[0].facts
    assert facts is not None
    assert facts["target"] == "linux-aarch64"
    assert "Debian" in facts["os"]
    assert {a["app"]: a["active"] for a in facts["apps"]}[app] == "b"
    assert rollback([to], app)[0].what == f"{app} is back on slot a"
    image = tiny_model.image(7)
    found = device_for(to).run(Bundle.open(bundles[0]), {"image": image})
    for name, expected in tiny_model.reference(image).items():
        np.testing.assert_array_equal(found[name], expected)


@pytest.mark.sweep(1, among="long runs on a machine")
def test_files_outlive_a_reboot_and_what_was_synced_a_power_cut(
    machine: Machine,
) -> None:
    state = machine.state
    machine.run("echo before > reboot")
    machine.reboot()
    assert machine.run("cat reboot") == "before\n"
    assert machine.state == state, "a reboot is not a new start"
    machine.run("echo safe > synced && sync synced . && echo lost > unsynced")
    machine.power_cut()
    assert not machine.running
    machine.start()
    assert machine.run("cat synced") == "safe\n"
    # written by the system within half a minute, if at all: the cut was sooner
    assert machine.run("cat unsynced 2>/dev/null || true") == ""


@pytest.mark.parametrize("step", ["sending", "writing and checking", "switching"])
@pytest.mark.sweep(1)
def test_a_power_cut_while_a_flash_writes(
    step: str, machine: Machine, url: Callable[[str], str], tmp_path: Path
) -> None:
    """The earlier version is there after the cut, and the new one after a second flash."""
    to = url("ssh")
    app = f"cut-{step.split()[0]}"
    program = tiny_model.build_program(tmp_path, "linux-aarch64")
    one, two = (tmp_path / f"{i}.edgec" for i in (1, 2))
    for seed, path in enumerate((one, two)):
        manifest, files = tiny_model.parts(None, {"linux-aarch64": program})
        data = random.Random(seed).randbytes(4 << 20)
        write_bundle(path, manifest, {**files, "report/data.bin": data})
    assert flash(one, [to], FlashOptions(app=app))[0].ok

    def cut(url: str, sending: Sending) -> None:
        under_way = step != "sending" or sending.done > 1 << 20
        if sending.step == step and under_way and machine.running:
            machine.power_cut()

    error = flash(two, [to], FlashOptions(app=app), report=cut)[0].error
    assert error is not None
    assert f"the link was lost while {step}: " in error.what
    machine.start()
    assert _active(machine, app) in (
        {_sha256(one)} if step != "switching" else {_sha256(one), _sha256(two)}
    )
    image = tiny_model.image(7)
    assert device_for(to).run(Bundle.open(one), {"image": image})
    assert flash(two, [to], FlashOptions(app=app))[0].ok
    assert _active(machine, app) == _sha256(two)
    machine.run(f"rm -r ~/.edgec/{app}")


def _active(machine: Machine, app: str) -> str:
    """The SHA-256 of the bundle in the active slot."""
    return machine.run(f"sha256sum ~/.edgec/{app}/current/model.edgec").split()[0]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.sweep(1, among="long runs on a machine")
def test_stop_leaves_no_process_and_a_paced_line_is_slow(
    machine: Machine, release: str, tmp_path: Path
) -> None:
    folder = tmp_path / "slow"
    folder.mkdir()
    settings = Settings("pi3", baud=9600, icount=True, release=release)
    with boot(settings, folder) as slow:
        assert "0xd03" in slow.run("cat /proc/cpuinfo"), "not a Cortex-A53"
        began = time.monotonic()
        console(
            slow,
            ("login: ", f"{USER}\r"),
            ("Password: ", f"{PASSWORD}\r"),
            (r"\$ ", "seq 600; echo do''ne\r"),
            ("done", ""),
        )
        assert time.monotonic() - began > 2000 / 960
        assert len(processes(folder)) == 2
    assert processes(folder) == []
    assert machine.running, "another machine was ended"


def processes(folder: Path) -> list[str]:
    """Command lines of running processes that name the folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(
                path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
        except OSError:
            continue
    return [line for line in lines if str(folder) in line]


def test_signatures_and_services(
    machine: Machine,
    url: Callable[[str], str],
    bundles: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    """Verified by the guest's Python; there is no logind in it, so a user has no
    systemd of their own.
    """
    to = url("ssh")
    app = "signed"
    new_key(tmp_path / "key")
    try:
        assert trust(tmp_path / "key.pub", [to])[0].ok
        refused = flash(bundles[0], [to], FlashOptions(app=app))[0].error
        assert refused is not None
        assert "not signed" in refused.what
        sign(bundles[0], tmp_path / "key", tmp_path / "signed.edgec", app)
        assert flash(
            tmp_path / "signed.edgec", [to], FlashOptions(health="p95<=5s", app=app)
        )[0].what.startswith("flashed, slot a")
    finally:
        machine.run("rm -r ~/.edgec/trusted")
    no_service = flash(bundles[1], [to], FlashOptions(app=app, service=True))[0].error
    assert no_service is not None
    assert "systemctl --user show" in no_service.what
    assert machine.run(f"readlink ~/.edgec/{app}/current").strip() == "a"
