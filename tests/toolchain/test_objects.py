"""What was compiled once is taken from the cache: by all that it depends on, undamaged,
and not without bound.
"""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from edgec_devices.boards import Board
from edgec_runtime import EdgecError

import edgec
from edgec.compiler.build import compilers_for
from edgec.emit.c import CSRC
from edgec.errors import InternalError
from edgec.toolchain import build as building
from edgec.toolchain.build import Binaries, Store, build, build_library
from edgec.toolchain.cc import Compiler

pytestmark = pytest.mark.cc

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"

SEGMENT = """#include "ek_model.h"
#include "ek_base.h"
int edgec_seg0_run(void *memory, const void *weights, const void *const *in, void *const *out);
int edgec_seg0_run(void *memory, const void *weights, const void *const *in, void *const *out)
{
    (void)memory, (void)weights;
    for (int i = 0; i < 4; i++) ((int8_t *)out[0])[i] = (int8_t)(((const int8_t *)in[0])[i] + ADD);
    return 0;
}
"""
MODEL = """#include "ek_base.h"
#include "ek_model.h"
#ifdef EK_PROGRAM
static signed char x[4], y[4];
#else
#define x NULL
#define y NULL
#endif
int edgec_seg0_run(void *memory, const void *weights, const void *const *in, void *const *out);
static const ek_tensor tensors[] = {{"x", "|i1", 1, {4}, 4, x}, {"y", "|i1", 1, {4}, 4, y}};
static const int first[] = {0}, last[] = {1};
static const ek_segment segments[] = {{.name = "seg0", .place = "cpu", .n_inputs = 1, .n_outputs = 1, .inputs = first,
                                       .outputs = last, .arena = NULL, .run = edgec_seg0_run, .profile = NULL}};
EK_API const ek_model edgec_model = {"m", 2, tensors, 1, segments, 1, 1, first, last, 0, 0, 1, NULL, NULL, 0, NULL, "", 0};
"""


class Counted:
    """gcc behind a script that writes down each source and each output that it is asked
    for.
    """

    def __init__(self, folder: Path, version: str = "gcc 1") -> None:
        self._log = folder / "log"
        self._script = folder / "counted-cc"
        self._log.write_text("")
        self.say(version)

    def say(self, version: str) -> None:
        """What --version prints."""
        self._script.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" && exit\necho "$@" '
            f'>>{self._log}\nexec gcc "$@"\n'
        )
        self._script.chmod(0o700)

    @property
    def compiler(self) -> Compiler:
        return Compiler((str(self._script),))

    def runs(self) -> int:
        """How often it ran since it was last asked."""
        n = len(self._log.read_text().splitlines())
        self._log.write_text("")
        return n


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """With an empty cache."""
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))
    return Counted(tmp_path)


def sources(add: int = 1) -> dict[str, str]:
    return {"seg0.c": SEGMENT.replace("ADD", str(add)), "model.c": MODEL}


def made(counted: Counted, texts: dict[str, str], csrc: Path = CSRC) -> Binaries:
    return build({"here": texts}, csrc, {"here": counted.compiler})["here"]


def objects(cache: Path) -> list[Path]:
    return sorted((cache / "objects").iterdir())


def test_the_second_time_nothing_is_compiled(counted: Counted) -> None:
    first = made(counted, sources())
    assert counted.runs() == 6, "seg0.c, model.c twice, main.c, a library, a program"
    assert made(counted, sources()) == first
    assert counted.runs() == 0


def test_what_changed_is_compiled_and_nothing_else(counted: Counted) -> None:
    first = made(counted, sources())
    counted.runs()
    second = made(counted, sources(add=2))
    assert counted.runs() == 3, "seg0.c, a library, a program"
    assert second.library != first.library
    assert second.program != first.program


def test_each_target_has_its_own_sources(counted: Counted) -> None:
    compilers = {"one": counted.compiler, "two": counted.compiler}
    found = build({"one": sources(1), "two": sources(2)}, CSRC, compilers)
    assert found["one"] == made(counted, sources(1))
    assert found["two"] == made(counted, sources(2))
    assert found["one"] != found["two"]


def test_headers_count_where_they_are_included(
    counted: Counted, tmp_path: Path
) -> None:
    """Also those that are included by one that is, and in a folder."""
    csrc = tmp_path / "csrc"
    shutil.copytree(CSRC, csrc)
    (csrc / "part").mkdir()
    (csrc / "part" / "deep.h").write_text("#define STEP 1\n")
    (csrc / "part" / "near.h").write_text('#include "deep.h"\n')
    (csrc / "apart.h").write_text("#define STEP 5\n")
    texts = {
        "seg0.c": '#include "part/near.h"\n' + SEGMENT.replace("ADD", "STEP"),
        "model.c": MODEL,
    }
    first = made(counted, texts, csrc)
    counted.runs()
    (csrc / "apart.h").write_text("#define STEP 6\n")
    assert made(counted, texts, csrc) == first
    assert counted.runs() == 0
    (csrc / "part" / "deep.h").write_text("#define STEP 2\n")
    assert made(counted, texts, csrc).library != first.library
    assert counted.runs() == 3


def test_flags_and_the_version_count(counted: Counted) -> None:
    text = SEGMENT.replace("ADD", "1")
    first = build_library(text, CSRC, counted.compiler, ["-O1"])
    assert counted.runs() == 2
    build_library(text, CSRC, counted.compiler, ["-O2"])
    assert counted.runs() >= 1
    assert build_library(text, CSRC, counted.compiler, ["-O1"]) == first
    assert counted.runs() == 0
    counted.say("gcc 2")
    assert build_library(text, CSRC, counted.compiler, ["-O1"]) == first
    assert counted.runs() == 2


def test_what_does_not_compile_is_not_kept(counted: Counted) -> None:
    for _ in range(2):
        with pytest.raises(InternalError, match=r"model\.c does not compile"):
            build_library("not C", CSRC, counted.compiler)
        assert counted.runs() == 1


@pytest.mark.parametrize("damage", ["bit", "cut", "empty", "mixed", "swapped"])
def test_damage_is_noticed(counted: Counted, tmp_path: Path, damage: str) -> None:
    first = made(counted, sources())
    runs = counted.runs()
    files = objects(tmp_path / "cache")
    contents = [p.read_bytes() for p in files]
    for i, (path, data) in enumerate(zip(files, contents, strict=True)):
        broken = {
            "bit": data[:100] + bytes([data[100] ^ 4]) + data[101:],
            "cut": data[: len(data) // 2],
            "empty": b"",
            "mixed": data[:32] + contents[i - 1][32:],
            "swapped": contents[i - 1],
        }
        path.write_bytes(broken[damage])
    assert made(counted, sources()) == first
    assert counted.runs() == runs
    assert made(counted, sources()) == first
    assert counted.runs() == 0


def test_the_oldest_go_and_what_is_used_stays(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    store = Store(folder, limit=5000)
    keys = [hashlib.sha256(bytes([i])).hexdigest() for i in range(10)]
    for i, key in enumerate(keys):
        store.put(key, bytes(900))
        os.utime(folder / key, (i, i))
    assert store.get(keys[0]) == bytes(900), "used just now"
    (folder / "left.part").write_bytes(bytes(50))  # of a process that was killed
    os.utime(folder / "left.part", (0, 0))
    store.trim()
    assert sum(p.stat().st_size for p in folder.iterdir()) <= 5000
    assert {p.name for p in folder.iterdir()} == {keys[0], *keys[6:]}


def test_the_cache_of_objects_has_a_bound(
    counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "CACHED_BYTES", 150_000)
    for add in range(8):
        made(counted, sources(add))
        assert sum(p.stat().st_size for p in objects(tmp_path / "cache")) <= 150_000


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(EdgecError, match="can be changed by others"):
        Store(folder, 1000)


def test_where_nothing_can_be_written_it_compiles(
    counted: Counted, tmp_path: Path
) -> None:
    """A full disk, or one that cannot be written to: here a file that is a folder."""
    first = made(counted, sources())
    for path in objects(tmp_path / "cache"):
        path.unlink()
        path.mkdir()
    counted.runs()
    assert made(counted, sources()) == first
    assert counted.runs() == 6


def _many(limit: int, rounds: int, seed: int) -> set[str]:
    building.CACHED_BYTES = limit
    compiler = Compiler.native("gcc")
    found = set()
    for i in range(rounds):
        add = (i * seed) % 3
        one = build({"here": sources(add)}, CSRC, {"here": compiler})["here"]
        found.add(f"{add} {hashlib.sha256(one.library + one.program).hexdigest()}")
    return found


@pytest.mark.slow
def test_processes_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three at once in a cache that holds less than one build: they take from each
    other what they are about to use.
    """
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))
    with ProcessPoolExecutor(3) as pool:
        results = list(pool.map(partial(_many, 100_000, 6), (1, 2, 5)))
    assert len(set().union(*results)) == 3, "a text always gives the same bytes"


@pytest.mark.slow
def test_an_interrupted_compile_leaves_nothing_wrong(
    counted: Counted, tmp_path: Path
) -> None:
    """Killed at any moment."""
    code = "from tests.toolchain.test_objects import _many; _many(10**9, 100, 1)"
    for wait in (0.4, 0.6, 0.8):
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        time.sleep(wait)
        process.kill()
        process.wait()
    first = made(counted, sources())
    shutil.rmtree(tmp_path / "cache")
    assert made(counted, sources()) == first


@pytest.mark.slow
def test_a_second_compile_of_a_model_costs_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all targets of a board; the bundles are equal."""
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))
    bundles = []
    spent = []
    for name in ("first.edgec", "second.edgec"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        edgec.compile(DIGITS, "pi4", tmp_path / name)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        )
        bundles.append((tmp_path / name).read_bytes())
    assert bundles[0] == bundles[1]
    assert spent[0] > 0.5
    # A busy machine makes both longer.
    assert spent[1] < spent[0] / 25


def test_boards_share_the_c_library_that_zig_builds() -> None:
    """Those of a Raspberry Pi 3, 4 and 5 are linked for one core; what is in them is
    compiled for each.
    """
    for target, boards in {
        "linux-aarch64": ("pi3", "pi4", "pi5"),
        "linux-armv7": ("pi3", "pi4"),
    }.items():
        made = [
            compilers_for(Board.load(name).with_optional(ALSO.get(target, ())), None)[
                target
            ]
            for name in boards
        ]
        assert len({one.library for one in made}) == 1
        assert len({one.program for one in made}) == 1
        assert len({one.objects for one in made}) == len(boards)


ALSO = {"linux-armv7": ["armv7"]}


def test_a_signal_as_a_thread_starts_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pool does not wait for such a thread, which goes on when the build's folder
    is removed.
    """
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path.parent / "cache"))
    gone = threading.Event()
    started = list[threading.Thread]()
    start = threading.Thread.start

    def start_and_end(thread: threading.Thread) -> None:
        started.append(thread)
        start(thread)
        raise SystemExit(129)

    def once_gone(texts: object, folder: Path) -> dict[str, str]:
        assert gone.wait(60)
        return {}

    monkeypatch.setattr(threading.Thread, "start", start_and_end)
    monkeypatch.setattr(building, "included", once_gone)
    with pytest.raises(SystemExit):
        build({"host": {"model.c": MODEL}}, CSRC, {"host": Compiler(("gcc",))})
    gone.set()
    started[0].join(60)
    assert list(tmp_path.iterdir()) == []
