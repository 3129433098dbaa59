"""Flashing over a real pipe to a real device end: what differs, health, rollback, many
devices, the command line.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from edgec_devices import flash as flash_module
from edgec_devices.boards import Board
from edgec_devices.flash import (
    FlashJob,
    flash,
    flash_one,
    rollback,
    status,
)
from edgec_devices.measurement import MeasuringPlan
from edgec_devices.options import FlashOptions
from edgec_devices.protocol import Connection
from edgec_devices.remote import Remote
from edgec_devices.stream import LinkLost, device_end, stream_for
from edgec_devices.transfer import Assembly, Sending, app_name, send
from edgec_runtime import Bundle, BundleError, DeviceError, InputError, write_bundle
from edgec_runtime.device_end.agent import HANDLERS, Service
from edgec_runtime.device_end.bundles import machine_target
from edgec_runtime.device_end.requests import INFO, Empty, Info
from edgec_runtime.errors import EdgecError

from edgec.cli import devices as cli_devices
from tests.devices.faults import Faults, SimStream, World, make_bundle
from tests.runtime import tiny_model
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.cc


def bundle(
    path: Path, program: Path, extra: bytes = b"", target: str | None = None
) -> Path:
    manifest, files = tiny_model.parts(None, {target or machine_target(): program})
    write_bundle(path, manifest, {**files, "report/extra.bin": extra + b"."})
    return path


def ok(outcomes: tuple[flash_module.FlashOutcome, ...]) -> str:
    assert all(o.ok for o in outcomes), outcomes
    return outcomes[0].what


def failed(outcomes: tuple[flash_module.FlashOutcome, ...]) -> EdgecError:
    assert outcomes[0].error is not None
    return outcomes[0].error


def test_the_program_of_a_slot_has_its_weights(
    tmp_path: Path, root: Path, program: Path
) -> None:
    ok(flash(bundle(tmp_path / "1.edgec", program), ["local:"]))
    slot = root / "tiny" / "current" / "bin" / machine_target()
    done = subprocess.run(
        [slot / "main", "--runs", "3"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (slot / "weights.bin").write_bytes(bytes(len(tiny_model.WEIGHTS)))
    done = subprocess.run([slot / "main"], capture_output=True, text=True)
    assert (done.returncode, "are damaged or of another model" in done.stderr) == (
        2,
        True,
    )
    with (
        Connection(stream_for("local:")) as c,
        pytest.raises(DeviceError, match="slot a of tiny is empty or damaged"),
    ):
        c.request("run", {"app": "tiny"}, limit=5)
    assert (
        ok(flash(bundle(tmp_path / "1.edgec", program), ["local:"]))
        == "flashed, slot b"
    )


def test_flash_and_back(tmp_path: Path, root: Path, program: Path) -> None:
    extra = random.Random(1).randbytes(300_000)
    one = bundle(tmp_path / "1.edgec", program, extra)
    two = bundle(tmp_path / "2.edgec", program, extra[:-100_000] + bytes(100_000))
    first = flash(one, ["local:"], FlashOptions(health="p95<=1s"))
    assert ok(first).startswith("flashed, slot a, p95 ")
    assert (root / "tiny" / "current" / "model.edgec").read_bytes() == one.read_bytes()
    assert ok(flash(one, ["local:"])) == "was there already, slot a"
    second = flash(two, ["local:"])
    assert ok(second) == "flashed, slot b"
    assert second[0].sent < first[0].sent
    assert ok(rollback(["local:"])) == "tiny is back on slot a"
    third = flash(two, ["local:"])
    assert ok(third) == "flashed, slot b"
    assert third[0].sent == 0
    facts = status(["local:"])[0].facts
    assert facts is not None
    assert facts["apps"][0]["active"] == "b"
    assert set(facts["apps"][0]["slots"]) == {"a", "b"}


def test_a_slow_version_never_becomes_active(
    tmp_path: Path, root: Path, program: Path
) -> None:
    one = bundle(tmp_path / "1.edgec", program)
    seen: list[Sending] = []
    error = failed(
        flash(
            one,
            ["local:"],
            FlashOptions(health="p50<=0us"),
            report=lambda url, sending: seen.append(sending),
        )
    )
    measuring = "measuring p50 of 50 inferences, up to 300 s"
    steps = ["connecting", "comparing", "sending", "writing and checking", measuring]
    assert list(dict.fromkeys(s.step for s in seen)) == steps
    # The last of the six is the switch, to which it does not come.
    assert {(s.turn, s.steps) for s in seen} == {(i, 6) for i in range(1, 6)}
    assert "the health check p50<=0us failed" in error.what
    assert not (root / "tiny" / "current").exists()
    ok(flash(one, ["local:"]))
    two = bundle(tmp_path / "2.edgec", program, b"2")
    assert isinstance(
        failed(flash(two, ["local:"], FlashOptions(health="p50<0ms"))), DeviceError
    )
    assert os.readlink(root / "tiny" / "current") == "a"
    error = failed(rollback(["local:"]))
    assert "no whole earlier version" in error.what
    assert error.exit_code == 2
    ok(flash(two, ["local:"]))
    assert isinstance(
        failed(flash(one, ["local:"], FlashOptions(health="p50<0ms"))), DeviceError
    )
    assert ok(rollback(["local:"])) == "tiny is back on slot a", (
        "a version that failed cost the earlier one"
    )


def test_a_program_that_fails_its_health_check(tmp_path: Path, root: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(Path(shutil.which("false") or "/bin/false").read_bytes())
    error = failed(
        flash(
            bundle(tmp_path / "1.edgec", broken),
            ["local:"],
            FlashOptions(health="p95<=40ms"),
        )
    )
    assert "ended with status 1" in error.what
    assert not (root / "tiny" / "current").exists()


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("", "is not a requirement", "for example p95<=40ms"),
        ("p95", "is not a requirement", "for example p95<=40ms"),
        (
            "p94<=3ms",
            'there is no figure p94; did you mean "p9',
            "figures: min, p50, p90, p95, p99, max, mean",
        ),
        ("p95<=3h", "there is no unit h", "use ms, ns, us, µs, s"),
        ("p95<=3MB", "p95 has no MB", "it is a time in ms"),
        ("p95<=-1ms", "never below 0", "for example p95<=40ms"),
        ("p50<=1s, p95<=2s", "is not a requirement", "for example p95<=40ms"),
    ],
)
def test_a_mistyped_health_check_is_refused_before_the_device_is_touched(
    tmp_path: Path, root: Path, program: Path, text: str, what: str, hint: str
) -> None:
    one = bundle(tmp_path / "1.edgec", program)
    with pytest.raises(InputError) as e:
        flash(one, ["local:"], FlashOptions(health=text))
    assert what in e.value.what
    assert hint in (e.value.hint or "")
    assert e.value.at == "--health"
    assert not root.exists() or not (root / "tiny").exists()


@pytest.mark.parametrize(
    ("text", "holds"),
    [("max <= 9.5s", True), ("mean>=0us", True), ("p50 < 0.001us", False)],
)
def test_health_checks_in_any_unit_of_time(
    tmp_path: Path, root: Path, program: Path, text: str, holds: bool
) -> None:
    assert (
        flash(
            bundle(tmp_path / "1.edgec", program), ["local:"], FlashOptions(health=text)
        )[0].ok
        is holds
    )


def test_other_code_and_other_files(tmp_path: Path, root: Path, program: Path) -> None:
    error = failed(
        flash(bundle(tmp_path / "1.edgec", program, target="linux-armv7"), ["local:"])
    )
    assert isinstance(error, BundleError)
    assert "it has linux-armv7" in error.what
    assert error.exit_code == 2
    mislabelled = tmp_path / "arm"
    mislabelled.write_bytes(b"\x7fELF".ljust(18, b"\0") + b"\x28\0" + bytes(600))
    assert (
        "is not code for"
        in failed(flash(bundle(tmp_path / "2.edgec", mislabelled), ["local:"])).what
    )
    (tmp_path / "3.edgec").write_bytes(b"junk")
    with pytest.raises(BundleError, match="not a bundle"):
        flash(tmp_path / "3.edgec", ["local:"])


def test_a_disk_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    one = bundle(tmp_path / "1.edgec", program)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EDGEC_ROOT", str(tmp_path / "file"))
    error = failed(flash(one, ["local:"]))
    assert isinstance(error, DeviceError)
    assert "Not a directory" in error.what or "File exists" in error.what
    assert error.hint
    monkeypatch.setenv("EDGEC_ROOT", "/proc/1/edgec")
    assert failed(flash(one, ["local:"])).exit_code == 1


def test_no_space_while_it_is_written(tmp_path: Path) -> None:
    from edgec_runtime.device_end.disk import Disk

    class Full(Disk):
        def write(self, path: str, offset: int, data: bytes, mode: int = 0o644) -> None:
            if len(data) > 1000:
                raise OSError(28, "No space left on device", path)
            super().write(path, offset, data, mode)

    w = World(tmp_path / "root", random.Random(1), Full())
    w.boot()
    recipe = make_bundle(tmp_path / "m.edgec", b"\x7fELF" + bytes(9000), b"x" * 9000)
    connection = Connection(SimStream(w, Faults(), Faults()), lambda: w.now, 1)
    with connection, pytest.raises(DeviceError, match="No space left on device") as e:
        flash_one(connection, FlashJob(recipe), lambda s: None)
    assert "df -h" in str(e.value.hint)


def test_a_bundle_for_another_cpu_is_refused(
    tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is sent; a Pi 3's code runs on a Pi 4."""
    w = World(tmp_path / "root", random.Random(1))
    w.boot()

    def of_a_pi4(service: Service, request: Empty, blob: bytes) -> Info:
        info = service.info(request, blob)
        return info._replace(cpu="Cortex-A72", board="Raspberry Pi 4 Model B")

    monkeypatch.setitem(HANDLERS, INFO, of_a_pi4)
    made = Assembly.of(bundle(tmp_path / "m.edgec", program))
    connection = Connection(SimStream(w, Faults(), Faults()), lambda: w.now, 1)
    with connection:
        for_pi5 = FlashJob(replace(made, board=Board.load("pi5")))
        with pytest.raises(DeviceError, match=r"dotprod, fp16\) that the Cortex-A72"):
            flash_one(connection, for_pi5, lambda s: None)
        for_pi3 = FlashJob(replace(made, board=Board.load("pi3")))
        assert flash_one(connection, for_pi3, lambda s: None).ok


def test_urls(tmp_path: Path, program: Path) -> None:
    one = bundle(tmp_path / "1.edgec", program)
    for urls, what in (
        (["emulated:pi4"], "nothing can be put on emulated:pi4"),
        (["locl:"], 'did you mean "local"'),
        (["local:", "local:"], "given twice"),
        ([], "no device"),
    ):
        with pytest.raises(InputError, match=what):
            flash(one, urls)


def test_app_names() -> None:
    assert [app_name(n) for n in ("a b", "../x", "", "..", "ü", "m" * 99)] == [
        "a-b",
        "x",
        "model",
        "model",
        "model",
        "m" * 64,
    ]


def test_which_app(tmp_path: Path, root: Path, program: Path) -> None:
    assert "has 0 applications" in failed(rollback(["local:"])).what
    for extra in (b"1", b"2"):
        for app in ("x", "y"):
            ok(
                flash(
                    bundle(tmp_path / "1.edgec", program, extra),
                    ["local:"],
                    FlashOptions(app=app),
                )
            )
    assert "2 applications: x, y" in failed(rollback(["local:"])).what
    assert ok(rollback(["local:"], app="y")) == "y is back on slot a"


def test_remote_run_and_bench_leave_the_slots_alone(
    tmp_path: Path, root: Path, program: Path
) -> None:
    device = Remote(lambda: stream_for("local:"))
    with Bundle.open(bundle(tmp_path / "1.edgec", program)) as b:
        image = tiny_model.image(3)
        for name, array in tiny_model.reference(image).items():
            np.testing.assert_array_equal(device.run(b, {"image": image})[name], array)
        found = device.measure(b, MeasuringPlan(rounds=2, runs=5, warmup=0.0))
        assert [len(one.total) for one in found.timed] == [6, 6]
        assert all(one.vitals and one.load for one in found.launches)
        with pytest.raises(InputError, match="is uint8, not float64"):
            device.run(b, {"image": image / 255})
        with pytest.raises(DeviceError, match='segment "mix" failed'):
            device.run(b, {"image": np.full(tiny_model.SHAPE, 255, np.uint8)})
    assert not (root / "tiny" / "current").exists()
    assert sorted(p.name for p in (root / "tiny").iterdir()) == ["lock", "try"]


def test_a_cut_is_gone_on_from_by_itself(
    tmp_path: Path, root: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Assembly.of(
        bundle(tmp_path / "1.edgec", program, random.Random(1).randbytes(1 << 20))
    )
    calls = []
    with pytest.raises(ZeroDivisionError), Connection(stream_for("local:")) as c:
        send(c, recipe, progress=lambda s: 1 // (s.done < 500_000))  # type: ignore[arg-type]
    real = Connection.request

    def lost_once(self: Connection, do: str, *args: object, **fields: object) -> object:
        calls.append(do)
        if calls == ["info", "begin"]:
            raise LinkLost("cut")
        return real(self, do, *args, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(Connection, "request", lost_once)
    seen: list[Sending] = []
    done = flash(tmp_path / "1.edgec", ["local:"], report=lambda url, s: seen.append(s))
    assert ok(done) == "flashed, slot a"
    assert calls.count("begin") == 2
    assert [s.step for s in seen[:4]] == [
        "connecting",
        "comparing",
        "connecting",
        "comparing",
    ]
    totals = {s.total for s in seen if s.step == "sending"}
    assert 0 < max(totals) < 1 << 20, "what was sent before the cut is not sent again"


@pytest.mark.parametrize("minor", range(9, 15))
def test_pythons(
    minor: int,
    tmp_path: Path,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: Path,
) -> None:
    python = shutil.which(f"python3.{minor}")
    if (
        python is None
        or subprocess.run([python, "-c", ""], capture_output=True).returncode
    ):
        pytest.skip(f"no python3.{minor} here")
    monkeypatch.setattr(sys, "executable", python)
    assert ok(
        flash(
            bundle(tmp_path / "1.edgec", program),
            ["local:"],
            FlashOptions(health="p50<=1s"),
        )
    )
    facts = status(["local:"])[0].facts
    assert facts is not None
    assert facts["python"].startswith(f"3.{minor}.")


def test_the_device_end_needs_nothing_installed(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_bytes(device_end()[0])
    command = [sys.executable, "-I", "-S", "-u", str(script)]
    done = subprocess.run(
        command,
        input=b"",
        capture_output=True,
        env={"HOME": str(tmp_path)},
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# ---- the command line


def cli(*args: str | Path) -> Result:
    verb = next(v for v in cli_devices.VERBS if v.name == args[0])
    return CliRunner().invoke(verb, [str(a) for a in args[1:]])


def test_verbs(tmp_path: Path, root: Path, program: Path) -> None:
    one = bundle(tmp_path / "1.edgec", program)
    done = cli("flash", one, "--on", "local:", "--health", "p95<=1s")
    assert done.exit_code == 0, done.output
    assert "flashed, slot a, p95" in done.output
    done = cli("status", "--on", "local:")
    assert "tiny a " in done.output
    assert "active" in done.output
    done = cli("rollback", "--on", "local:", "--app", "tiny")
    assert done.exit_code == 2
    assert "edgec status --on DEVICE shows both slots" in done.output
    done = cli("flash", one, "--on", "local:", "--json", "--app", "other")
    assert json.loads(done.stdout)[0]["what"] == "flashed, slot a"
    assert cli("flash", one, "--on", "local:", "-q").output == ""


def test_devices_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edgec.toml").write_text('[devices]\nattic = "nonsense:"\n')
    done = cli("devices", "--json")
    found = {f["url"]: f for f in json.loads(done.stdout)}
    assert found["emulated:pi4"]["what"].startswith("Raspberry Pi 4")
    assert found["local:"]["what"] == "this machine"
    assert found["nonsense:"]["answers"].startswith("no: ")
    (tmp_path / "edgec.toml").write_text("[devices]\nattic = 5\n")
    with pytest.raises(InputError, match="not names and URLs"):
        CliRunner().invoke(cli_devices.devices, catch_exceptions=False)
