"""A session: the chain of segments on every backend, what it refuses, what it does when
the stick is pulled out.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import (
    Bundle,
    BundleError,
    DeviceError,
    EdgecError,
    InputError,
    SegmentTime,
    Session,
    noise_inputs,
    write_bundle,
)
from edgec_runtime.bundle.extraction import extract
from edgec_runtime.model.interpreters import (
    find_interpreter,
    interpreter_factory,
    load_edgetpu,
)
from edgec_runtime.session import session

from tests.runtime import tiny_model
from tests.runtime.fake_interpreter import FakeInterpreter

pytestmark = pytest.mark.cc

MODES = [
    {"tpu": "c"},
    {"tpu": "auto"},
    {"tpu": "interpreter"},
    {"tpu": "interpreter", "interpreter": "litert"},
    {"tpu": "interpreter", "interpreter": lambda model, delegate: FakeInterpreter()},
    {
        "tpu": "interpreter",
        "interpreter": lambda model, delegate: FakeInterpreter(move=True),
    },
    {
        "tpu": "interpreter",
        "interpreter": lambda model, delegate: FakeInterpreter(names=("x", "y")),
    },
]


def check(s: Session, seed: int = 0) -> None:
    image = tiny_model.image(seed)
    found = s.run({"image": image})
    expected = tiny_model.reference(image)
    assert list(found) == ["out", "sums"]
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


@pytest.mark.parametrize("mode", MODES, ids=[str(i) for i in range(len(MODES))])
def test_every_backend_gives_the_same(bundle_path: Path, mode: dict[str, Any]) -> None:
    with Session(bundle_path, **mode) as s:
        for seed in range(3):
            check(s, seed)
        assert s.backends["shift"] == s.backends["mix"] == "c"
        assert s.backends["relu"] == (
            "interpreter" if mode["tpu"] == "interpreter" else "c"
        )


def test_tensor_infos(bundle_path: Path) -> None:
    with Session(bundle_path) as s:
        assert [(t.name, t.shape, t.dtype) for t in s.inputs] == [
            ("image", (1, 4, 4, 3), "|u1")
        ]
        assert [t.name for t in s.outputs] == ["out", "sums"]


def test_outputs_belong_to_the_caller(bundle_path: Path) -> None:
    with Session(bundle_path) as s:
        first = s.run({"image": tiny_model.image(1)})
        kept = first["out"].copy()
        s.run({"image": tiny_model.image(2)})
        np.testing.assert_array_equal(first["out"], kept)
        first["out"][:] = 0
    assert first["out"].flags.writeable


def test_inputs_need_not_be_contiguous(bundle_path: Path) -> None:
    image = tiny_model.image()
    with Session(bundle_path) as s:
        found = s.run({"image": np.asfortranarray(image)})
    np.testing.assert_array_equal(found["out"], tiny_model.reference(image)["out"])


def test_an_interpreter_may_move_its_tensors_at_any_time(bundle_path: Path) -> None:
    fake = FakeInterpreter()
    with Session(
        bundle_path, tpu="interpreter", interpreter=lambda model, delegate: fake
    ) as s:
        check(s)
        fake.move = True
        check(s, 1)
        check(s, 2)
    assert fake.invokes == 4  # the first is the warm-up


def test_two_sessions_do_not_share_state(bundle_path: Path) -> None:
    with Session(bundle_path) as a, Session(bundle_path) as b:
        wrong: list[str] = []

        def work(s: Session, seed: int) -> None:
            for _ in range(200):
                try:
                    check(s, seed)
                except AssertionError as e:
                    wrong.append(str(e))

        threads = [
            threading.Thread(target=work, args=args)
            for args in ((a, 1), (b, 2), (a, 3))
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong


def test_closing_waits_for_no_run(bundle_path: Path) -> None:
    inside = threading.Event()
    go_on = threading.Event()

    class Waits(FakeInterpreter):
        def invoke(self) -> None:
            super().invoke()
            if self.invokes == 2:
                inside.set()
                assert go_on.wait(60)

    s = Session(
        bundle_path, tpu="interpreter", interpreter=lambda model, delegate: Waits()
    )
    found: list[Any] = []
    first = threading.Thread(
        target=lambda: found.append(s.run({"image": tiny_model.image(1)}))
    )
    first.start()
    assert inside.wait(60)
    s.close()
    assert first.is_alive()
    go_on.set()
    first.join(60)
    np.testing.assert_array_equal(
        found[0]["out"], tiny_model.reference(tiny_model.image(1))["out"]
    )


def test_many_threads_run_one_session(bundle_path: Path) -> None:
    with Session(bundle_path) as s:
        wrong: list[BaseException] = []

        def work(k: int) -> None:
            try:
                for seed in range(200):
                    check(s, 1000 * k + seed)
            except BaseException as e:
                wrong.append(e)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong


def test_a_fork_while_other_threads_run(bundle_path: Path) -> None:
    with Session(
        bundle_path,
        tpu="interpreter",
        interpreter=lambda model, delegate: FakeInterpreter(),
    ) as s:
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                s.run({"image": tiny_model.image(1)})

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        try:
            for seed in range(20):
                assert forked(lambda: check(s, seed)) == 0  # noqa: B023
        finally:
            stop.set()
            for t in threads:
                t.join()
        check(s)


def forked(work: Callable[[], None]) -> int:
    """The exit status of a child that works; it is killed after a minute."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(60)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def test_timings(bundle_path: Path) -> None:
    with Session(bundle_path) as s:
        times: list[SegmentTime] = []
        s.run({"image": tiny_model.image()}, timings=times)
        assert [(t.name, t.place, t.backend) for t in times] == [
            ("shift", "cpu", "c"),
            ("relu", "edgetpu", "c"),
            ("mix", "cpu", "c"),
        ]
        assert all(t.ns > 0 for t in times)
        found = s.time(runs=4)
        assert found.warmup == 1
        assert [len(p) for p in found.parts] == [3] * 5
        assert all(
            total >= sum(parts)
            for total, parts in zip(found.total, found.parts, strict=True)
        )
        assert list(found.at) == sorted(found.at)
        begun = time.monotonic_ns()
        warmed = s.time(runs=4, warmup=0.005)
        k = warmed.warmup
        ends = [at + ns for at, ns in zip(warmed.at, warmed.total, strict=True)]
        # bounds that hold wherever this process is interrupted; the clock in seconds is
        # rounded
        assert warmed.at[k] - begun >= 4_999_000, "it warmed up for less"
        assert k == 1 or ends[k - 2] - warmed.at[0] < 5_001_000, (
            "it warmed up for longer"
        )
        assert len(s.time(runs=1000, seconds=0).total) == 4
        with pytest.raises(InputError, match="cannot time 0"):
            s.time(runs=0)


# ---- the stick: see test_stick.py too
# --------------------------------------------------------------------------------------


def test_no_stick(bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> None:
        raise ValueError("Failed to load delegate from " + name)

    fake = types.SimpleNamespace(load_delegate=gone)
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", fake)
    with pytest.raises(DeviceError, match=r"libedgetpu\.so\.1"):
        load_edgetpu("litert")
    with monkeypatch.context() as m:
        # as if the library were there, but no stick
        m.setattr(ctypes, "CDLL", lambda name: None)
        with pytest.raises(DeviceError, match="Failed to load delegate"):
            load_edgetpu("litert")
    with pytest.raises(DeviceError, match="no Edge TPU"):
        Session(bundle_path, tpu="delegate", interpreter="litert")
    with Session(bundle_path, interpreter="litert") as s:
        check(s)


def test_a_fault_of_the_interpreter_is_not_hidden(bundle_path: Path) -> None:
    def once(fail_at: int) -> None:
        fake = FakeInterpreter(fail_at=fail_at)
        with Session(
            bundle_path, tpu="interpreter", interpreter=lambda model, delegate: fake
        ) as s:
            check(s)

    once(0)
    for fail_at in (1, 2):  # the warm-up, the first run
        with pytest.raises(DeviceError, match="USB"):
            once(fail_at)


def test_a_tflite_that_does_not_fit_the_manifest(bundle_path: Path) -> None:
    make = lambda model, delegate: FakeInterpreter(dtype=np.uint8)  # noqa: E731
    with pytest.raises(EdgecError, match=r"q \|u1"):
        Session(bundle_path, tpu="interpreter", interpreter=make)


# ---- interpreters
# --------------------------------------------------------------------------------------


def test_find_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_interpreter()[0] == "litert"
    with pytest.raises(InputError, match='did you mean "litert"'):
        find_interpreter("litrt")
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    monkeypatch.setitem(sys.modules, "tflite_runtime.interpreter", None)
    with pytest.raises(DeviceError, match=r"ai_edge_litert.*tflite_runtime"):
        find_interpreter()
    other = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "tflite_runtime.interpreter", other)
    assert find_interpreter() == ("tflite-runtime", other)


def test_both_packages_are_asked_for_reference_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Module:
        OpResolverType = types.SimpleNamespace(BUILTIN_REF="reference")

        @staticmethod
        def Interpreter(**options: object) -> dict[str, object]:
            return options

    for name, module in (
        ("litert", "ai_edge_litert.interpreter"),
        ("tflite-runtime", "tflite_runtime.interpreter"),
    ):
        monkeypatch.setitem(sys.modules, module, Module)
        made: Any = interpreter_factory(name)(b"model", None)
        assert made == {
            "model_content": b"model",
            "experimental_op_resolver_type": "reference",
        }
        made = interpreter_factory(name)(b"model", "stick")
        assert made == {"model_content": b"model", "experimental_delegates": ["stick"]}


# ---- what is refused
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "what", "hint"),
    [
        ({}, 'the input "image" is missing', "(1, 4, 4, 3)"),
        ({"imag": 0}, 'no input "imag"; did you mean "image"?', '"image" |u1'),
        ([1], "inputs are a list", '{"image": array}'),
        (None, "inputs are a NoneType", '{"image": array}'),
        (
            {"image": np.zeros((1, 4, 4, 3), np.float32)},
            "is uint8, not float32",
            "np.round(x / 1) + 0, 0, 255",
        ),
        (
            {"image": [[1], [1, 2]]},
            'the input "image" is not an array',
            "give an array |u1 (1, 4, 4, 3)",
        ),
        (
            {"image": np.zeros((1, 4, 4, 3), ">i2")},
            "is uint8, not >i2",
            'astype("uint8")',
        ),
        (
            {"image": np.zeros((1, 4, 4, 3), np.int32)},
            "is uint8, not int32",
            'astype("uint8")',
        ),
        (
            {"image": np.zeros((4, 4, 2), np.uint8)},
            "not (4, 4, 2)",
            "or give a photo: uint8 [height, width, 3]",
        ),
        ({"image": np.zeros((1, 4, 4, 4), np.uint8)}, "not (1, 4, 4, 4)", "reshape"),
        ({"image": np.zeros((1, 3, 4, 4), np.uint8)}, "not (1, 3, 4, 4)", "reshape"),
    ],
)
def test_bad_inputs(bundle_path: Path, inputs: Any, what: str, hint: str) -> None:
    with Session(bundle_path) as s, pytest.raises(InputError) as e:
        s.run(inputs)
    assert what in e.value.what
    assert hint in str(e.value.hint)
    assert e.value.exit_code == 2


def test_bad_use(bundle_path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match='did you mean "delegate"'):
        Session(bundle_path, tpu="delegat")
    with pytest.raises(InputError, match="within 0 s"):
        Session(bundle_path, timeout=0)
    with pytest.raises(InputError, match="no interpreter"):
        Session(bundle_path, tpu="interpreter", interpreter="torch")
    with pytest.raises(BundleError):
        Session(tmp_path / "none.edgec")
    s = Session(bundle_path)
    s.close()
    s.close()
    with pytest.raises(InputError, match="closed"):
        s.run({"image": tiny_model.image()})


def test_a_segment_that_fails(bundle_path: Path) -> None:
    with Session(bundle_path) as s, pytest.raises(DeviceError, match="returned 7"):
        s.run({"image": np.full(tiny_model.SHAPE, 255, np.uint8)})


def test_no_code_for_this_machine(tmp_path: Path) -> None:
    write_bundle(tmp_path / "m", *tiny_model.parts())
    with pytest.raises(DeviceError, match="no code for this machine") as e:
        Session(tmp_path / "m")
    assert "emulated:pi4" in str(e.value.hint)


def test_a_library_that_is_none(tmp_path: Path, library: Path) -> None:
    manifest, files = tiny_model.parts(library)
    name = next(iter(manifest["libraries"].values()))
    write_bundle(tmp_path / "m", manifest, {**files, name: b"text"})
    with pytest.raises(BundleError, match="is not code for"):
        Session(tmp_path / "m")


def test_a_library_without_the_segment(tmp_path: Path, library: Path) -> None:
    manifest, files = tiny_model.parts(library)
    manifest["segments"][0]["name"] = "other"
    write_bundle(tmp_path / "m", manifest, files)
    with pytest.raises(
        BundleError, match="made for something else: it has other segments"
    ):
        Session(tmp_path / "m")


def test_weights_are_mapped_from_one_file_that_nobody_can_write(
    bundle_path: Path,
) -> None:
    with Session(bundle_path, tpu="c") as one, Session(bundle_path, tpu="c") as two:
        check(one)
        check(two)
        path = str(extract(one.bundle, "weights.bin"))
        lines = [
            line
            for line in Path("/proc/self/maps").read_text().splitlines()
            if line.endswith(path)
        ]
        assert len(lines) == 2
        assert len({line.split()[4] for line in lines}) == 1, "the same inode"
        assert all(line.split()[1].startswith("r--") for line in lines)


def test_weights_that_were_changed_after_the_compile(
    tmp_path: Path, library: Path
) -> None:
    write_bundle(tmp_path / "m", *tiny_model.parts(library))
    with Bundle.open(tmp_path / "m") as b, Session(b) as s:
        check(s)
        path = extract(b, "weights.bin")
        path.chmod(0o600)
        # in the cache: it is hashed again before it is used
        path.write_bytes(bytes(len(tiny_model.WEIGHTS)))
        with Session(b) as again:
            check(again)
    data = (tmp_path / "m").read_bytes()
    (tmp_path / "m").write_bytes(
        data.replace(tiny_model.WEIGHTS, bytes(len(tiny_model.WEIGHTS)))
    )
    with pytest.raises(BundleError, match=r'"weights.bin" is damaged'):
        Session(tmp_path / "m")


def test_modes_that_the_bundle_cannot_do(tmp_path: Path, library: Path) -> None:
    write_bundle(tmp_path / "m", *tiny_model.parts(library))
    with pytest.raises(InputError, match=r"no \.tflite"):
        Session(tmp_path / "m", tpu="interpreter")
    with pytest.raises(InputError, match="not compiled for the Edge TPU"):
        Session(tmp_path / "m", tpu="delegate")
    with Bundle.open(tmp_path / "m") as b:
        with Session(b) as s:
            check(s)
        assert b.read("src/mix.c")  # a session closes only what it opened


@pytest.mark.parametrize(
    ("machine", "bits", "target"),
    [
        ("x86_64", 64, "linux-x86_64"),
        ("aarch64", 64, "linux-aarch64"),
        ("aarch64", 32, "linux-armv7"),
        ("armv7l", 32, "linux-armv7"),
        ("armv8l", 32, "linux-armv7"),
    ],
)
def test_machine_target(
    monkeypatch: pytest.MonkeyPatch, machine: str, bits: int, target: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(struct, "calcsize", lambda _: bits // 8)
    assert session.machine_target() == target


def test_noise_is_reproducible(bundle_path: Path) -> None:
    with Bundle.open(bundle_path) as b:
        first = noise_inputs(b.manifest)["image"]
        second = noise_inputs(b.manifest)["image"]
    np.testing.assert_array_equal(first, second)
    assert first.dtype == np.uint8
    assert len(np.unique(first)) > 20
