"""Threads: the pool of csrc, and a compiled network on 1 to 4 of them, as a program and
in a Session.
"""

from __future__ import annotations

import gc
import os
import subprocess
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.boards import Board
from edgec_devices.device import device_for
from edgec_devices.intervals import two_digits
from edgec_runtime import Bundle, DeviceError, InputError, Session, noise_inputs
from edgec_runtime.device_end.bundles import machine_target
from edgec_runtime.model.threads import aligned

import edgec
from benchmarks.host_peer import ENGINES
from edgec.emit.c import CSRC
from tests.conftest import ROOT
from tests.runtime.test_session import forked
from tests.waiting import until

POOL = Path(__file__).parent / "pool_at_work.c"
CARTOON = ROOT / "fixtures" / "cartoon" / "cartoon.onnx"
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
SYMBOLS = b"pthread_create"

pytestmark = pytest.mark.cc


def pool(folder: Path, *flags: str) -> None:
    """Compile the pool at work, and let it work."""
    command = [
        "gcc",
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        *flags,
        f"-I{CSRC}",
        str(POOL),
        "-pthread",
    ]
    subprocess.run([*command, "-o", str(folder / "pool")], check=True)
    done = subprocess.run(
        [folder / "pool"], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), (
        done.stdout + done.stderr[:3000]
    )


def test_every_part_is_computed_once(tmp_path: Path) -> None:
    pool(tmp_path)


@pytest.mark.slow
def test_the_pool_has_no_race(tmp_path: Path) -> None:
    pool(tmp_path, "-fsanitize=thread", "-g")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float network of 192 x 192 pixels whose code is for four threads."""
    path = tmp_path_factory.mktemp("threads") / "cartoon.edgec"
    edgec.compile(CARTOON, "host", path, threads=4)
    return path


def unpacked(bundle: Path, folder: Path) -> tuple[Path, list[str | Path]]:
    """The bundle's files, and the words that start its program."""
    with zipfile.ZipFile(bundle) as f:
        f.extractall(folder)
    with Bundle.open(bundle) as opened:
        m = opened.manifest
    program = folder / m.programs[machine_target()]
    program.chmod(0o755)
    return folder, [program, "--weights", folder / m.weights[machine_target()]]


def result(command: Sequence[str | Path], folder: Path) -> bytes:
    done = subprocess.run(
        [*command, "--output", folder], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return (folder / "output0.npy").read_bytes()


@pytest.mark.slow
def test_any_number_of_threads_gives_the_same_bits(
    bundle: Path, tmp_path: Path
) -> None:
    folder, program = unpacked(bundle, tmp_path / "files")
    source = "".join(
        p.read_text() for p in (folder / "src" / machine_target()).glob("seg*.c")
    )
    assert source.count("ek_on_threads(threads, op") >= 10, "the larger ops are shared"
    alone = result([*program, "--runs", "1"], tmp_path / "1")
    for threads in ("2", "3", "4"):
        for more in ((), ("--in-turn",)):
            there = tmp_path / f"{threads}{len(more)}"
            assert (
                result([*program, "--runs", "5", "--threads", threads, *more], there)
                == alone
            )


def tasks() -> set[str]:
    """The numbers of this process's threads.

    A thread that was joined may still be there for a moment.
    """
    return {*os.listdir("/proc/self/task")}


@pytest.mark.slow
def test_sessions_have_pools_of_their_own(bundle: Path) -> None:
    with Bundle.open(bundle) as opened:
        given = noise_inputs(opened.manifest)
    before = tasks()
    with (
        Session(bundle) as one,
        Session(bundle, threads=2) as two,
        Session(bundle, threads=4) as four,
    ):
        assert len(tasks() - before) == 4
        results = [s.run(given) for s in (one, two, four, two, four)]
    until(lambda: tasks() <= before, "closing ends the threads")
    for other in results[1:]:
        for name, y in results[0].items():
            np.testing.assert_array_equal(other[name], y)
    forgotten = Session(bundle, threads=3)
    forgotten.run(given)
    del forgotten
    gc.collect()
    until(lambda: tasks() <= before, "so does dropping a session")


@pytest.mark.slow
def test_runs_at_the_same_time_have_an_arena_and_threads_each(bundle: Path) -> None:
    with Session(bundle, threads=2) as s:
        inputs = [
            {k: np.roll(x, n) for k, x in noise_inputs(s.manifest).items()}
            for n in range(4)
        ]
        expected = [s.run(x) for x in inputs]
        wrong: list[str] = []

        def work(n: int) -> None:
            for _ in range(5):
                found = s.run(inputs[n])
                wrong.extend(
                    k for k, y in expected[n].items() if not np.array_equal(found[k], y)
                )

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        with s.stream(inputs) as shots:
            for shot, y in zip(shots, expected, strict=True):
                wrong.extend(k for k in y if not np.array_equal(shot.value[k], y[k]))
    assert not wrong


@pytest.mark.slow
def test_a_forked_child_has_threads_of_its_own(bundle: Path) -> None:
    with Session(bundle, threads=2) as s:
        given = noise_inputs(s.manifest)
        expected = s.run(given)

        def work() -> None:
            found = s.run(given)
            assert all(np.array_equal(found[name], y) for name, y in expected.items())
            assert len(tasks()) == 2
            s.close()
            until(lambda: len(tasks()) == 1, "closing ends the thread")

        assert forked(work) == 0


@pytest.mark.slow
def test_threads_that_the_code_is_not_for(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="5 threads: the bundle's code is for 4"):
        Session(bundle, threads=5)
    _, program = unpacked(bundle, tmp_path)
    done = subprocess.run([*program, "--threads", "5"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--threads 5, but this program's code is for 4" in done.stderr


@pytest.mark.slow
@pytest.mark.arm
def test_code_for_one_thread_has_no_threads(tmp_path: Path) -> None:
    for threads in (1, 2):
        path = tmp_path / f"{threads}.edgec"
        edgec.compile(DIGITS, "pi4", path, threads=threads)
        with Bundle.open(path) as opened:
            assert opened.manifest.threads == threads
            code = opened.read(opened.manifest.libraries["linux-aarch64"])
            given = noise_inputs(opened.manifest)
            assert (SYMBOLS in code) == (threads == 2)
            results = [
                device_for("emulated:pi4").run(opened, given, n)
                for n in range(1, threads + 1)
            ]
            with pytest.raises(
                InputError, match=f"{threads + 1} threads: the bundle's code is for"
            ):
                device_for("emulated:pi4").run(opened, given, threads + 1)
        for name, y in results[0].items():
            np.testing.assert_array_equal(results[-1][name], y)


@pytest.mark.slow
@pytest.mark.arm
def test_cores_that_are_not_there_are_estimated(tmp_path: Path) -> None:
    path = tmp_path / "pi4.edgec"
    edgec.compile(CARTOON, "pi4", path, threads=4)
    one, four = (edgec.bench(path, "emulated:pi4", threads=n).report for n in (1, 4))
    ratio = one.latency.samples[0] / four.latency.samples[0]
    assert 1.5 < ratio < 4
    # Several threads are known less well than one.
    errors = Board.load("pi4").error
    assert one.latency.error == pytest.approx(errors.one)
    assert four.latency.error == pytest.approx(errors.more)
    assert not any("core estimate" in note for note in one.notes)
    assert any(
        note.startswith("4-core estimate: ") and f" {two_digits(ratio)} times" in note
        for note in four.notes
    )
    pairs = [
        p
        for s, t in zip(one.segments, four.segments, strict=True)
        for p in zip(s.ops, t.ops, strict=True)
    ]
    convolutions = [
        alone.ms / shared.ms for alone, shared in pairs if alone.kind == "conv2d"
    ]
    # where code and tensors happen to lie moves an estimate by some percent
    assert 3 < np.median(convolutions) <= max(convolutions) <= 4 * 1.1


@pytest.mark.slow
def test_a_network_has_no_race(bundle: Path, tmp_path: Path) -> None:
    folder, program = unpacked(bundle, tmp_path)
    sources = sorted((folder / "src" / machine_target()).glob("*.c"))
    flags = [
        "-std=c11",
        "-O1",
        "-g",
        "-ffp-contract=off",
        "-DEK_PROGRAM",
        "-march=x86-64-v3",
        "-fsanitize=thread",
    ]
    wide = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"]
    for source in sources:
        more = wide if "v4" in source.name else []
        command = [
            "gcc",
            *flags,
            *more,
            f"-I{CSRC}",
            "-c",
            str(source),
            "-o",
            str(tmp_path / f"{source.stem}.o"),
        ]
        subprocess.run(command, check=True)
    objects = [str(tmp_path / f"{s.stem}.o") for s in sources]
    main = str(tmp_path / "main_tsan")
    subprocess.run(
        [
            "gcc",
            *flags,
            f"-I{CSRC}",
            str(CSRC / "main.c"),
            *objects,
            "-lm",
            "-pthread",
            "-o",
            main,
        ],
        check=True,
    )
    done = subprocess.run(
        [main, *program[1:], "--threads", "4", "--runs", "3"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.shared
def test_mobilenet_on_any_number_of_threads(shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "mnv2.edgec"
    edgec.compile(
        shared / "models" / "mnv2_tf2_i8" / "mnv2_tf2_i8.tflite",
        "host",
        path,
        threads=4,
    )
    with Bundle.open(path) as opened:
        given = noise_inputs(opened.manifest)
        results = [device_for("local:").run(opened, given, n) for n in (1, 2, 3, 4)]
    for other in results[1:]:
        for name, y in results[0].items():
            np.testing.assert_array_equal(other[name], y)


def test_the_bench_beside_other_engines_has_the_threads_that_it_names(
    bundle: Path,
) -> None:
    with Bundle.open(bundle) as opened:
        given = list(noise_inputs(opened.manifest).values())
    before = tasks()
    call = ENGINES["edgec"](str(bundle), 3, given)
    call()
    assert len(tasks() - before) == 2


def test_memory_that_is_not_there() -> None:
    with pytest.raises(
        DeviceError, match="needs 1,152,921,504,606,846,976 bytes of memory"
    ):
        aligned(1 << 60)
