"""edgec tune: schedules are tried on a device, kept, taken up again, and used by later
compiles.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_devices.boards import Board
from edgec_devices.device import device_for
from edgec_runtime import Bundle, write_bundle

import edgec
from edgec.compiler.tuning_databases import default_path
from edgec.emit.calls_file import CALLS_FILE
from edgec.errors import DeviceError, EdgecError, InputError
from edgec.ir import KernelCall, Table, constant
from edgec.ops.conv import CONV2D
from edgec.report.tuning import to_text
from edgec.schedule import variant
from edgec.schedule.cores import Core, cores_of
from edgec.schedule.database import Database
from edgec.schedule.records import call_of_record
from edgec.schedule.variant import Schedule, Variant, legal
from tests import builds
from tests.signals import heed_signals

FIXTURES = Path(__file__).parents[2] / "fixtures"
DIGITS = FIXTURES / "digits" / "digits.onnx"
CALIBRATION = FIXTURES / "digits" / "digits_calibration.npz"
PI4 = "emulated:pi4"

pytestmark = pytest.mark.slow


def bundle(target: str) -> Path:
    """Digits, quantized, as analysis alone has it."""

    def make(folder: Path) -> None:
        edgec.compile(
            DIGITS,
            target,
            folder / "digits.edgec",
            calibrate=CALIBRATION,
            quantize="fast",
            tuned="none",
        )

    return builds.once(f"tune {target}", make) / "digits.edgec"


def asked(path: Path) -> dict[str, dict[str, Any]]:
    """By core and signature, the calls of a bundle."""
    with Bundle.open(path) as opened:
        targets = json.loads(opened.read(CALLS_FILE))["targets"]
    return {
        core: {c["signature"]: c for c in calls}
        for cores in targets.values()
        for core, calls in cores.items()
    }


def source(path: Path) -> str:
    """The C of the first segment for 64-bit Arm."""
    with zipfile.ZipFile(path) as z:
        return z.read("src/linux-aarch64/seg0.c").decode()


def rewritten(path: Path, to: Path, calls: bytes | None) -> Path:
    """A bundle with another calls.json, or none."""
    with Bundle.open(path) as opened:
        manifest = json.loads(opened.manifest_text)
        files = {
            name: opened.read(name) for name in manifest["files"] if name != CALLS_FILE
        }
        detached = manifest["files"].keys() - {*opened.names}
    files |= {CALLS_FILE: calls} if calls is not None else {}
    write_bundle(
        to,
        {k: v for k, v in manifest.items() if k not in ("schema", "files")},
        files,
        detached,
    )
    return to


@pytest.mark.arm
def test_what_was_found_is_kept_and_used(tmp_path: Path) -> None:
    path = bundle("pi4")
    file = tmp_path / "found.json"
    said: list[str] = []
    done = edgec.tune(path, PI4, output=file, progress=said.append)
    table = Database.load(file).of("cortex_a72")
    assert set(table) == set(asked(path)["cortex_a72"]) != set()
    assert said[-1] == ""
    assert f"try {len(table)}/{len(table)}" in said
    for f in table.values():
        assert f.tried > 1
        assert 0 < f.ms <= f.default_ms
        assert (f.device, f.estimated) == (PI4, True)
    assert done.ms <= done.default_ms
    assert "cortex_a72 on emulated:pi4" in to_text(done)

    before = file.read_bytes()
    assert not any(c.new for c in edgec.tune(path, PI4, output=file).choices), (
        "nothing is measured twice"
    )
    assert file.read_bytes() == before
    assert edgec.tune(path, PI4, output=tmp_path / "again.json").ms == done.ms, (
        "estimates do not vary"
    )

    compiled = edgec.compile(
        DIGITS,
        "pi4",
        tmp_path / "t.edgec",
        calibrate=CALIBRATION,
        quantize="fast",
        tuned=file,
    )
    assert (
        f"tuned: {len(table)} kinds of calls run as {file} says" in compiled.summary()
    )


@pytest.mark.arm
def test_a_compile_follows_the_database_bit_for_bit(tmp_path: Path) -> None:
    """A schedule that is not the default, and one that is none: the first is taken, the
    other told once.
    """
    path = bundle("pi4")
    calls = {
        key: call_of_record(c["call"]) for key, c in asked(path)["cortex_a72"].items()
    }
    core = cores_of(Board.load("pi4"), Board.load("pi4").targets[0])[-1]
    database = Database()
    ways = {key: legal(call, core) for key, call in calls.items()}
    used, stale, *_ = sorted(ways, key=lambda key: -len(ways[key]))
    found = edgec.tune(path, PI4, output=tmp_path / "x.json", ops=1)
    entry = next(iter(Database.load(tmp_path / "x.json").of(core.name).values()))
    assert len(found.choices) == 1
    v, s = next(
        (v, s)
        for v, s in ways[used]
        if s.get("mr") != ways[used][0][1].get("mr") or len(ways[used]) < 3
    )
    database = database.with_entry(
        core.name, used, replace(entry, variant=v.name, schedule=dict(s))
    )
    database = database.with_entry(core.name, stale, replace(entry, variant="ek_gone"))
    default_path().parent.mkdir(parents=True, exist_ok=True)
    default_path().write_text(json.dumps(database.to_json()))
    try:
        done = edgec.compile(
            DIGITS, "pi4", tmp_path / "t.edgec", calibrate=CALIBRATION, quantize="fast"
        )
        plain = edgec.compile(
            DIGITS,
            "pi4",
            tmp_path / "p.edgec",
            calibrate=CALIBRATION,
            quantize="fast",
            tuned="none",
        )
    finally:
        default_path().unlink()
    assert (
        f"tuned: 1 kinds of calls run as {default_path()} says"
        in done.summary().replace("\n", " ")
    )
    assert done.summary().count("no longer legal") == 1
    assert "tuned" not in plain.summary()
    assert source(tmp_path / "t.edgec") != source(tmp_path / "p.edgec") == source(path)
    outputs = []
    for name in ("t", "p"):
        with Bundle.open(tmp_path / f"{name}.edgec") as opened:
            x = np.load(FIXTURES / "digits" / "digits_test.npz")["x"][:1].astype(
                np.float32
            )
            outputs.append(device_for(PI4).run(opened, {"input": x})["output"])
    np.testing.assert_array_equal(outputs[0], outputs[1])


@pytest.mark.cc
def test_here_the_preferred_core_that_this_machine_is(tmp_path: Path) -> None:
    done = edgec.tune(bundle("host"), "local:", ops=2, output=tmp_path / "t.json")
    table = Database.load(tmp_path / "t.json")
    assert list(table.cores) == [done.core]
    assert {(f.device, f.estimated) for f in table.of(done.core).values()} == {
        ("local:", False)
    }
    assert all(c.ms > 0 for c in done.choices)


@pytest.mark.arm
@pytest.mark.parametrize("off", [0, 1])
def test_a_wrong_candidate_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: int
) -> None:
    """The default, or the schedule behind it, with the weights of the channels turned
    round.
    """
    right = variant.variants()

    def spoilt(v: Variant) -> Variant:
        def apply(call: KernelCall, core: Core, schedule: Schedule) -> KernelCall:
            if schedule == v.schedules(call, core)[off]:
                weights = constant(call.operands[1])
                assert weights is not None
                operands = (
                    call.operands[0],
                    Table(weights[..., ::-1], "w"),
                    *call.operands[2:],
                )
                call = replace(call, operands=operands)
            return v.apply(call, core, schedule)

        return replace(v, apply=apply)

    changed = {
        of: tuple(map(spoilt, vs)) if of == CONV2D.of("s8") else vs
        for of, vs in right.items()
    }
    model = bundle("pi4")  # made of what is right
    monkeypatch.setattr(variant, "variants", lambda: changed)
    said = r"ek_gemm_s8_(twos_)?neon with mr=.* differs in \d+ bytes from ek_conv2d_s8"
    with pytest.raises(EdgecError, match=said) as e:
        edgec.tune(model, PI4, output=tmp_path / "t.json", ops=1)
    assert e.value.exit_code == 1
    assert not (tmp_path / "t.json").exists()


@pytest.mark.arm
def test_ctrl_c_leaves_a_good_file_to_go_on_with(tmp_path: Path) -> None:
    path = bundle("pi4")
    file = tmp_path / "t.json"
    # On a loaded machine a tune may end before the signal reaches it.
    for _ in range(3):
        file.unlink(missing_ok=True)
        code, said = interrupted(path, file)
        if code != 0:
            break
    assert code == 130, said
    assert "stopped" in said
    known = Database.load(file).of("cortex_a72")
    assert 0 < len(known) < len(asked(path)["cortex_a72"])
    done = edgec.tune(path, PI4, output=file)
    assert sum(not c.new for c in done.choices) == len(known)
    assert set(Database.load(file).of("cortex_a72")) == set(asked(path)["cortex_a72"])


def interrupted(path: Path, file: Path) -> tuple[int, str]:
    """A tune with Ctrl-C as soon as its file is there: its exit code, what it said."""
    words = ("tune", str(path), "--on", PI4, "-o", str(file), "--workers", "1")
    command = [sys.executable, "-m", "edgec", *words]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=heed_signals
    ) as running:
        while not file.is_file() and running.poll() is None:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate()
    return running.returncode, said


@pytest.mark.arm
def test_any_executor_runs_the_trials(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1) as pool:
        done = edgec.tune(
            bundle("pi4"), PI4, output=tmp_path / "t.json", ops=1, executor=pool
        )
    assert [c.new for c in done.choices] == [True]


class Forgetful(Executor):
    """What it is given first goes away with who worked on it."""

    def __init__(self, times: int) -> None:
        self.left = times

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.left:
            self.left -= 1
            future.set_exception(BrokenExecutor("gone"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.arm
def test_a_trial_whose_worker_goes_away_is_begun_again_but_not_for_ever(
    tmp_path: Path,
) -> None:
    done = edgec.tune(
        bundle("pi4"), PI4, output=tmp_path / "t.json", ops=1, executor=Forgetful(2)
    )
    assert len(done.choices) == 1
    with pytest.raises(EdgecError, match="the workers are gone"):
        edgec.tune(
            bundle("pi4"),
            PI4,
            output=tmp_path / "u.json",
            ops=1,
            executor=Forgetful(99),
        )


@pytest.fixture
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip(
        "distributed", reason="no Dask: pip install 'edgec[dask]'"
    )
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=None,
        host="127.0.0.1",
        silence_logs="CRITICAL",
    ) as two:
        yield two


@pytest.mark.arm
def test_two_dask_workers_of_which_one_is_killed(tmp_path: Path, cluster: Any) -> None:
    """In the middle of its work: every call is tuned all the same."""
    path = bundle("pi4")
    file = tmp_path / "t.json"
    first = next(iter(cluster.workers.values())).pid
    killed: list[str] = []

    def kill(text: str) -> None:
        if text.startswith("try 2/"):
            os.kill(first, signal.SIGKILL)
            killed.append(text)

    url = cluster.scheduler_address.replace("tcp://", "dask://")
    done = edgec.tune(path, PI4, output=file, workers=url, progress=kill)
    assert killed
    assert first not in [worker.pid for worker in cluster.workers.values()]
    assert all(c.new for c in done.choices)
    assert set(Database.load(file).of("cortex_a72")) == set(asked(path)["cortex_a72"])


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"on": "emulated:pi9"}, InputError, "there is no board"),
        (
            {"on": "emulated:pi3"},
            InputError,
            "the bundle is for pi4, emulated:pi3 is not",
        ),
        ({"on": "local:"}, InputError, "the bundle is for pi4, local: is not"),
        (
            {"on": f"{PI4}/linux-armv7"},
            InputError,
            "in more than one way on linux-armv7",
        ),
        ({"on": PI4, "workers": 0}, InputError, "names no workers"),
        ({"on": "local:", "workers": "dask://x:1"}, InputError, "all at once"),
        ({"on": PI4, "workers": "tcp://x:1"}, InputError, "names no workers"),
        (
            {"on": PI4, "workers": "dask://127.0.0.1:9", "timeout": 1.0},
            DeviceError,
            "no Dask scheduler answers",
        ),
        ({"on": PI4, "output": "missing/t.json"}, InputError, "does not exist"),
    ],
)
def test_errors(
    tmp_path: Path, options: dict[str, Any], kind: type[EdgecError], said: str
) -> None:
    with pytest.raises(kind, match=said) as e:
        edgec.tune(bundle("pi4"), **{"output": tmp_path / "t.json", **options})
    assert "hint: " in str(e.value)


def test_bundles_that_do_not_say_what_they_compute(tmp_path: Path) -> None:
    path = bundle("pi4")
    no_call = {
        "linux-aarch64": {
            "cortex_a72": [{"signature": "x", "functions": [], "call": {"kernel": 3}}]
        }
    }
    contents = {
        "none": None,
        "damaged": b'{"targets": 3}',
        "strange": json.dumps({"targets": no_call}).encode(),
    }
    for name, content in contents.items():
        changed = rewritten(path, tmp_path / f"{name}.edgec", content)
        with pytest.raises(InputError) as e:
            edgec.tune(changed, PI4, output=tmp_path / "t.json")
        assert ("does not say" if content is None else "damaged") in e.value.what
        assert "compile the model again" in str(e.value)
