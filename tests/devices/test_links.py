"""Running and timing a bundle on this machine and on emulated boards."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from edgec_devices import device_for, plugin
from edgec_devices.links import emulated
from edgec_runtime import Bundle, DeviceError, InputError, ToolError, write_bundle

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
    # A program for the A72 must not use what the A53 lacks: all boards run the one that was built.
    image = tiny_model.image(3)
    found = device_for(url).run(bundle, {"image": image})
    for name, array in tiny_model.reference(image).items():
        np.testing.assert_array_equal(found[name], array)


def test_local_bench_is_measured(bundle: Bundle) -> None:
    r = device_for("local:").bench(bundle, 5)
    assert (r.estimated, r.runs, r.unit) == (False, 5, "ms")
    assert [len(s.ms) for s in (*r.segments, r.total)] == [5, 5, 5, 5]
    assert {s.how for s in r.segments} == {"measured, c"}
    assert "est." not in r.table()
    with pytest.raises(InputError, match="0 runs"):
        device_for("local:").bench(bundle, 0)


@pytest.mark.parametrize("url", ["emulated:pi4", "emulated:pi4/linux-armv7"])
def test_counts_are_the_same_each_time(bundle: Bundle, url: str) -> None:
    device = device_for(url)
    assert isinstance(device, emulated.Emulated)
    first = device.instructions(bundle)
    assert list(first) == ["shift", "relu", "mix", ""]
    assert all(50 < n < 5000 for n in first.values())
    assert device.instructions(bundle) == first
    assert device.instructions(bundle, {"image": tiny_model.image(5)})["shift"] == first["shift"]


def test_emulated_bench_is_an_estimate(bundle: Bundle) -> None:
    device = device_for("emulated:pi4")
    assert isinstance(device, emulated.Emulated)
    r = device.bench(bundle, 50)
    counts = device.instructions(bundle)
    per_ms = device.board.ipc * device.board.clock_ghz * 1e6
    assert (r.estimated, r.runs) == (True, 1)
    shift, relu, mix = r.segments
    assert shift.ms == (counts["shift"] / per_ms,)
    assert shift.how == f"est. from {counts['shift']} instructions"
    assert (relu.ms, relu.how) == ((0.25,), "est. by the cost model")
    assert r.total.ms[0] == pytest.approx(0.25 + (counts["shift"] + counts["mix"] + counts[""]) / per_ms)
    assert mix.ms[0] > 0
    assert "est. ms" in r.table()
    assert "not measured" in r.table()
    again = json.loads(json.dumps(r.to_json()))
    assert again["estimated"] is True
    assert again["segments"][1]["summary"]["p50"] == 0.25


def test_without_a_cost_model_the_twin_is_counted(arm_bundle: Path, tmp_path: Path) -> None:
    with Bundle.open(arm_bundle) as b:
        manifest, files = tiny_model.parts()
        manifest["segments"][1].pop("est_ms")
        manifest["programs"] = dict(b.manifest.programs)
        write_bundle(tmp_path / "m", manifest, {**files, **{p: b.read(p) for p in b.manifest.programs.values()}})
    with Bundle.open(tmp_path / "m") as b:
        r = device_for("emulated:pi5").bench(b)
    assert r.segments[1].how.endswith("instructions of its C twin")


def test_without_the_plugin_there_is_no_latency(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "host_compilers", lambda: [])
    r = device_for("emulated:pi4").bench(bundle)
    assert [s.ms for s in r.segments] == [(), (0.25,), ()]
    assert r.total.ms == ()
    assert "| total |  | - | - | - |" in r.table()
    assert "no C compiler was found" in r.table()
    assert r.to_json()["total"]["summary"] is None


def test_the_plugin_is_built_once_and_by_the_next_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    real = plugin.host_compilers()
    monkeypatch.setattr(plugin, "host_compilers", lambda: [["false"], *real[:1]])
    path = plugin.insn_count_plugin()
    made = path.stat().st_mtime_ns
    assert plugin.insn_count_plugin().stat().st_mtime_ns == made
    path.unlink()
    monkeypatch.setattr(plugin, "host_compilers", lambda: [["false"]])
    with pytest.raises(ToolError, match=r"could not be built \(false"):
        plugin.insn_count_plugin()


def test_a_plugin_that_counts_nothing(bundle: Bundle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "idle.c"
    source.write_text("int qemu_plugin_version = 1; int qemu_plugin_install(void) { return 0; }")
    monkeypatch.setattr(plugin, "SOURCE", source)
    monkeypatch.setattr(plugin, "FLAGS", ("-shared", "-fPIC"))
    device = device_for("emulated:pi4")
    assert isinstance(device, emulated.Emulated)
    with pytest.raises(ToolError, match="counted 0 parts of 3 segments"):
        device.instructions(bundle)


def test_bad_inputs(bundle: Bundle) -> None:
    for url in ("local:", "emulated:pi4"):
        with pytest.raises(InputError, match="is uint8, not float64"):
            device_for(url).run(bundle, {"image": tiny_model.image() / 255})


def test_a_segment_that_fails(bundle: Bundle) -> None:
    with pytest.raises(DeviceError, match='segment "mix" failed with code 7'):
        device_for("emulated:pi4").run(bundle, {"image": np.full(tiny_model.SHAPE, 255, np.uint8)})


def test_no_qemu(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ToolError, match="qemu-aarch64 is not installed") as e:
        device_for("emulated:pi4").run(bundle, {"image": tiny_model.image()})
    assert "apt-get install qemu-user" in str(e.value.hint)


def test_no_program_for_the_board(tmp_path: Path) -> None:
    write_bundle(tmp_path / "m", *tiny_model.parts())
    with Bundle.open(tmp_path / "m") as b, pytest.raises(InputError, match="no program for linux-aarch64") as e:
        device_for("emulated:pi4").run(b, {"image": tiny_model.image()})
    assert e.value.hint == "compile it with --target pi4"


def test_instructions_that_the_cpu_lacks(bundle: Bundle, tmp_path: Path) -> None:
    """A Pi 5 program with a dot product on a Pi 4."""
    source = tmp_path / "sdot.c"
    source.write_text('int main(void) { __asm__ volatile(".inst 0x4e809400"); return 0; }')
    tiny_model.zig(
        "-target", "aarch64-linux-musl", "-mcpu=cortex_a72", "-static", "-O2", str(source), "-o", str(tmp_path / "p")
    )
    write_bundle(tmp_path / "m", *tiny_model.parts(programs={"linux-aarch64": tmp_path / "p"}))
    with Bundle.open(tmp_path / "m") as b:
        with pytest.raises(DeviceError, match="CPU of pi4 lacks"):
            device_for("emulated:pi4").run(b, {"image": tiny_model.image()})
        with pytest.raises(DeviceError, match='no output "out"'):  # the Pi 5 has it; this program just writes nothing
            device_for("emulated:pi5").run(b, {"image": tiny_model.image()})


def test_a_program_that_hangs(tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "qemu"
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(emulated, "_emulator", lambda target: str(fake))
    monkeypatch.setattr(emulated, "TIMEOUT_S", 0.2)
    with pytest.raises(DeviceError, match="did not end within 0 s"):
        device_for("emulated:pi4").run(bundle, {"image": tiny_model.image()})
