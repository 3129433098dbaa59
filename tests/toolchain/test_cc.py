"""How compilers are started."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from edgec_runtime.bundle.cache import cache_dir

from edgec.errors import ToolError
from edgec.toolchain.cc import Compiler

SAYS = (
    "import json, os, sys; open(sys.argv[-1], 'w').write(json.dumps([os.getcwd(), "
    "sys.argv[1:]]))"
)


@pytest.mark.parametrize("how", ["compile", "link_library", "link_program"])
def test_in_one_folder_wherever_edgec_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """zig would build its C library anew, a minute of a core."""
    compiler = Compiler((sys.executable, "-c", SAYS))
    said = []
    for folder in (tmp_path, tmp_path / "a" / "b"):
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(folder)
        given = Path(os.path.relpath(tmp_path / "x", folder))
        if how == "compile":
            compiler.compile(given, [given], Path("out"))
        else:
            getattr(compiler, how)([given], Path("out"))
        where, args = json.loads((folder / "out").read_text())
        paths = [
            os.path.normpath(a.removeprefix("-I"))
            for a in args
            if "x" in a.removeprefix("-I").split("/")[-1:]
        ]
        said.append((where, paths))
    assert said[0] == said[1]
    assert said[0][0] == str(cache_dir("zig"))
    assert set(said[0][1]) == {str(tmp_path / "x")}


def test_python_files_of_a_folder_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a model from somewhere, in which edgec is started."""
    (tmp_path / "ziglang.py").write_text("raise SystemExit('not this one')")
    (tmp_path / "a.c").write_text("int a;")
    monkeypatch.chdir(tmp_path)
    Compiler.zig("x86_64-linux-gnu.2.28", "x86_64-linux-musl", "x86_64_v3").compile(
        Path("a.c"), [], Path("a.o")
    )
    assert Path("a.o").stat().st_size > 0


@pytest.mark.cc
@pytest.mark.parametrize(
    ("program", "cpu", "what"),
    [
        ("aarch64-linux-musl", "cortex_a99", "unknown CPU: 'cortex_a99'"),
        ("aarch64-linux-mussel", "cortex_a53", "'aarch64-linux-mussel': "),
    ],
)
def test_a_target_that_zig_does_not_know(
    program: str, cpu: str, what: str, tmp_path: Path
) -> None:
    source = tmp_path / "one.c"
    source.write_text("int one(void);\nint one(void) { return 1; }\n")
    compiler = Compiler.zig("aarch64-linux-gnu.2.28", program, cpu)
    with pytest.raises(ToolError) as e:
        compiler.compile(source, [], tmp_path / "one.o")
    assert what in e.value.what
    assert "profile" in str(e.value.hint)


@pytest.mark.parametrize(
    ("ending", "what", "hint"),
    [
        (
            "echo 'IO failure: No space left on device' >&2; exit 1",
            "the disk is full",
            "EDGEC_CACHE",
        ),
        ("kill -9 $$", "signal 9 ended the C compiler", "free some memory"),
    ],
)
def test_a_machine_that_has_no_room(
    ending: str, what: str, hint: str, tmp_path: Path
) -> None:
    """It is no bug of edgec."""
    stand_in = tmp_path / "cc"
    stand_in.write_text(f"#!/bin/sh\n{ending}\n")
    stand_in.chmod(0o755)
    source = tmp_path / "one.c"
    source.write_text("int one(void);\n")
    with pytest.raises(ToolError, match=what) as e:
        Compiler((str(stand_in),)).compile(source, [], tmp_path / "one.o")
    assert hint in str(e.value.hint)
