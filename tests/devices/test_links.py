"""Running and timing a bundle on this machine and on emulated boards."""

from __future__ import annotations

import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from edgec_devices import plugin
from edgec_devices.device import Device, device_for
from edgec_devices.links import emulated
from edgec_devices.measurement import MeasuringPlan
from edgec_devices.pipeline import Counts
from edgec_runtime import Bundle, DeviceError, InputError, ToolError, write_bundle
from edgec_runtime.session.session import machine_target

from tests import builds
from tests.runtime import tiny_model

pytestmark = [pytest.mark.cc, pytest.mark.arm]

EMULATED = [
    "emulated:pi-zero2",
    "emulated:pi3",
    "emulated:pi4",
    "emulated:pi5",
    "emulated:coral-dev-board",
    "emulated:pi4/linux-armv7",
]


@pytest.mark.parametrize("url", ["local:", "local:c", *EMULATED])
def test_right_numbers(bundle: Bundle, url: str) -> None:
    # A program for the A72 must not use what the A53 lacks: all boards run the one that
    # was built.
    image = tiny_model.image(3)
    found = device_for(url).run(bundle, {"image": image})
    for name, array in tiny_model.reference(image).items():
        np.testing.assert_array_equal(found[name], array)


QUICK = MeasuringPlan(rounds=2, runs=5, seconds=None, warmup=0.0, profiled=3)


@pytest.mark.parametrize(
    ("url", "runner"), [("local:", "program"), ("local:c", "program")]
)
def test_local_is_measured(
    tmp_path: Path, program: Path, url: str, runner: str
) -> None:
    write_bundle(
        tmp_path / "m", *tiny_model.parts(programs={machine_target(): program})
    )
    with Bundle.open(tmp_path / "m") as bundle:
        m = device_for(url).measure(bundle, QUICK)
    assert (m.runner, m.backends, m.device.emulated) == (runner, ("c", "c", "c"), False)
    assert [len(one.total) for one in m.timed] == [6, 6]
    assert [[len(s) for s in one.segments] for one in m.timed] == [[6, 6, 6]] * 2
    assert all(one.load and one.rss and one.warmup == 1 for one in m.launches)
    assert [[len(ops) for ops in p.ops] for p in m.profiles] == [[0, 0, 2]] * 2
    assert all(
        one.vitals is not None and one.vitals["before"]["ns"] < one.at[0]
        for one in m.launches
    )


def test_plans() -> None:
    assert MeasuringPlan.of(50).rounds * MeasuringPlan.of(50).runs == 50
    assert (
        MeasuringPlan.of(2).rounds,
        MeasuringPlan.of(2).runs,
        MeasuringPlan.of(2).seconds,
    ) == (1, 2, None)
    assert MeasuringPlan.of(seconds=20).seconds == 2
    assert MeasuringPlan.of() == MeasuringPlan()
    for wrong in (0, -1, 10**9):
        with pytest.raises(InputError, match=f"{wrong} runs"):
            MeasuringPlan.of(wrong)


def counted(device: Device, bundle: Bundle) -> Counts:
    assert isinstance(device, emulated.Emulated)
    return device.counts(bundle, plugin.block_count_plugin())


@pytest.mark.parametrize("url", ["emulated:pi4", "emulated:pi4/linux-armv7"])
def test_counts_are_the_same_each_time(bundle: Bundle, url: str) -> None:
    device = device_for(url)
    first = counted(device, bundle)
    places = {(s, op) for s, op in first.inferences[-1] if s >= 0}
    assert places == {(0, -1), (1, -1), (2, -1), (2, 0), (2, 1), (2, 2)}, (
        "mix alone has ops"
    )
    assert all(30 < first.instructions((s, -1)) < 5000 for s in range(2))
    assert counted(device, bundle) == first


def test_an_emulated_board_is_estimated(bundle: Bundle) -> None:
    device = device_for("emulated:pi4")
    m = device.measure(bundle, QUICK)
    assert (m.launches, m.backends, m.device.emulated) == (
        (),
        ("c", "cost model", "c"),
        True,
    )
    shift, relu, mix = m.estimates
    assert (relu.ms, relu.how) == (0.25, "est. by the cost model of the Edge TPU")
    assert "cycles of a cortex-a72" in shift.how
    assert shift.ms is not None
    assert mix.ms is not None
    assert 0 < shift.ms < mix.ms < 1
    assert len(mix.ops) == 2
    assert 0 < mix.ops[0].ms < mix.ops[1].ms < mix.ms, "the first op of mix is empty"
    assert m.between_ms > 0


def test_without_a_model_of_the_core_a_rate_counts(bundle: Bundle) -> None:
    device = device_for("emulated:pi4/linux-armv7")
    assert isinstance(device, emulated.Emulated)
    shift, *_ = device.measure(bundle, QUICK).estimates
    count = counted(device, bundle).instructions((0, -1))
    assert (
        shift.how == f"est. from {count:,} instructions at {device.board.ipc:g} a cycle"
    )
    assert shift.ms == count / (device.board.ipc * device.board.clock_ghz * 1e6)


def test_without_a_cost_model_the_twin_is_counted(
    arm_bundle: Path, tmp_path: Path
) -> None:
    with Bundle.open(arm_bundle) as b:
        manifest, files = tiny_model.parts()
        manifest["segments"][1].pop("est_ms")
        manifest["programs"] = dict(b.manifest.programs)
        for target, path in b.manifest.programs.items():
            tiny_model.use_weights(manifest, files, target)
            files[path] = b.read(path)
        write_bundle(tmp_path / "m", manifest, files)
    with Bundle.open(tmp_path / "m") as b:
        m = device_for("emulated:pi5").measure(b, QUICK)
    assert m.backends[1] == "c"
    assert m.estimates[1].how.endswith("of its C twin")


def test_without_the_plugin_there_is_no_estimate(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "host_compilers", lambda: [])
    m = device_for("emulated:pi4").measure(bundle, QUICK)
    assert [e.ms for e in m.estimates] == [None, 0.25, None]
    assert any("no C compiler was found" in note for note in m.notes)


def test_the_plugin_is_built_once_and_by_the_next_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # others load the one of the cache that all share
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path))
    real = plugin.host_compilers()
    monkeypatch.setattr(plugin, "host_compilers", lambda: [["false"], *real[:1]])
    path = plugin.block_count_plugin()
    made = path.stat().st_mtime_ns
    assert plugin.block_count_plugin().stat().st_mtime_ns == made
    path.unlink()
    monkeypatch.setattr(plugin, "host_compilers", lambda: [["false"]])
    with pytest.raises(ToolError, match=r"could not be built \(false"):
        plugin.block_count_plugin()


def test_the_plugin_is_built_by_several_threads_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path))
    with ThreadPoolExecutor(4) as pool:
        (path,) = {
            built.result()
            for built in [pool.submit(plugin.block_count_plugin) for _ in range(4)]
        }
    assert [p.name for p in path.parent.iterdir()] == ["block_count.so"]


def test_a_plugin_that_counts_nothing(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "idle.c"
    source.write_text(
        "int qemu_plugin_version = 1; int qemu_plugin_install(void) { return 0; }"
    )
    monkeypatch.setattr(plugin, "SOURCE", source)
    monkeypatch.setattr(plugin, "FLAGS", ("-shared", "-fPIC"))
    with pytest.raises(ToolError, match="left no counts"):
        device_for("emulated:pi4").measure(bundle, QUICK)


def test_bad_inputs(bundle: Bundle) -> None:
    for url in ("local:", "emulated:pi4"):
        with pytest.raises(InputError, match="is uint8, not float64"):
            device_for(url).run(bundle, {"image": tiny_model.image() / 255})


def test_a_segment_that_fails(bundle: Bundle) -> None:
    with pytest.raises(DeviceError, match='segment "mix" failed with code 7'):
        device_for("emulated:pi4").run(
            bundle, {"image": np.full(tiny_model.SHAPE, 255, np.uint8)}
        )


def test_no_qemu(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ToolError, match="qemu-aarch64 is not installed") as e:
        device_for("emulated:pi4").run(bundle, {"image": tiny_model.image()})
    assert "apt-get install qemu-user" in str(e.value.hint)


def test_no_program_for_the_board(tmp_path: Path) -> None:
    write_bundle(tmp_path / "m", *tiny_model.parts())
    with (
        Bundle.open(tmp_path / "m") as b,
        pytest.raises(InputError, match="no program for linux-aarch64") as e,
    ):
        device_for("emulated:pi4").run(b, {"image": tiny_model.image()})
    assert e.value.hint == "compile it with --target pi4"


def test_instructions_that_the_cpu_lacks(bundle: Bundle, tmp_path: Path) -> None:
    """A Pi 5 program with a dot product on a Pi 4."""
    source = tmp_path / "sdot.c"
    source.write_text(
        'int main(void) { __asm__ volatile(".inst 0x4e809400"); return 0; }'
    )
    target = ("-target", "aarch64-linux-musl", "-mcpu=cortex_a72")
    builds.program([*builds.ZIG, *target, "-O2"], [source], tmp_path / "p")
    write_bundle(
        tmp_path / "m", *tiny_model.parts(programs={"linux-aarch64": tmp_path / "p"})
    )
    with Bundle.open(tmp_path / "m") as b:
        with pytest.raises(DeviceError, match="CPU of pi4 lacks"):
            device_for("emulated:pi4").run(b, {"image": tiny_model.image()})
        # the Pi 5 has it; this program just writes nothing
        with pytest.raises(DeviceError, match='no tensor "out"'):
            device_for("emulated:pi5").run(b, {"image": tiny_model.image()})


def test_a_program_that_hangs(
    tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "qemu"
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(emulated, "_emulator", lambda target: str(fake))
    monkeypatch.setattr(emulated, "TIMEOUT_S", 0.2)
    with pytest.raises(DeviceError, match="did not end within 0 s"):
        device_for("emulated:pi4").run(bundle, {"image": tiny_model.image()})
